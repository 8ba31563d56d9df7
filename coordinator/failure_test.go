package coordinator

import (
	"encoding/json"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
)

// The errors are those of an API server: clients tell them apart as they always do.
func TestErrorsOfFailedCalls(t *testing.T) {
	o := &wire.Observation{Operation: wire.Update, Group: "apps", Resource: "deployments", Kind: "deployment",
		Namespace: "default", Name: "web", Object: []byte(`{"kind":"Deployment"}`)}
	for _, test := range []struct {
		status, retryAfter int
		is                 func(error) bool
		text               string
	}{
		{403, 0, apierrors.IsForbidden,
			`deployments.apps "web" is forbidden: the test plan made this call fail`},
		{404, 0, apierrors.IsNotFound, `deployments.apps "web" not found`},
		{409, 0, apierrors.IsConflict, `Operation cannot be fulfilled on deployments.apps "web": the object has been ` +
			`modified; please apply your changes to the latest version and try again`},
		{422, 0, apierrors.IsInvalid,
			`Deployment.apps "web" is invalid: spec: Forbidden: the test plan made this call fail`},
		{429, 1, apierrors.IsTooManyRequests, "the test plan made this call fail"},
		{500, 0, apierrors.IsInternalError, "Internal error occurred: the test plan made this call fail"},
		{503, 2, apierrors.IsServiceUnavailable, "the test plan made this call fail"},
		{504, 0, apierrors.IsTimeout, "Timeout: request did not complete within the allotted timeout: " +
			"the test plan made this call fail"},
		{502, 0, apierrors.IsInternalError, `an error on the server ("the test plan made this call fail") has ` +
			`prevented the request from succeeding (put deployments.apps web)`},
	} {
		f := failure(&plan.CallFailure{Answer: plan.Refused, Status: test.status, RetryAfter: test.retryAfter}, o)
		var status metav1.Status
		if err := json.Unmarshal(f.Body, &status); err != nil {
			t.Fatal(err)
		}
		err := apierrors.FromObject(&status)
		if !test.is(err) || err.Error() != test.text || status.Kind != "Status" || status.APIVersion != "v1" ||
			int(status.Code) != test.status || f.Code != test.status || f.Answer != wire.Refused {
			t.Errorf("%d: %v (%+v)", test.status, err, status)
		}
		seconds, asks := apierrors.SuggestsClientDelay(err)
		if test.retryAfter > 0 && (!asks || seconds != test.retryAfter ||
			f.Header["Retry-After"] != fmt.Sprint(test.retryAfter)) {
			t.Errorf("%d: retry after %d, %v", test.status, seconds, f.Header)
		}
		if _, has := f.Header["Retry-After"]; has != (test.retryAfter > 0) {
			t.Errorf("%d: headers %v", test.status, f.Header)
		}
	}
	if f := failure(&plan.CallFailure{Answer: plan.Lost}, o); f.Code != 0 || f.Body != nil || f.Answer != wire.Lost {
		t.Errorf("a timeout: %+v", f)
	}
}
