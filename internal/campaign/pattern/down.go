package pattern

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// downFor is how much longer than twice the usual time a controller is down at most. The workload may wait for it.
const downFor = 30 * time.Second

// down kills the controller after each of its effective writes, and starts it again only when the workload has gone on
// without it: after its next change, and after its last one.
func (g *generator) down() {
	if len(g.ref.Courses) != len(g.runs) || len(g.ref.Courses[0].Steps) != len(g.steps) {
		return // it is not known when the steps began
	}
	for i := range g.ref.Changes {
		if g.ref.Changes[i].By == "" {
			continue
		}
		ends := g.withoutIt(i)
		if len(ends) > 2 {
			ends = []int{ends[0], ends[len(ends)-1]}
		}
		for _, u := range ends {
			g.downUntil(i, u)
		}
	}
}

func (g *generator) downUntil(i, u int) {
	by := g.ref.Changes[i].By
	why := fmt.Sprintf("%s is killed right after its own write: %s; and started again only after: %s", by,
		g.describe(i), g.describe(u))
	signature := g.signature(i) + " / " + g.signature(u)
	written, done, rule := g.both(
		i, point{"written", plan.AfterControllerWrite, by},
		u, point{"done", plan.AfterAPIServerRecv, g.server(u)},
	)
	if rule != "" {
		g.drop(signature, why, rule)
		return
	}
	chance := 0.5
	if g.goesOn(i) || g.deletes(u) {
		chance = 1
	}
	g.addWith(chance, signature, why,
		build.KillController(by).When(written),
		build.StartController(by).When(build.Either(done, build.Timeout(downFor+2*g.between(i, u)).Named("late"))))
}

// withoutIt lists the changes that the workload makes after the i-th change without waiting for the controller that
// has made that one, and that it does not undo while the controller is down: a controller need not do what is not asked
// for any more. What is deleted and created again is another object, and does count.
func (g *generator) withoutIt(i int) []int {
	var ends []int
	steps := g.ref.Courses[0].Steps
	waits := false
	for n := g.ref.Courses[0].StepAt(g.ref.Changes[i].Time) + 1; n < len(steps); n++ {
		if n > 0 {
			s := &g.steps[n-1]
			if s.Exec != nil || s.Go != "" {
				return ends // it may wait, nobody knows for what
			}
			waits = waits || s.Wait != nil && s.OnTimeout != plan.OnTimeoutContinue
		}
		next := g.nextWrite(i, g.ref.Changes[i].By)
		if waits && next >= 0 && g.ref.Changes[next].Time.Before(steps[n].Started) {
			return ends
		}
		u := g.madeBy(n)
		if u < 0 {
			continue
		}
		if slices.ContainsFunc(ends, func(before int) bool {
			return slices.Contains(g.later(before), u) && !g.deletes(before) && g.undoes(before, u) != still
		}) {
			return ends
		}
		if u > i {
			ends = append(ends, u)
		}
	}
	return ends
}

// madeBy is the first change of somebody else than the controllers that the n-th step of the workload has made; -1:
// none.
func (g *generator) madeBy(n int) int {
	s := &g.steps[n]
	if s.Wait != nil || s.Sleep > 0 || s.AdvanceTime > 0 {
		return -1
	}
	steps := g.ref.Courses[0].Steps
	return slices.IndexFunc(g.ref.Changes, func(c facts.Change) bool {
		return c.By == "" && !c.Time.Before(steps[n].Started) &&
			(n+1 == len(steps) || c.Time.Before(steps[n+1].Started))
	})
}
