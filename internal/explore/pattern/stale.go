package pattern

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// staleFor is how long a controller is shown the past.
const staleFor = 5 * time.Second

// window ends a fault after a time, and only when the controllers have done what they do under it: one that is slow
// would be spared otherwise. It ends before what is held then must go on.
func (g *generator) window(d time.Duration) *build.Condition {
	end := build.Timeout(d).Named("later")
	if more := min(9*d, g.suite.Timeouts.Hold*3/4-d); more > 0 {
		end.Extend(more)
	}
	return end
}

// behind is the API server that is paused; the others go on.
func (g *generator) behind() string {
	names := g.suite.APIServerNames()
	return names[len(names)-1]
}

// stale keeps an API server at a state of an object that is undone later. When the controller has acted on what came
// after, it is restarted at that API server, which shows it the past.
func (g *generator) stale() {
	if len(g.suite.APIServerNames()) < 2 {
		return
	}
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		undone, how := g.undone(i)
		if undone < 0 || len(c.Taken) == 0 {
			continue
		}
		for _, by := range c.Taken {
			if c.By == by {
				continue // a state that the controller itself has written tells it nothing new
			}
			if _, why := g.ref.StaleBy(g.suite, by); why != "" {
				g.drop(g.signature(i), fmt.Sprintf("%s is shown the past: %s", by, g.describe(i)), why)
				continue
			}
			acts := slices.DeleteFunc(g.followUps(i, by), func(k int) bool { return k > undone })
			if len(acts) == 0 {
				g.drop(g.signature(i), fmt.Sprintf("%s is shown the past: %s", by, g.describe(i)),
					"the controller has written nothing because of it")
				continue
			}
			chance := 0.5
			if slices.ContainsFunc(acts, g.deletes) {
				chance = 1 // what the controller does once more is a deletion
			}
			for _, k := range g.reactions(undone, by) {
				g.staleAt(i, k, by, how, chance)
			}
		}
	}
}

// toPast restarts a controller at the API server that is paused, so that it can be shown the past.
func (g *generator) toPast(by string) *build.Action {
	move := build.ReconnectController(by, g.behind())
	if off, _ := g.ref.StaleBy(g.suite, by); off {
		move.WithoutStreamingLists()
	}
	return move
}

// staleAt shows a controller the state after the i-th change when it has made the k-th.
func (g *generator) staleAt(i, k int, by, how string, chance float64) {
	why := fmt.Sprintf("%s is restarted at an API server that shows the past. That API server stops at: %s. "+
		"This is undone: %s. %s has reacted: %s", by, g.describe(i), how, by, g.describe(k))
	signature := g.signature(i) + " / " + g.signature(k)
	if g.full(signature, why) {
		return
	}
	seen, rule := g.trigger("seen", start, i, plan.AfterAPIServerRecv, g.behind())
	var acted *build.Condition
	if rule == "" {
		acted, rule = g.trigger("acted", i, k, plan.AfterAPIServerRecv, g.suite.APIServerNames()[0])
	}
	if rule != "" {
		g.drop(signature, why, rule)
		return
	}
	scope, _ := g.object(i)
	g.addWith(chance, signature, why,
		build.PauseAPIServer(g.behind()).Scope(scope).When(seen),
		g.toPast(by).When(acted),
		build.ResumeAPIServer(g.behind()).Scope(scope).When(g.window(staleFor)))
}

// deletes reports whether the i-th change deletes its object, or marks it for deletion.
func (g *generator) deletes(i int) bool {
	c := &g.ref.Changes[i]
	return c.Event == record.Deleted || c.Marked()
}
