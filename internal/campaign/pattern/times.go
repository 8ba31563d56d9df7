package pattern

import (
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
)

// calmBefore is how long nothing happens, at least, before a change that a timer causes: much longer than the run's
// clock is late, and than a controller works.
const calmBefore = time.Second

// times says when a workload and its controllers do something, by the clock of the runs.
type times struct{ *moment.Set }

// known reports whether the times of all runs are known.
func (t times) known() bool {
	return t.Baseline.Virtual && len(t.Baseline.Courses) == len(t.Runs) &&
		!slices.ContainsFunc(t.Baseline.Courses, func(c facts.Course) bool { return len(c.Steps) != len(t.Steps) })
}

// calm is how long nothing had happened in a run before one of its changes: no other change, and no new step of the
// workload.
func (t times) calm(r, i int) time.Duration {
	changes := t.Runs[r].Changes
	at := changes[i].Time
	var last time.Time
	if i > 0 {
		last = changes[i-1].Time
	}
	if k := t.Baseline.Courses[r].StepAt(at); k >= 0 && t.Baseline.Courses[r].Steps[k].Started.After(last) {
		last = t.Baseline.Courses[r].Steps[k].Started
	}
	if last.IsZero() {
		return 0
	}
	return at.Sub(last)
}

// jumpedBefore reports whether the workload let the clock jump in the time without events before a change.
func (t times) jumpedBefore(i int) bool {
	k := t.Baseline.Courses[0].StepAt(t.Changes[i].Time)
	return k >= 0 && t.Steps[k].AdvanceTime > 0 && t.calm(0, i) >= t.Steps[k].AdvanceTime
}

// jumpBetween reports whether the workload let the clock jump between two moments of the first run.
func (t times) jumpBetween(from, to time.Time) bool {
	for k, s := range t.Baseline.Courses[0].Steps {
		if t.Steps[k].AdvanceTime > 0 && s.Started.After(from) && s.Started.Before(to) {
			return true
		}
	}
	return false
}

// impatient says why a change cannot come so much later. It does so if a restarted controller counts the time anew,
// which is not a bug. The rule is empty if everything waits long enough.
func (t times) impatient(i int, late time.Duration) (rule string) {
	const reserve = 10 * time.Second
	late += reserve
	if late > t.Suite.Timeouts.Rest {
		return "a controller that counts the time anew would not be waited for that long"
	}
	if t.overtaken(i, late) {
		return "something else happens before a controller would be done that counts the time anew"
	}
	c := t.Baseline.Courses[0]
	at := t.Changes[i].Time
	if at.After(c.Ended) {
		return ""
	}
	for _, s := range t.Steps[max(0, t.Baseline.Courses[0].StepAt(at)):] {
		if s.Wait == nil || s.OnTimeout == plan.OnTimeoutContinue {
			continue
		}
		limit := s.Wait.Timeout
		if limit == 0 {
			limit = t.Suite.Timeouts.Step
		}
		if late > limit {
			return "a controller that counts the time anew would be too late for a step of the workload"
		}
	}
	return ""
}

// overtaken reports whether another client acts within a time after a change, and not because of it: a step of the
// workload that comes after a sleep, or what comes after a time in which nothing happens. What the controller does may
// depend on which of the two comes first.
func (t times) overtaken(i int, within time.Duration) bool {
	changes := t.Changes
	end := changes[i].Time.Add(within)
	began := t.Baseline.Courses[0].Steps
	if k := t.Baseline.Courses[0].StepAt(changes[i].Time); k >= 0 && t.Steps[k].Sleep > 0 && k+1 < len(began) &&
		t.Steps[k+1].Wait == nil && began[k+1].Started.Before(end) {
		return true
	}
	for k := i + 1; k < len(changes) && changes[k].Time.Before(end); k++ {
		if changes[k].By != changes[i].By && changes[k].Time.Sub(changes[k-1].Time) >= calmBefore {
			return true
		}
	}
	return false
}

// jumpOf is the step that lets the clock jump and that a later step may show the effects of: there is nothing between
// them but waitint. -1: there is none.
func (t times) jumpOf(k int) int {
	for ; k >= 0 && t.Steps[k].AdvanceTime == 0; k-- {
		if t.Steps[k].Sleep == 0 && t.Steps[k].Wait == nil {
			return -1
		}
	}
	return k
}

// again reports whether enough time passes after the k-th step for a controller that was restarted then, and counts the
// time anew.
func (t times) again(k int) bool {
	need := t.Steps[k].AdvanceTime
	var longest time.Duration
	for _, p := range t.Baseline.Polls {
		longest = max(longest, p.Delay)
	}
	if longest > 0 {
		need = min(need, longest)
	}
	return slices.ContainsFunc(t.Steps[k+1:], func(s plan.Step) bool { return s.AdvanceTime >= need })
}
