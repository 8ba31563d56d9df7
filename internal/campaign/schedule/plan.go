package schedule

import (
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/result"
)

// Plan is a plan that a campaign may run.
type Plan struct {
	Name     string
	Key      string        // changes with whatever could change the outcome
	Workload string        // plans of one workload are dropped together
	Estimate time.Duration // how long one run takes; 0: unknown
	// Known is what the plan's first run has found, if the plan waits to be confirmed.
	Known *result.Outcome
	// Before is the outcome that an earlier campaign left to be confirmed. It counts until there is a newer one.
	Before *result.Outcome

	begun bool          // a worker has taken it
	cost  time.Duration // Estimate, or that of an average plan
}
