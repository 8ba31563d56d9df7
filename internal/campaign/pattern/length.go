package pattern

import (
	"time"

	"github.com/trommel-dev/trommel/plan"
)

// Times for which the length of a run is estimated.
const (
	settleTime  = 2 * time.Second // from the last change to the verdict
	restartTime = 2 * time.Second // until a restarted controller works again
	// takeoverTime is how long it takes until another process leads: client-go's usual lease, and a retry.
	takeoverTime = 17 * time.Second
	// startTime is how long the machine works to start a process.
	startTime = 300 * time.Millisecond
)

// length estimates how much longer a plan makes the run of a workload than from its first change to its last one.
func length(p *plan.Plan) time.Duration { return settleTime + Extra(p, false) }

// Extra estimates how much longer a run is with a plan's actions, by the machine's clock. In virtual time, waiting
// costs nothing.
func Extra(p *plan.Plan, virtual bool) time.Duration {
	var waits, works time.Duration
	for i := range p.Actions {
		a := &p.Actions[i]
		waits += a.WaitBefore + a.WaitAfter
		if plan.Has[*plan.Start](a) || plan.Has[*plan.Upgrading](a) {
			waits += restartTime
			works += startTime
		} else if plan.Has[*plan.Freeze](a) {
			waits += takeoverTime
		}
		for _, t := range a.Trigger.Definitions {
			waits += t.Condition.Timeout
		}
	}
	if virtual {
		return works
	}
	return waits
}
