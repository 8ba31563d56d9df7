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
		g.drop("", "a controller is shown the past",
			"there is only one API server (apiServers: of the suite's cluster)")
		return
	}
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		for _, by := range c.Taken {
			// A state that the controller itself has written tells it nothing new, unless the object is gone.
			if c.By != by || g.deletes(i) {
				g.staleState(i, by)
			}
		}
	}
}

// staleState shows a controller the state after the i-th change when it has reacted to what has undone it.
func (g *generator) staleState(i int, by string) {
	why := func() string { return fmt.Sprintf("%s is shown the past: %s", by, g.describe(i)) }
	if _, rule := g.ref.StaleBy(g.suite, by); rule != "" {
		g.drop(g.signature(i), why(), rule)
		return
	}
	all := g.undone(i)
	if len(all) == 0 {
		g.drop(g.signature(i), why(), "nothing undoes it later")
		return
	}
	reacted := false
	for _, u := range all {
		acts := slices.DeleteFunc(g.followUps(i, by), func(k int) bool { return k > u.at })
		if len(acts) == 0 && g.ref.Changes[i].By != by {
			g.drop(g.signature(i), why(), "the controller has written nothing because of it")
			return
		}
		chance := 0.5
		if slices.ContainsFunc(acts, g.deletes) {
			chance = 1 // what the controller does once more is a deletion
		}
		switch {
		case u.by == replaced:
			chance /= 2
		case g.ref.Changes[i].Marked() && u.by == restored:
			chance *= 4 // what is alive looks as if it were on its way out
		}
		moments := g.reactions(u.at, by)
		for _, k := range acts {
			// What the controller would delete once more is there again.
			if again := g.madeAgain(k, by); again > u.at && !slices.Contains(moments, again) {
				moments = append(moments, again)
			}
		}
		for _, k := range moments {
			reacted = true
			g.staleAt(i, k, by, u.how, chance)
		}
	}
	if !reacted {
		g.drop(g.signature(i), why(), "the controller does not react when it is undone")
	}
}

// madeAgain is the change by which a controller makes an object again that its k-th change has deleted; -1: there is
// none.
func (g *generator) madeAgain(k int, by string) int {
	if !g.deletes(k) {
		return -1
	}
	for _, m := range g.later(k) {
		if c := &g.ref.Changes[m]; c.Event == record.Created {
			if c.By == by {
				return m
			}
			break
		}
	}
	return -1
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
	seen, acted, rule := g.both(
		i, point{"seen", plan.AfterAPIServerRecv, g.behind()},
		k, point{"acted", plan.AfterAPIServerRecv, g.suite.APIServerNames()[0]},
	)
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
