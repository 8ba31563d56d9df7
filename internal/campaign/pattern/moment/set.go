// Package moment says what a workload offers to plans that strike at it: its changes without faults, triggers that wait
// for them, and where the controllers and API servers are.
//
// History, undone, trace and shown say what happens, and count in how many runs. Transition, state and trigger make
// triggers of that. A Set holds both and the topology.
package moment

import (
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// Set describes what a workload offers to plans: what happens without faults, how a trigger waits for each change,
// and where the controllers and the API servers are. Patterns read it and do not change it.
type Set struct {
	Triggers
	Topology
	Steps []plan.Step // of the workload
}

// New describes the baseline's workload. It has these steps if there are any, or else those in the suite.
func New(suite *plan.Suite, b *baseline.Baseline, steps []plan.Step) *Set {
	if len(steps) == 0 {
		steps = suite.Workloads[b.Workload].Steps
	}
	return &Set{Triggers{History: NewHistory(b)}, Topology{suite}, steps}
}

// Server is the first API server of the cluster in which a change's object is.
func (m *Set) Server(i int) string { return m.Servers(m.Cluster(i))[0] }

// Limit is how long a plan holds calls at most: twice the usual time and more, but at most three quarters of the
// suite's timeouts.hold, at which the run would release them. If the usual time is longer than that, rule says why
// there can be no plan; otherwise it is empty.
func (m *Set) Limit(usual, more time.Duration) (limit time.Duration, rule string) {
	most := m.Suite.Timeouts.Hold * 3 / 4
	if usual > most {
		return 0, "it would be held for longer than timeouts.hold of the suite allows"
	}
	return min(more+2*usual, most), ""
}

// Window ends a fault after a time, when the controllers have done what they do under it. So a slow controller feels
// the fault too. It ends before a call that is held then has to go on.
func (m *Set) Window(d time.Duration) *build.Condition {
	end := build.Timeout(d).Named("later")
	if more := min(9*d, m.Suite.Timeouts.Hold*3/4-d); more > 0 {
		end.Extend(more)
	}
	return end
}
