package coordinator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
)

// failure returns what a hook does to a call: the answer is one that an API server gives.
func failure(f *plan.CallFailure, o *wire.Observation) *wire.Failure {
	made := &wire.Failure{Answer: wire.Answer(f.Answer), Code: f.Status}
	if f.Status == 0 {
		return made
	}
	status := statusError(f, o).Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	made.Body, _ = json.Marshal(status) // it consists of texts and numbers
	made.Header = map[string]string{"Content-Type": "application/json"}
	if f.RetryAfter > 0 {
		made.Header["Retry-After"] = strconv.Itoa(f.RetryAfter)
	}
	return made
}

// statusError returns the error of an API server with that HTTP status. For 409 it is the conflict of two writes; a
// create gets it when the object's quota has changed meanwhile.
func statusError(f *plan.CallFailure, o *wire.Observation) *apierrors.StatusError {
	const why = "the test plan made this call fail"
	resource := schema.GroupResource{Group: o.Group, Resource: o.Resource}
	switch f.Status {
	case http.StatusForbidden:
		return apierrors.NewForbidden(resource, o.Name, errors.New(why))
	case http.StatusNotFound:
		return apierrors.NewNotFound(resource, o.Name)
	case http.StatusConflict:
		return apierrors.NewConflict(resource, o.Name, errors.New(
			"the object has been modified; please apply your changes to the latest version and try again"))
	case http.StatusUnprocessableEntity:
		return apierrors.NewInvalid(schema.GroupKind{Group: o.Group, Kind: kindOf(o)}, o.Name,
			field.ErrorList{field.Forbidden(field.NewPath("spec"), why)})
	case http.StatusTooManyRequests:
		return apierrors.NewTooManyRequests(why, f.RetryAfter)
	case http.StatusInternalServerError:
		e := apierrors.NewInternalError(errors.New(why))
		if f.RetryAfter > 0 {
			e.ErrStatus.Details.RetryAfterSeconds = int32(f.RetryAfter)
		}
		return e
	case http.StatusServiceUnavailable:
		e := apierrors.NewServiceUnavailable(why)
		if f.RetryAfter > 0 {
			e.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(f.RetryAfter)}
		}
		return e
	case http.StatusGatewayTimeout:
		return apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within the allotted timeout: %s", why),
			f.RetryAfter)
	}
	return apierrors.NewGenericServerResponse(f.Status, verbOf(o.Operation), resource, o.Name, why, f.RetryAfter, false)
}

// kindOf returns the kind as it is written in manifests, if the object says it.
func kindOf(o *wire.Observation) string {
	var about struct{ Kind string }
	_ = json.Unmarshal(o.Object, &about)
	return cmp.Or(about.Kind, o.Kind)
}

func verbOf(op wire.Operation) string {
	switch op {
	case wire.Create:
		return http.MethodPost
	case wire.Update:
		return http.MethodPut
	case wire.Patch, wire.Apply:
		return http.MethodPatch
	}
	return http.MethodDelete
}
