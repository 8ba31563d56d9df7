package objects_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	"github.com/trommel-dev/trommel/plan"
)

const widgets = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
  metadata: {name: widgets.example.com},
  spec: {group: example.com, scope: Namespaced, names: {kind: Widget, plural: widgets},
    versions: [{name: v1, served: true, storage: true, subresources: {status: {}},
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`

const podTemplate = `{metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: none}]}}`

// request is a request for a certificate, in base64.
const request = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIR01HNENBUUF3RERFS01BZ0dBMVVFQXd3QllUQlpNQk1HQnlx" +
	"R1NNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQQpCTHRTM1d2cklGVVdDYnBBUzVyYWJoY2dEdXd5Z3NCNDJYV0lHL1FNUXNaTHV0YnFz" +
	"bThrWXlTeFRqbmh4cVpzCm5ZTDJCdnlWK0dPLzFnU0wvWU41VkhlZ0FEQUtCZ2dxaGtqT1BRUURBZ05JQURCRkFpRUFnbWdyS0dy" +
	"NGEvTkMKMjFmakQ0dGl4SzZsOGc2SThsdkF1cmJHVEZOYjJvNENJRk9jNHVKQmlXcmdrd0RQc04xM2lZUXk0R0ZKenp6dgpqekJG" +
	"d3NmQ01ZY3IKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg=="

// TestForeseeStatus compares the forecast of an update through a subresource with what the API server makes of it. The
// update also changes the labels, the annotations, the finalizers, the owners and the spec: each type keeps others.
func TestForeseeStatus(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	cluster := clustertest.Start(t, embedded.Config{APIServers: 1, Nodes: -1})
	config, err := cluster.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	c, err := objects.New(config)
	if err != nil {
		t.Fatal(err)
	}
	live := dynamic.NewForConfigOrDie(config)
	apply := func(t *testing.T, text string) *unstructured.Unstructured {
		t.Helper()
		list, err := objects.Decode([]byte(text), "test")
		if err != nil {
			t.Fatal(err)
		}
		u, err := c.Apply(t.Context(), list[0])
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	apply(t, widgets)
	owner, err := c.Get(t.Context(), plan.ResourceKey{Type: "namespace", Name: "default"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, object string
		subresource  string // empty: status
		status       string // what the client sends, with the metadata
	}{
		{
			name: "Service",
			object: `{apiVersion: v1, kind: Service, metadata: {name: a, namespace: default},
				spec: {type: LoadBalancer, ports: [{port: 1}]}}`,
			status: `{"loadBalancer":{"ingress":[{"ip":"10.1.1.1","ipMode":"VIP"}]}}`,
		},
		{
			name: "Pod",
			object: `{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: default},
				spec: {schedulerName: none, containers: [{name: c, image: none}]}}`,
			status: `{"message":"changed"}`,
		},
		{
			name:   "Node",
			object: `{apiVersion: v1, kind: Node, metadata: {name: a}}`,
			status: `{"phase":"Running"}`,
		},
		{
			name: "Deployment",
			object: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: default},
				spec: {paused: true, replicas: 0, selector: {matchLabels: {app: a}}, template: ` + podTemplate + `}}`,
			status: `{"observedGeneration":1,"collisionCount":3}`,
		},
		{
			name: "StatefulSet",
			object: `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a, namespace: default},
				spec: {replicas: 0, selector: {matchLabels: {app: a}}, template: ` + podTemplate + `}}`,
			status: `{"replicas":0,"observedGeneration":1,"currentRevision":"x"}`,
		},
		{
			name: "Job",
			object: `{apiVersion: batch/v1, kind: Job, metadata: {name: a, namespace: default},
				spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: none}]}}}}`,
			status: `{"ready":0}`,
		},
		{
			name: "PersistentVolumeClaim",
			object: `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, namespace: default},
				spec: {storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`,
			status: `{"phase":"Pending"}`,
		},
		{
			name: "Ingress",
			object: `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a, namespace: default},
				spec: {defaultBackend: {service: {name: a, port: {number: 1}}}}}`,
			status: `{"loadBalancer":{"ingress":[{"ip":"10.1.1.1"}]}}`,
		},
		{
			name:   "Namespace",
			object: `{apiVersion: v1, kind: Namespace, metadata: {name: a}}`,
			status: `{"phase":"Active"}`,
		},
		{
			name: "custom resource",
			object: `{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, namespace: default},
				spec: {size: 1}}`,
			status: `{"size":2}`,
		},
		{
			name: "approval of a request",
			object: `{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: a},
				spec: {signerName: example.com/none, usages: [client auth], request: ` + request + `}}`,
			subresource: "approval",
			status:      `{"conditions":[{"type":"Approved","status":"True","reason":"Test"}]}`,
		},
	} {
		for _, operation := range []wire.Operation{wire.Update, wire.Patch} {
			t.Run(fmt.Sprintf("%s, %s", tt.name, operation), func(t *testing.T) {
				u := apply(t, tt.object)
				typ, err := c.Resolve(t.Context(),
					plan.ResourceKey{Type: strings.ToLower(u.GetKind()), Group: u.GroupVersionKind().Group})
				if err != nil {
					t.Fatal(err)
				}
				subresource := "status"
				if tt.subresource != "" {
					subresource = tt.subresource
				}
				resource := dynamic.ResourceInterface(live.Resource(typ.Resource))
				if typ.Namespaced {
					resource = live.Resource(typ.Resource).Namespace(u.GetNamespace())
				}
				// A controller of the control plane may write the object in between.
				for range 10 {
					if u, err = resource.Get(t.Context(), u.GetName(), metav1.GetOptions{}); err != nil {
						t.Fatal(err)
					}
					if foreseen(t, c, resource, typ, u, operation, subresource, tt.status, string(owner.GetUID())) {
						return
					}
				}
				t.Error("the object was written by others each time")
			})
		}
	}
}

