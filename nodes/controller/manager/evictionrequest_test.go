package manager

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
)

var evictionRequest = schema.GroupVersionKind{
	Group: "lifecycle.k8s.io", Version: "v1alpha1", Kind: "EvictionRequest",
}

func byRequest(s *nodes.CycleNodeRequestSpec) { s.CycleSettings.Method = nodes.MethodEvictionRequest }

// Without the API, a request by this method fails at once, and nothing is touched.
func TestWithoutEvictionRequests(t *testing.T) {
	f := newFixture(t, 1, nil)
	f.start(limits(), false, nil)
	q := f.request("early", byRequest)
	f.ends(q, nodes.RequestFailed)
	if q.Status.Reason != controller.NoEvictionRequests {
		t.Error(q.Status.Reason)
	}
}

// TestEvictionRequests drains nodes by EvictionRequests on Kubernetes 1.37, with its feature gate. This version has the
// API, and not yet the controller that acts on it, which the test stands in for. It runs only with TROMMEL_TEST_LONG,
// because the control plane of this version takes minutes to build.
func TestEvictionRequests(t *testing.T) {
	if os.Getenv("TROMMEL_TEST_LONG") == "" {
		t.Skip("TROMMEL_TEST_LONG is not set; the control plane of Kubernetes 1.37 takes minutes to build")
	}
	version := must(instrumentation.ResolveKubernetesVersion("1.37"))
	built, err := instrumentation.BuildControlPlane(t.Context(), instrumentation.ControlPlaneConfig{
		KubernetesVersion: version,
	})
	if err != nil {
		t.Fatal(err)
	}
	default36, itsAccount, itsCloud := shared, account, cloudForbidden
	t.Cleanup(func() { shared, account, cloudForbidden = default36, itsAccount, itsCloud })
	shared = clustertest.Start(t, embedded.Config{
		Binary: built.Binary, APIServers: 1, Nodes: 1, FeatureGates: map[string]bool{"EvictionRequestAPI": true},
		APIServerArgs: []string{"--runtime-config=lifecycle.k8s.io/v1alpha1=true"},
	})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	install(ctx)

	t.Run("a cycle", func(t *testing.T) {
		f := newFixture(t, 2, nil)
		f.drainable()
		f.respond()
		p := f.start(limits(), false, nil)
		f.ends(f.request("whole", byRequest), nodes.RequestSuccessful)
		p.stop()
		if f.podNow("drainable") != nil {
			t.Error("the pod is still there")
		}
		f.none()
		step := 7
		if long() {
			step = 1
		}
		t.Run("killed", func(t *testing.T) {
			atOnce(t, killedAt(p.count(), step, func(t *testing.T) *fixture {
				f := newFixture(t, 2, nil)
				f.drainable()
				f.respond()
				return f
			}, byRequest, func(f *fixture) {
				f.t.Helper()
				if f.podNow("drainable") != nil {
					f.t.Error("the pod is still there")
				}
				f.none()
			}))
		})
	})
	t.Run("withdrawn", func(t *testing.T) {
		f := newFixture(t, 1, nil)
		f.drainable()
		p := f.start(limits(), false, nil)
		q := f.request("withdrawn", byRequest)
		f.child(q, "these pods cannot be evicted: "+f.namespace+"/drainable (no controller has seen EvictionRequest ")
		made := f.evictionRequests()
		if len(made) != 1 {
			t.Fatalf("%d EvictionRequests", len(made))
		}
		spec, _, _ := unstructured.NestedMap(made[0].Object, "spec")
		if spec["requester"] != "nodes.trommel.dev/node-cycling" || spec["intent"] != "Eviction" {
			t.Errorf("%v", spec)
		}
		p.stop() // others withdraw it
		f.start(limits(), false, nil)
		f.delete(q)
		f.gone(q)
		f.none()
		if pod := f.podNow("drainable"); pod == nil || pod.DeletionTimestamp != nil {
			t.Errorf("%+v", pod)
		}
	})
	t.Run("refused", func(t *testing.T) {
		f := newFixture(t, 1, nil)
		f.drainable()
		f.start(limits(), false, nil)
		q := f.request("refused", byRequest)
		f.child(q, "no controller has seen EvictionRequest ")
		f.answer(&f.evictionRequests()[0], "True", "NoFurtherResponder", "nobody could")
		f.child(q, "has failed: NoFurtherResponder: nobody could")
		f.delete(q)
		f.gone(q)
	})
	t.Run("the controllers' token", func(t *testing.T) {
		controllers := controllersOf(t)
		o := func(requester string) *unstructured.Unstructured {
			u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
				"target": map[string]any{"pod": map[string]any{
					"name": "p", "uid": "11111111-2222-3333-4444-555555555555"}},
				"requester": requester, "intent": "Eviction",
			}}}
			u.SetGroupVersionKind(evictionRequest)
			u.SetNamespace("default")
			u.SetName("token")
			return u
		}
		inForce(t, func(ctx context.Context) error {
			return answered(controllers.Create(ctx, o("example.org/somebody"), client.DryRunAll),
				"may only make and delete their own EvictionRequests")
		})
		if err := controllers.Create(t.Context(), o("nodes.trommel.dev/node-cycling"), client.DryRunAll); err != nil {
			t.Error(err)
		}
		other := o("example.org/somebody")
		if err := as("").Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		if err := answered(controllers.Delete(t.Context(), other),
			"may only make and delete their own EvictionRequests"); err != nil {
			t.Error(err)
		}
	})
}

// evictionRequests lists those of the fixture's namespace.
func (f *fixture) evictionRequests() []unstructured.Unstructured {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(evictionRequest.GroupVersion().WithKind(evictionRequest.Kind + "List"))
	if err := f.List(context.Background(), list, client.InNamespace(f.namespace)); err != nil {
		f.t.Error(err)
	}
	return list.Items
}

// none waits until no EvictionRequest is left.
func (f *fixture) none() {
	f.t.Helper()
	clustertest.Eventually(f.t, func(context.Context) error {
		if left := f.evictionRequests(); len(left) > 0 {
			return fmt.Errorf("%d EvictionRequests are left: %v", len(left), left[0].Object)
		}
		return nil
	})
}

// answer writes what Kubernetes says about an EvictionRequest.
func (f *fixture) answer(o *unstructured.Unstructured, failed, reason, message string) {
	f.t.Helper()
	o.Object["status"] = map[string]any{
		"observedGeneration": int64(1),
		"conditions": []any{map[string]any{
			"type": "Failed", "status": failed, "reason": reason, "message": message,
			"lastTransitionTime": metav1.Now().UTC().Format(time.RFC3339),
		}},
	}
	if err := f.Status().Update(f.t.Context(), o); err != nil {
		f.t.Error(err)
	}
}

// respond does what Kubernetes does with EvictionRequests, until the end of the test: it evicts their pods.
func (f *fixture) respond() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	f.t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, o := range f.evictionRequests() {
				name, _, _ := unstructured.NestedString(o.Object, "spec", "target", "pod", "name")
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}}
				_ = f.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{}) // it may be gone
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
}
