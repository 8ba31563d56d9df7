package manager

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
)

// protected lists the Nodes of the group that have both annotations against autoscalers.
func (f *fixture) protected() map[string]bool {
	f.t.Helper()
	_, _, list := f.now()
	names := map[string]bool{}
	for _, n := range list {
		if n.Annotations[controller.AnnotationScaleDownDisabled] == "true" &&
			n.Annotations[controller.AnnotationDoNotDisrupt] == "true" {
			names[n.Name] = true
		}
	}
	return names
}

// TestProtectedFromAutoscalers looks at the Nodes of a request that waits for a pod of an old node: the new one is
// protected, and no other. A user's annotation stays when the request ends.
func TestProtectedFromAutoscalers(t *testing.T) {
	f := newFixture(t, 2, nil)
	names := f.nodeNames()
	f.changeNode(names[1], func(n *corev1.Node) { n.Annotations[controller.AnnotationScaleDownDisabled] = "true" })
	pod := f.pod("waited", names[0], nil)
	f.start(limits(), false, nil)
	q := f.request("protected", func(s *nodes.CycleNodeRequestSpec) {
		wait(s)
		some(names[0])(s)
	})
	f.child(q, "waits until these pods end: "+f.namespace+"/waited")
	fresh := f.namespace + "-0003"
	if got := f.protected(); len(got) != 1 || !got[fresh] {
		t.Errorf("protected: %v, want %s", got, fresh)
	}
	// A user wants the new node to stay.
	f.changeNode(fresh, func(n *corev1.Node) {
		n.Annotations[controller.AnnotationDoNotDisrupt] = "forever"
	})
	f.delete(pod)
	f.ends(q, nodes.RequestSuccessful)
	_, _, list := f.now()
	for _, n := range list {
		down, disrupt := n.Annotations[controller.AnnotationScaleDownDisabled],
			n.Annotations[controller.AnnotationDoNotDisrupt]
		switch n.Name {
		case names[1]:
			if down != "true" || disrupt != "" {
				t.Errorf("the old node: %v", n.Annotations)
			}
		case fresh:
			if down != "" || disrupt != "forever" {
				t.Errorf("the new node: %v", n.Annotations)
			}
		}
	}
}

// TestUnprotectedAfterCrash lets the controllers die when they have protected a Node. Meanwhile the request is deleted
// by force. Others find the annotations that it has left.
func TestUnprotectedAfterCrash(t *testing.T) {
	f := newFixture(t, 2, nil)
	p := f.start(limits(), false, func(_ int, _ *http.Request, body []byte) bool {
		return strings.Contains(string(body), `"phase":"CordoningNode"`)
	})
	q := f.request("forced", concurrently(1))
	<-p.ended
	p.stop()
	if got := f.protected(); len(got) != 1 {
		t.Fatalf("protected: %v", got)
	}
	q = f.latest(q)
	q.Finalizers = nil
	if err := f.Update(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	f.delete(q)
	f.gone(q)
	f.start(limits(), false, nil)
	clustertest.Eventually(t, func(context.Context) error {
		if got := f.protected(); len(got) > 0 {
			return fmt.Errorf("protected: %v", got)
		}
		return nil
	})
	_, _, list := f.now()
	for _, n := range list {
		if by := controller.ProtectedBy(n); len(by) > 0 {
			t.Errorf("node %s: %v", n.Name, by)
		}
	}
	// Now they are whole again.
	f.ends(f.request("next", concurrently(1)), nodes.RequestSuccessful)
}
