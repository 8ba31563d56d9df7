package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
	"github.com/trommel-dev/trommel/chaos/inject/simulated"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// simulatedInjection makes an injection at a simulated node, with the notes that another one has left.
func simulatedInjection(t *testing.T, notes *inject.Notes, kind, spec string, target inject.Target) inject.Injection {
	t.Helper()
	i, err := simulated.New(func() (*rest.Config, error) { return shared.RESTConfig("") }).New(inject.Request{
		Kind: v1alpha1.Kind(kind), Spec: json.RawMessage(spec), Disruption: target.Namespace + "/test",
		DisruptionUID: "d", Target: target,
	}, notes)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func isNodeReady(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func awaitNode(t *testing.T, name string, want corev1.ConditionStatus) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	clustertest.Eventually(t, func(ctx context.Context) error {
		var err error
		node, err = client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && isNodeReady(node) != want {
			err = fmt.Errorf("node %s: Ready is %q, want %q", name, isNodeReady(node), want)
		}
		return err
	})
	return node
}

// simulatedSet creates a StatefulSet with one simulated pod, and returns it when it is ready.
func simulatedSet(t *testing.T, ns string) *corev1.Pod {
	t.Helper()
	one, labels := int32(1), map[string]string{"app": "web"}
	_, err := client.AppsV1().StatefulSets(ns).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &one, ServiceName: "web", Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.AppsV1().StatefulSets(ns).Delete(context.Background(), "web", metav1.DeleteOptions{})
	})
	return pods.Await(t, ns, "web-0", "ready", clustertest.IsReady)
}

func TestNodeFailure(t *testing.T) {
	ns, ctx := pods.Namespace(t), t.Context()
	pod := simulatedSet(t, ns)
	node := awaitNode(t, pod.Spec.NodeName, corev1.ConditionTrue)
	target := inject.Target{NodeLevel: true, UID: node.UID, Node: node.Name, Namespace: ns}
	other := "node-1"
	if node.Name == other {
		other = "node-2"
	}
	for _, mode := range []string{"notReady", "gone"} {
		t.Run(mode, func(t *testing.T) {
			notes := &inject.Notes{}
			spec := `{"mode":"` + mode + `"}`
			node := awaitNode(t, node.Name, corev1.ConditionTrue)
			target.UID = node.UID
			i := simulatedInjection(t, notes, "nodeFailure", spec, target)
			t.Cleanup(func() { _ = i.Clean(context.Background()) })
			if err := i.Check(ctx); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if err := i.Inject(ctx); err != nil {
				t.Fatal(err)
			}
			t.Logf("in effect after %v", time.Since(start))
			if mode == "gone" {
				if _, err := client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{}); err == nil {
					t.Error("the node is there")
				}
			} else {
				pods.Await(t, ns, pod.Name, "not ready", func(p *corev1.Pod) bool { return !clustertest.IsReady(p) })
				// The node lifecycle controller believes it. KWOK would have repaired it meanwhile.
				clustertest.Eventually(t, func(ctx context.Context) error {
					n, err := client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
					if err != nil {
						return err
					}
					for _, taint := range n.Spec.Taints {
						if taint.Key == corev1.TaintNodeUnreachable {
							return nil
						}
					}
					return fmt.Errorf("taints: %+v", n.Spec.Taints)
				})
				awaitNode(t, node.Name, corev1.ConditionUnknown)
			}
			awaitNode(t, other, corev1.ConditionTrue)
			// Another process cleans up: it has only the journal.
			again := simulatedInjection(t, notes, "nodeFailure", spec, target)
			for range 2 {
				if err := again.Clean(ctx); err != nil {
					t.Fatal(err)
				}
			}
			now := awaitNode(t, node.Name, corev1.ConditionTrue)
			if now.Annotations["kwok.x-k8s.io/node"] == "" || now.Status.Capacity.Pods().IsZero() {
				t.Errorf("the node afterwards: %+v", now)
			}
			clustertest.Eventually(t, func(ctx context.Context) error {
				n, err := client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
				if err == nil && len(n.Spec.Taints) > 0 {
					err = fmt.Errorf("taints: %+v", n.Spec.Taints)
				}
				return err
			})
			if mode != "gone" {
				pods.Await(t, ns, pod.Name, "ready", clustertest.IsReady)
			}
		})
	}
	t.Run("unsupported", func(t *testing.T) {
		name := shared.Processes().NodeName()
		i := simulatedInjection(t, &inject.Notes{}, "nodeFailure", `{}`,
			inject.Target{NodeLevel: true, UID: "x", Node: name})
		if err := i.Check(ctx); !errors.Is(err, inject.ErrUnsupported) {
			t.Errorf("got %v", err)
		}
	})
}

func TestPodReplacement(t *testing.T) {
	ns, ctx := pods.Namespace(t), t.Context()
	pod := simulatedSet(t, ns)
	target := inject.Target{Namespace: ns, Pod: pod.Name, UID: pod.UID, Node: pod.Spec.NodeName}
	i := simulatedInjection(t, &inject.Notes{}, "podReplacement", `{"gracePeriod":"0s"}`, target)
	t.Cleanup(func() { _ = i.Clean(context.Background()) })
	if err := errors.Join(i.Check(ctx), i.Inject(ctx)); err != nil {
		t.Fatal(err)
	}
	now := pods.Await(t, ns, pod.Name, "ready", clustertest.IsReady)
	if now.UID == pod.UID || now.Spec.NodeName == pod.Spec.NodeName {
		t.Errorf("the pod %s on %s was replaced by %s on %s", pod.UID, pod.Spec.NodeName, now.UID, now.Spec.NodeName)
	}
	for range 2 {
		if err := i.Clean(ctx); err != nil {
			t.Error(err)
		}
	}
	node, err := client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	if err != nil || node.Spec.Unschedulable || node.Annotations["chaos.trommel.dev/cordoned-by"] != "" {
		t.Errorf("the node afterwards: %+v, %v", node.Spec, err)
	}
	target.UID = types.UID("other")
	if err := simulatedInjection(t, &inject.Notes{}, "podReplacement", `{}`, target).Check(ctx); err == nil {
		t.Error("another pod with its name is accepted")
	}
}
