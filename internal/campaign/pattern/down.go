package pattern

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

var down = Pattern{
	Name: "down", Finds: "what is missed while the controller is down", chance: 2, drafts: startLater,
}

// downFor is how much longer than twice the usual time a controller is down at most. The workload may wait for it.
const downFor = 30 * time.Second

// startLater kills the controller after each of its effective writes, and starts it again only when the workload has
// gone on without it: after its next change, and after its last one.
func startLater(m *moment.Set) (all drafts) {
	if len(m.Baseline.Courses) != len(m.Runs) || len(m.Baseline.Courses[0].Steps) != len(m.Steps) {
		return nil // it is not known when the steps began
	}
	for i := range m.Changes {
		if m.Changes[i].By == "" {
			continue
		}
		ends := withoutIt(m, i)
		if len(ends) > 2 {
			ends = []int{ends[0], ends[len(ends)-1]}
		}
		for _, u := range ends {
			all = append(all, downUntil(m, i, u))
		}
	}
	return all
}

func downUntil(m *moment.Set, i, u int) draft {
	by := m.Changes[i].By
	d := draft{
		signature: m.Signature(i) + " / " + m.Signature(u), chance: 0.5,
		why: fmt.Sprintf("%s is killed right after its own write: %s; and started again only after: %s", by,
			m.Describe(i), m.Describe(u)),
	}
	written, done, rule := m.Both(
		i, moment.At("written", plan.AfterControllerWrite, by),
		u, moment.At("done", plan.AfterAPIServerRecv, m.Server(u)),
	)
	if d.dropped = rule; rule != "" {
		return d
	}
	if m.GoesOn(i) || m.Deletes(u) {
		d.chance = 1
	}
	late := build.Timeout(downFor + 2*m.Runs.Longest(written.Occurrence, done.Occurrence)).Named("late")
	d.actions = []*build.Action{
		build.KillController(by).When(written.Trigger),
		build.StartController(by).When(build.Either(done.Trigger, late)),
	}
	return d
}

// withoutIt lists the changes that the workload makes after a controller's change without waiting for the controller,
// and that it does not undo while the controller is down. A controller need not do what the workload no longer asks
// for. An object that is deleted and created again is another object, and does count.
func withoutIt(m *moment.Set, i int) []int {
	var ends []int
	steps := m.Baseline.Courses[0].Steps
	waits := false
	for n := m.Baseline.Courses[0].StepAt(m.Changes[i].Time) + 1; n < len(steps); n++ {
		if n > 0 {
			s := &m.Steps[n-1]
			if s.Exec != nil || s.Go != "" {
				return ends // it may wait for anything
			}
			waits = waits || s.Wait != nil && s.OnTimeout != plan.OnTimeoutContinue
		}
		next := m.NextWrite(i, m.Changes[i].By)
		if waits && next >= 0 && m.Changes[next].Time.Before(steps[n].Started) {
			return ends
		}
		u := madeBy(m, n)
		if u < 0 {
			continue
		}
		if slices.ContainsFunc(ends, func(before int) bool {
			return slices.Contains(m.Later(before), u) && !m.Deletes(before) && m.Undoes(before, u) != moment.Still
		}) {
			return ends
		}
		if u > i {
			ends = append(ends, u)
		}
	}
	return ends
}

// madeBy returns the first change that the n-th step of the workload has made, by others than the controllers under
// test, or -1.
func madeBy(m *moment.Set, n int) int {
	s := &m.Steps[n]
	if s.Wait != nil || s.Sleep > 0 || s.AdvanceTime > 0 {
		return -1
	}
	steps := m.Baseline.Courses[0].Steps
	return slices.IndexFunc(m.Changes, func(c facts.Change) bool {
		return c.By == "" && !c.Time.Before(steps[n].Started) &&
			(n+1 == len(steps) || c.Time.Before(steps[n+1].Started))
	})
}
