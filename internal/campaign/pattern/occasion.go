package pattern

import (
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// driftAfter is how long after the controller's last write, and after the workload, the steady state begins.
const driftAfter = time.Second

// steadyState is the label of the occasion at which the controller has done its work.
const steadyState = "steady"

// occasion is when another client writes.
type occasion struct {
	change int           // of the controller
	wait   time.Duration // after that write; 0: until the controller has seen it
	words  string
	label  string // in signatures
}

// steady is when a controller has done its work. If its last write is not the same in all runs without faults, it is
// the last one that is, and some time.
func steady(m *moment.Set, by string) occasion {
	writes := m.Writes[by]
	o := occasion{writes[len(writes)-1], driftAfter, "in the steady state", steadyState}
	for _, i := range slices.Backward(writes) {
		written, rule := m.When(moment.At("moment", plan.AfterControllerWrite, by), moment.Start, i)
		if rule != "" {
			continue
		}
		o.change = i
		for r, at := range written.Runs {
			o.wait = max(o.wait, driftAfter+max(m.Runs[r].UntilLastWrite(at, by), untilEnd(m, r, at)))
		}
		break
	}
	return o
}

// steadies returns when each controller has done its work.
func steadies(m *moment.Set) map[string]occasion {
	all := map[string]occasion{}
	for by := range m.Writes {
		all[by] = steady(m, by)
	}
	return all
}

// untilEnd is the time from a change to the end of the workload in a run without faults, rounded up. It is zero if that
// is unknown, or if the change came after the end.
func untilEnd(m *moment.Set, run, change int) time.Duration {
	if len(m.Baseline.Courses) != len(m.Runs) {
		return 0
	}
	return max(0, moment.RoundUp(m.Baseline.Courses[run].Ended.Sub(m.Runs[run].Changes[change].Time)))
}

// disturb is a plan in which another client writes at an occasion.
func disturb(m *moment.Set, o occasion, by, signature, why string, action *build.Action) draft {
	d := draft{signature: signature + " " + o.label, why: why + ", " + o.words, chance: 1}
	t, rule := trigger(m, o, by)
	if d.dropped = rule; rule == "" {
		d.actions = []*build.Action{action.When(t)}
	}
	return d
}

// trigger waits for an occasion: the controller's write is complete and the controller has seen it. Between the two,
// the controller cannot distinguish the other client's change from its own. If the controller does not take in its
// write, or not in the same way in all runs without faults, the other client waits for some time instead.
func trigger(m *moment.Set, o occasion, by string) (t build.Trigger, rule string) {
	written, rule := m.When(moment.At("moment", plan.AfterControllerWrite, by), moment.Start, o.change)
	if rule != "" {
		return nil, rule
	}
	if o.wait == 0 {
		if seen, ok := takenIn(m, o.change, by); ok {
			return build.Both(written.Trigger, seen.Trigger), ""
		}
	}
	return build.Sequence(written.Trigger, build.Timeout(max(o.wait, driftAfter)).Named("later")), ""
}

// takenIn is when a controller takes in a change. It is false if the controller does not, or not in the same way in all
// runs.
func takenIn(m *moment.Set, i int, by string) (seen moment.Moment, ok bool) {
	if !slices.Contains(m.Changes[i].Taken, by) {
		return moment.Moment{}, false
	}
	seen, rule := m.Direct(moment.At("seen", plan.AfterControllerRecv, by), moment.Start, i)
	return seen, rule == ""
}
