package existing

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

func TestParseWrite(t *testing.T) {
	for path, want := range map[string]write{
		"/api/v1/namespaces/db/pods": {object: object{Version: "v1", Resource: "pods",
			Namespace: "db"}},
		"/api/v1/namespaces/db/pods/a": {object: object{Version: "v1", Resource: "pods",
			Namespace: "db", Name: "a"}},
		"/api/v1/namespaces/db/serviceaccounts/a/token": {object: object{Version: "v1",
			Resource: "serviceaccounts", Namespace: "db", Name: "a"}, subresource: "token"},
		"/api/v1/namespaces": {object: object{Version: "v1", Resource: "namespaces"}},
		"/api/v1/namespaces/db": {object: object{Version: "v1", Resource: "namespaces",
			Name: "db"}},
		"/api/v1/namespaces/db/finalize": {object: object{Version: "v1", Resource: "namespaces",
			Name: "db"}, subresource: "finalize"},
		"/apis/apps/v1/namespaces/db/deployments/a/scale": {object: object{Group: "apps", Version: "v1",
			Resource: "deployments", Namespace: "db", Name: "a"}, subresource: "scale"},
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/a": {object: object{Group: "rbac.authorization.k8s.io",
			Version: "v1", Resource: "clusterroles", Name: "a"}},
	} {
		want.verb = http.MethodPatch
		got, ok := parseWrite(http.MethodPatch, path)
		if !ok || got.object.String() != want.object.String() || got.Version != want.Version ||
			got.subresource != want.subresource || got.verb != want.verb {
			t.Errorf("%s: %+v", path, got)
		}
	}
	for _, path := range []string{"/", "/version", "/apis/apps", "/openapi/v3",
		"/api/v1/namespaces/db/../other/secrets/a", "/api/v1/namespaces/db//secrets/a"} {
		if _, ok := parseWrite(http.MethodPost, path); ok {
			t.Errorf("%s is taken", path)
		}
	}
}

// Controllers send and get Kubernetes' own types as protobuf.
func TestMetadataOf(t *testing.T) {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "db", UID: "123"},
		Spec:       corev1.PodSpec{NodeName: "n"},
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	binary, err := runtime.Encode(protobuf.NewSerializer(scheme, scheme), pod)
	if err != nil {
		t.Fatal(err)
	}
	for contentType, body := range map[string][]byte{
		"application/vnd.kubernetes.protobuf": binary,
		"application/json":                    []byte(`{"kind": "Pod", "metadata": {"name": "a", "uid": "123"}}`),
		"application/apply-patch+yaml":        []byte("kind: Pod\nmetadata: {name: a, uid: '123'}\n"),
	} {
		m, err := metadataOf(contentType, body)
		if err != nil || m.Name != "a" || m.UID != "123" {
			t.Errorf("%s: %v, %v", contentType, m, err)
		}
	}
}

func TestDiffers(t *testing.T) {
	const a = `{"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {"b": [1], "c": 2}, "status": {"d": 1}}`
	for b, want := range map[string]string{
		`{"metadata": {"name": "a", "resourceVersion": "2"}, "spec": {"b": [1], "c": 2}}`:         "",
		`{"metadata": {"name": "a"}, "spec": {"b": [1, 2], "c": 2}}`:                              "spec.b",
		`{"metadata": {"name": "a"}, "spec": {"b": [1], "c": 2, "e": null}}`:                      "spec.e",
		`{"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"b": [1], "c": 2}}`:           "metadata.labels",
		`{"metadata": {"name": "a", "managedFields": [{}]}, "spec": {"b": [1], "c": 2}, "f": {}}`: "f",
	} {
		got, err := differs([]byte(a), []byte(b))
		if err != nil || got != want {
			t.Errorf("%s: %q, %v", b, got, err)
		}
	}
}

func TestLacks(t *testing.T) {
	const has = `{"metadata": {"name": "a", "uid": "u"}, "spec": {"b": [{"c": 1, "d": "z"}], "e": "x"}, "status": {}}`
	for wants, want := range map[string]string{
		`{"metadata": {"name": "a"}, "spec": {"b": [{"c": 1}]}}`:           "",
		`{"metadata": {"name": "a"}, "spec": {"b": [{"c": 2}]}}`:           "spec.b[0].c",
		`{"metadata": {"name": "a"}, "spec": {"b": []}}`:                   "spec.b",
		`{"metadata": {"name": "a"}, "spec": {"b": [{"c": 1}, {"c": 1}]}}`: "spec.b",
		`{"metadata": {"labels": {"x": "y"}}}`:                             "metadata.labels",
		`{"spec": {"e": {"f": 1}}}`:                                        "spec.e",
		`{"spec": {"f": {}, "g": null}}`:                                   "spec.f",
		`{"status": {"x": 1}}`:                                             "",
	} {
		got, err := lacks([]byte(has), []byte(wants))
		if err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", wants, got, err, want)
		}
	}
}
