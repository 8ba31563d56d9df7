package remote

import (
	"net/http"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// What a request is about is read from each type; objects of this cluster are let through without a question. Requests
// to a real API server are in TestRemoteRefusedAtCreation of the package manager.
func TestSpecOfRequest(t *testing.T) {
	request := func(kind, object string) admission.Request {
		return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Kind: metav1.GroupVersionKind{Kind: kind}, Object: runtime.RawExtension{Raw: []byte(object)},
		}}
	}
	const there, wrapped = `{"remoteCluster":{"cluster":"c","namespace":"n"}}`, `{"spec":{"disruption":`
	for _, tt := range []struct {
		kind, object string
		want         string // cluster/namespace
	}{
		{"Disruption", `{"spec":` + there + `}`, "c/n"}, {"DisruptionCron", wrapped + there + `}}`, "c/n"},
		{"DisruptionRollout", wrapped + there + `}}`, "c/n"}, {"Disruption", `{"spec":{}}`, ""},
		{"DisruptionCron", wrapped + `{}}}`, ""},
	} {
		spec, err := specOf(request(tt.kind, tt.object))
		if err != nil {
			t.Errorf("%s: %v", tt.object, err)
			continue
		}
		got := ""
		if to := spec.RemoteCluster; to != nil {
			got = to.Cluster + "/" + to.Namespace
		}
		if got != tt.want {
			t.Errorf("%s %s: %q", tt.kind, tt.object, got)
		}
	}
	r := &reviewer{}
	if got := r.Handle(t.Context(), request("Disruption", `{"spec":{}}`)); !got.Allowed {
		t.Errorf("of this cluster: %+v", got.Result)
	}
	for _, bad := range []admission.Request{request("Pod", `{}`), request("Disruption", `{"spec":1}`)} {
		if got := r.Handle(t.Context(), bad); got.Allowed || got.Result.Code != http.StatusBadRequest {
			t.Errorf("%s: %+v", bad.Kind.Kind, got.Result)
		}
	}
}
