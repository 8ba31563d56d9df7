package judge

import (
	"context"

	"github.com/trommel-dev/trommel/record"
)

// eventually judges the invariants that must become true. It does nothing if the run has not waited for them because
// its workload failed.
type eventually struct{}

func (eventually) Is() Traits { return is("eventually", allClusters, wholeRun) }

func (eventually) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	if e.Meta.GivenBack.IsZero() {
		return nil, nil
	}
	return e.Invariants.Eventually(e.History, e.Meta.CaughtUp, e.Meta.GivenBack), nil
}
