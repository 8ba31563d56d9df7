package manager

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
)

// TestTTLAfterFinished makes requests that are deleted, with their statuses, when they have ended for long enough: also
// those that ended when no controllers ran.
func TestTTLAfterFinished(t *testing.T) {
	f := newFixture(t, 2, nil)
	p := f.start(limits(), false, nil)
	kept := f.request("kept", concurrently(2))
	f.ends(kept, nodes.RequestSuccessful)
	ttl := func(ttl string) func(*nodes.CycleNodeRequestSpec) {
		return func(s *nodes.CycleNodeRequestSpec) {
			concurrently(2)(s)
			s.TTLAfterFinished = "1s"
			if ttl != "" {
				s.NodeNames = []string{ttl} // it fails
			}
		}
	}
	q := f.request("short", ttl(""))
	f.gone(q)
	failing := f.request("failing", ttl("nowhere"))
	f.await(failing, "ended", func(q *nodes.CycleNodeRequest) bool { return controller.Ended(q.Status.Phase) })
	p.stop()
	f.start(limits(), false, nil)
	f.gone(failing)
	if err := f.Get(t.Context(), client.ObjectKeyFromObject(kept), kept); err != nil {
		t.Error(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		var list nodes.CycleNodeStatusList
		if err := f.List(ctx, &list, client.InNamespace(f.namespace)); err != nil {
			return err
		}
		for _, s := range list.Items {
			if s.Spec.Request != "kept" {
				return fmt.Errorf("status %s is left", s.Name)
			}
		}
		return nil
	})
	if err := f.Get(t.Context(), client.ObjectKeyFromObject(q), q); !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
}