// foreseen compares the forecast with the outcome. It returns false if another client has written the object.
func foreseen(t *testing.T, c *objects.Client, resource dynamic.ResourceInterface, typ objects.Type,
	u *unstructured.Unstructured, operation wire.Operation, subresource, status, owner string) bool {
	t.Helper()
	changes := map[string]any{"metadata": map[string]any{
		"resourceVersion": u.GetResourceVersion(),
		"labels":          map[string]any{"changed": string(operation)},
		"annotations":     map[string]any{"example.com/changed": string(operation)},
		"finalizers":      []any{"example.com/" + string(operation)},
		"ownerReferences": []any{map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": owner,
		}},
	}}
	var sent map[string]any
	if err := json.Unmarshal([]byte(status), &sent); err != nil {
		t.Fatal(err)
	}
	changes["status"] = sent
	w := objects.Write{
		Resource: typ.Resource, Namespace: u.GetNamespace(), Name: u.GetName(), Subresource: subresource,
		Operation: operation,
	}
	body := u.DeepCopy()
	if operation == wire.Update {
		meta, _ := body.Object["metadata"].(map[string]any)
		maps.Copy(meta, changes["metadata"].(map[string]any))
		all, _ := body.Object["status"].(map[string]any)
		if all = maps.Clone(all); all == nil {
			all = map[string]any{}
		}
		maps.Copy(all, sent)
		body.Object["status"] = all
		data, err := json.Marshal(body.Object)
		if err != nil {
			t.Fatal(err)
		}
		w.Body = data
		if body, err = objects.DecodeJSON(data); err != nil {
			t.Fatal(err)
		}
	} else {
		data, err := json.Marshal(changes)
		if err != nil {
			t.Fatal(err)
		}
		w.PatchType, w.Patch = wire.MergePatch, data
	}
	old, forecast, err := c.Foresee(t.Context(), w)
	before, decodeErr := objects.DecodeJSON(old)
	if decodeErr != nil || before.GetResourceVersion() != u.GetResourceVersion() {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	var got *unstructured.Unstructured
	if operation == wire.Update {
		got, err = resource.Update(t.Context(), body, metav1.UpdateOptions{}, subresource)
	} else {
		got, err = resource.Patch(t.Context(), u.GetName(), types.MergePatchType, w.Patch, metav1.PatchOptions{},
			subresource)
	}
	if apierrors.IsConflict(err) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	want, err := objects.DecodeJSON(forecast)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, key := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
		x, _, _ := unstructured.NestedFieldNoCopy(want.Object, "metadata", key)
		y, _, _ := unstructured.NestedFieldNoCopy(got.Object, "metadata", key)
		before, _, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", key)
		if diff := cmp.Diff(y, x); diff != "" {
			t.Errorf("%s (-API server +forecast):\n%s", key, diff)
		}
		if !cmp.Equal(y, before) {
			kept = append(kept, key)
		}
	}
	for _, key := range []string{"spec", "status"} {
		if diff := cmp.Diff(got.Object[key], want.Object[key]); diff != "" {
			t.Errorf("%s (-API server +forecast):\n%s", key, diff)
		}
	}
	t.Logf("takes %v", kept)
	return true
}
