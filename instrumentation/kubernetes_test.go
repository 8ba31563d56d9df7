package instrumentation_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// TestKubernetesVersions runs the control plane of each Kubernetes version: its components do their work, and its API
// servers can be held before and after they receive an event. TROMMEL_TEST_KUBERNETES lists the versions, separated by
// commas. Default: the default version; each of the others takes minutes to build.
func TestKubernetesVersions(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	for _, v := range strings.Split(os.Getenv("TROMMEL_TEST_KUBERNETES"), ",") {
		version, err := instrumentation.ResolveKubernetesVersion(v)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(version, func(t *testing.T) { testKubernetes(t, version) })
	}
}

func testKubernetes(t *testing.T, version string) {
	ctx := t.Context()
	built, err := instrumentation.BuildControlPlane(ctx, instrumentation.ControlPlaneConfig{KubernetesVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	c, err := embedded.Start(ctx, embedded.Config{Binary: built.Binary, APIServers: 2, Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	config, err := c.RESTConfig("apiserver-1")
	if err != nil {
		t.Fatal(err)
	}
	testServed(t, version, built.Binary, config)
	testLeftOut(t, built.Binary)
	client, custom := kubernetes.NewForConfigOrDie(config), dynamic.NewForConfigOrDie(config)
	other, err := c.RESTConfig("apiserver-2")
	if err != nil {
		t.Fatal(err)
	}
	info, err := client.Discovery().ServerVersion()
	if err != nil || info.GitVersion != version {
		t.Errorf("the API server says it is %v (%v), want %s", info, err, version)
	}

	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	definition := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	if _, err := custom.Resource(definition).Create(ctx, widgetDefinition(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		_, err := custom.Resource(widgets).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		return err
	})

	address, token := c.Rendezvous()
	r := record(t, address, token)
	r.wait("the API server's hook is there", func() bool { return r.sessions["apiserver-1"] != nil })
	r.monitor.SetRules(ctx, map[string][]wire.Rule{"apiserver-1": append(
		bothPhases(wire.Rule{Point: wire.APIServerRecv, Resource: "configmaps", Kind: "configmap",
			Namespace: "default"}),
		bothPhases(wire.Rule{Point: wire.APIServerRecv, Resource: "widgets", Kind: "widget", Group: "example.com",
			Namespace: "default"})...)})

	// A built-in type and a custom one, which the API server represents differently: created, changed and deleted, each
	// held before and after the watch cache receives it.
	for _, resource := range []schema.GroupVersionResource{{Version: "v1", Resource: "configmaps"}, widgets} {
		kind := map[string]string{"configmaps": "ConfigMap", "widgets": "Widget"}[resource.Resource]
		here, there := custom.Resource(resource).Namespace("default"),
			dynamic.NewForConfigOrDie(other).Resource(resource).Namespace("default")
		for _, phase := range []wire.Phase{wire.Before, wire.After} {
			name := strings.ToLower(kind) + "-" + string(phase)
			// The state of the object in the API server's cache: absent, or the value of its label.
			cached := func() string {
				o, err := here.Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
				if apierrors.IsNotFound(err) {
					return "absent"
				}
				if err != nil {
					t.Fatal(err)
				}
				return o.GetLabels()["step"]
			}
			previous := "absent"
			for _, change := range []struct {
				op   wire.Operation
				then string
				do   func() error
			}{
				{wire.Create, "one", func() error {
					o := &unstructured.Unstructured{}
					o.SetAPIVersion(resource.GroupVersion().String())
					o.SetKind(kind)
					o.SetName(name)
					o.SetLabels(map[string]string{"step": "one"})
					_, err := here.Create(ctx, o, metav1.CreateOptions{})
					return err
				}},
				{wire.Update, "two", func() error {
					_, err := here.Patch(ctx, name, types.MergePatchType,
						[]byte(`{"metadata":{"labels":{"step":"two"}}}`), metav1.PatchOptions{})
					return err
				}},
				{wire.Delete, "absent", func() error { return here.Delete(ctx, name, metav1.DeleteOptions{}) }},
			} {
				what := fmt.Sprintf("%s of %s held %s", change.op, name, phase)
				r.holding(func(o *wire.Observation) bool {
					return o.Phase == phase && o.Operation == change.op &&
						o.Name == name
				})
				if err := change.do(); err != nil {
					t.Fatal(err)
				}
				var held monitor.Event
				r.wait(what, func() bool {
					if len(r.held) == 1 {
						held = r.held[0]
					}
					return len(r.held) == 1
				})
				o := held.Observation
				if !strings.EqualFold(o.Kind, kind) || o.Resource != resource.Resource || o.Group != resource.Group ||
					len(o.Object) == 0 || (len(o.OldObject) == 0) != (change.op == wire.Create) {
					t.Errorf("%s: %s", what, describe(held))
				}
				want := previous
				if phase == wire.After {
					want = change.then
				}
				if got := cached(); got != want {
					t.Errorf("%s: its API server's cache has %q, want %q", what, got, want)
				}
				if change.op != wire.Delete {
					if o, err := there.Get(ctx, name, metav1.GetOptions{}); err != nil ||
						o.GetLabels()["step"] != change.then {
						t.Errorf("%s: the other API server has %v, %v", what, o, err)
					}
				}
				r.release()
				clustertest.Eventually(t, func(context.Context) error {
					if got := cached(); got != change.then {
						return fmt.Errorf("%s and released: the cache has %q, want %q", what, got, change.then)
					}
					return nil
				})
				previous = change.then
			}
		}
	}

	// Controller manager, scheduler and KWOK.
	labels := map[string]string{"app": "web"}
	replicas := int32(2)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		},
	}}
	if _, err := client.AppsV1().Deployments("default").Create(ctx, d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		d, err := client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != replicas {
			err = fmt.Errorf("%d of %d replicas are available", d.Status.AvailableReplicas, replicas)
		}
		return err
	})
}

func widgetDefinition() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget",
				"listKind": "WidgetList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
					"x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
}
