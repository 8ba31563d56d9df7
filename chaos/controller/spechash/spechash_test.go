package spechash

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// The seed is that of the spec, or another one for each disruption, which is the same after the status was lost. The
// seed of a disruption in another cluster is written there.
func TestSeed(t *testing.T) {
	seen := map[int64]bool{}
	for i := range 1000 {
		d := &chaos.Disruption{}
		d.UID = types.UID(fmt.Sprint("uid-", i))
		first, again := seed(d), seed(d)
		if *first != *again {
			t.Errorf("%s: %d, and then %d", d.UID, *first, *again)
		}
		seen[*first] = true
	}
	if len(seen) < 999 {
		t.Errorf("%d different seeds of 1000", len(seen))
	}
	given := int64(7)
	d := &chaos.Disruption{Spec: chaos.DisruptionSpec{Seed: &given}}
	if got := seed(d); got == nil || *got != 7 {
		t.Errorf("seed %v, want that of the spec", got)
	}
	remote := &chaos.Disruption{Spec: chaos.DisruptionSpec{RemoteCluster: &chaos.RemoteTarget{}}}
	if got := seed(remote); got != nil {
		t.Errorf("seed %d although another cluster writes it", *got)
	}
}
