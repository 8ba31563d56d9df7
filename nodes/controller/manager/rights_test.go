package manager

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

// TestNothingIsForbidden lets replicas that elect a leader carry out a cycle with no other rights than those of the
// manifests, which the managers of all tests have. The simulated cloud has them, too.
func TestNothingIsForbidden(t *testing.T) {
	// A request that is forbidden is seen.
	to, forbidden := account.Recorded()
	c := must(client.New(to, client.Options{Scheme: newScheme()}))
	if err := c.List(t.Context(), &corev1.SecretList{}); !apierrors.IsForbidden(err) || len(forbidden.List()) != 1 {
		t.Fatalf("the account may list secrets: %v, %v", err, forbidden.List())
	}

	f := newFixture(t, 2, nil)
	f.elects = true
	earlier := map[types.UID]bool{}
	var before corev1.EventList
	if err := f.List(t.Context(), &before, client.InNamespace("trommel-nodes")); err != nil {
		t.Fatal(err)
	}
	for _, e := range before.Items {
		earlier[e.UID] = true
	}
	f.drainable()
	for i := range 2 {
		p := f.start(limits(), false, nil)
		q := f.request(fmt.Sprintf("rights-%d", i), func(s *nodes.CycleNodeRequestSpec) {
			s.CycleSettings.LabelsToRemove = []string{"app"}
		})
		f.ends(q, nodes.RequestSuccessful)
		clustertest.Eventually(t, func(ctx context.Context) error {
			var list corev1.EventList
			if err := f.List(ctx, &list, client.InNamespace("trommel-nodes")); err != nil {
				return err
			}
			leaders := 0
			for _, e := range list.Items {
				if !earlier[e.UID] && e.Reason == "LeaderElection" && strings.Contains(e.Message, "became leader") {
					leaders++
				}
			}
			if leaders != i+1 {
				return fmt.Errorf("events of %d leaders, want %d", leaders, i+1)
			}
			return nil
		})
		p.stop()
	}
	for _, f := range cloudForbidden.List() {
		t.Errorf("the manifests do not allow the simulated cloud: %s", f)
	}
}
