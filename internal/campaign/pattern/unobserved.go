package pattern

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// unobserved keeps the controller from reading an object until a change of the object has been undone. It begins at the
// change, or after one of the writes with which the controller has reacted to it.
func (g *generator) unobserved() {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		for _, u := range g.undone(i) {
			if c.Event == record.Created && u.by != restored {
				continue // a controller that has not seen an object yet is only slow
			}
			for _, by := range c.Taken {
				if slices.Contains(g.ref.Changes[u.at].Taken, by) && c.By != by {
					g.unobservedUntil(i, by, u)
				}
			}
		}
	}
}

// unobservedUntil makes the plans in which a controller cannot read the i-th change's object until that change is
// undone.
func (g *generator) unobservedUntil(i int, by string, u undoing) {
	chance := g.missed(i)
	if u.by != restored {
		chance /= 4 // in the end it is told what it had missed, and something more
	}
	if g.ref.Changes[u.at].By == by {
		if u.by == restored {
			g.drop(g.signature(i),
				fmt.Sprintf("%s cannot read %s while it changes and changes back", by, g.ref.Changes[i].Key),
				"the controller itself changes it back, and cannot do so while its reads are held")
		}
		return
	}
	g.unobservedFrom(i, i, u.at, by, u.how, chance)
	for n, k := range g.reactions(i, by) {
		if k >= u.at {
			break
		}
		if n == 0 {
			g.unobservedFrom(i, k, u.at, by, u.how, 2*chance) // it has begun to react, and the rest is still to be done
		} else {
			g.unobservedFrom(i, k, u.at, by, u.how, chance)
		}
	}
}

// missed is how likely it is that a controller errs that does not see the i-th change: more so if it is told to do
// something else.
func (g *generator) missed(i int) float64 {
	inSpec := func(path string) bool { return strings.HasPrefix(path, "spec.") }
	if slices.ContainsFunc(facts.Paths(g.changed[i]), inSpec) {
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
	if other := g.namesakeOf(i); other != "" {
		g.drop(signature, why, fmt.Sprintf("before a cached read, nobody knows in which cluster it is: reads of the "+
			"object of this name in %s would be held, too", other))
		return
	}
	from, until, rule := g.both(
		k, point{"from", timing, by}, undone, point{"until", plan.AfterControllerRecv, by},
	)
	if rule != "" {
		g.drop(signature, why, rule)
		return
	}
	// The workload may wait for the controller before it undoes the change. Then nothing would ever go on.
	limit := unobservedFor + 2*g.between(k, undone)
	scope, _ := g.object(i)
	g.addWith(chance, signature, fmt.Sprintf("%s; for %s at most", why, limit),
		build.PauseController(by, plan.BeforeControllerRead).InCluster(g.cluster(i)).Scope(scope).When(from),
		build.ResumeController(by, plan.BeforeControllerRead).InCluster(g.cluster(i)).Scope(scope).
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
