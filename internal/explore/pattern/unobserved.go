package pattern

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// unobserved keeps the controller from reading an object until a change of the object has been undone. It begins at the
// change, or after one of the writes with which the controller has reacted to it.
func (g *generator) unobserved() {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		undone, how := g.undone(i)
		if undone < 0 {
			continue
		}
		u := &g.ref.Changes[undone]
		for _, by := range c.Taken {
			if !slices.Contains(u.Taken, by) || c.By == by {
				continue
			}
			if u.By == by {
				g.drop(g.signature(i), fmt.Sprintf("%s cannot read %s while it changes and changes back", by, c.Key),
					"the controller itself changes it back, and cannot do so while its reads are held")
				continue
			}
			g.unobservedFrom(i, i, undone, by, how, g.missed(i))
			for n, k := range g.reactions(i, by) {
				if k < undone {
					chance := g.missed(i)
					if n == 0 {
						chance *= 2 // it has begun to react, and the rest is still to be done
					}
					g.unobservedFrom(i, k, undone, by, how, chance)
				}
			}
		}
	}
}

// missed is how likely it is that a controller errs that does not see the i-th change: more so if it is told to do
// something else.
func (g *generator) missed(i int) float64 {
	inSpec := func(path string) bool { return strings.HasPrefix(path, "spec.") }
	if slices.ContainsFunc(reference.Paths(g.changed[i]), inSpec) {
		return 2
	}
	return 1
}

// unobservedFrom holds a controller's reads of the i-th change's object from the k-th change on until it is undone.
func (g *generator) unobservedFrom(i, k, undone int, by, how string, chance float64) {
	timing := plan.AfterControllerRecv
	if k != i {
		timing = plan.AfterControllerWrite
	}
	signature := g.signature(i) + " / " + g.signature(k)
	why := fmt.Sprintf("%s cannot read %s from: %s; until: %s", by, g.ref.Changes[i].Key, g.describe(k), how)
	if g.full(signature, why) {
		return
	}
	from, rule := g.trigger("from", start, k, timing, by)
	var until *build.Condition
	if rule == "" {
		until, rule = g.trigger("until", k, undone, plan.AfterControllerRecv, by)
	}
	if rule != "" {
		g.drop(signature, why, rule)
		return
	}
	// The workload may wait for the controller before it undoes the change. Then nothing would ever go on.
	limit := unobservedFor + 2*g.between(k, undone)
	scope, _ := g.object(i)
	g.addWith(chance, signature, fmt.Sprintf("%s; for %s at most", why, limit),
		build.PauseController(by, plan.BeforeControllerRead).Scope(scope).When(from),
		build.ResumeController(by, plan.BeforeControllerRead).Scope(scope).
			When(build.Either(until, build.Timeout(limit).Named("late"))))
}

// unobservedFor is how much longer than twice the usual time reads are held at most.
const unobservedFor = 3 * time.Second

// between is the longest time between two changes, which triggers were made of, in the runs without faults.
func (g *generator) between(i, k int) time.Duration {
	var longest time.Duration
	for r, t := range g.runs {
		longest = max(longest, t.changes[g.positions[k][r]].Time.Sub(t.changes[g.positions[i][r]].Time))
	}
	return longest.Round(100 * time.Millisecond)
}
