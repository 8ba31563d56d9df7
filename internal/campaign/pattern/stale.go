package pattern

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/facts"
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

// behind is the API server of a cluster that is paused; the others go on.
func (g *generator) behind(cluster string) string {
	names := g.servers(cluster)
	return names[len(names)-1]
}

// stale keeps an API server at a state of an object that is undone later. When the controller has acted on what came
// after, it is restarted at that API server, which shows it the past.
func (g *generator) stale() {
	if g.suite.FirstCluster() == "" && len(g.suite.APIServerNames()) < 2 {
		g.drop("", "a controller is shown the past", onlyServer(""))
		return
	}
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		for _, by := range c.Taken {
			if g.cluster(i) != g.home(by) && c.By != by {
				g.staleElsewhere(i, by)
			}
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
	if len(g.servers(g.cluster(i))) < 2 {
		g.drop(g.signature(i), why(), onlyServer(g.cluster(i)))
		return
	}
	if _, rule := g.ref.StaleBy(g.suite, by); rule != "" {
		g.drop(g.signature(i), why(), rule)
		return
	}
	all := g.undone(i)
	again := g.thereAgain(i, by, all)
	if len(all)+len(again) == 0 {
		g.drop(g.signature(i), why(), "nothing undoes it later")
		return
	}
	var struck []int // the moments of the plans
	for _, u := range all {
		acts := slices.DeleteFunc(g.followUps(i, by), func(k int) bool { return k > u.at })
		if len(acts) == 0 && g.ref.Changes[i].By != by {
			if len(again) == 0 {
				g.drop(g.signature(i), why(), "the controller has written nothing because of it")
				return
			}
			break
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
		undone := fmt.Sprintf("This is undone: %s. %s has reacted: ", u.how, by)
		for _, k := range g.reactions(u.at, by) {
			struck = append(struck, k)
			g.staleAt(i, k, by, undone, chance, g.gravest(i, k, by))
		}
	}
	for _, k := range again {
		if !slices.Contains(struck, k) {
			struck = append(struck, k)
			why := fmt.Sprintf("What %s has deleted because of this is there again: ", by)
			g.staleAt(i, k, by, why, 1, g.gravest(i, k, by))
		}
	}
	if len(struck) == 0 && len(all) > 0 {
		g.drop(g.signature(i), why(), "the controller does not react when it is undone")
	}
}

// thereAgain lists the changes by which objects are made again that a controller has deleted because of the i-th
// change, if the state after that change is past then: whoever makes them if that change is what the controller has
// waited for; else only by the controller itself, when the state is undone.
func (g *generator) thereAgain(i int, by string, undone []undoing) []int {
	later := g.later(i)
	if len(later) == 0 {
		return nil
	}
	var all []int
	for _, k := range g.followUps(i, by) {
		if !g.deletes(k) {
			continue
		}
		caused := g.ref.Changes[k].Key != g.ref.Changes[i].Key && g.causes(i, k, by)
		for _, m := range g.later(k) {
			c := &g.ref.Changes[m]
			if c.Event != record.Created {
				continue
			}
			past := slices.ContainsFunc(undone, func(u undoing) bool { return k <= u.at && u.at < m })
			if !slices.Contains(all, m) && later[0] < m && (caused || past && c.By == by) {
				all = append(all, m)
			}
			break
		}
	}
	return all
}

// toPast restarts a controller at the API server of a cluster that is paused, so that it can be shown the past.
func (g *generator) toPast(by, cluster string) *build.Action {
	move := build.ReconnectController(by, g.behind(cluster))
	if off, _ := g.ref.StaleBy(g.suite, by); off {
		move.WithoutStreamingLists()
	}
	return move
}

// gravest is what a controller may do once more after the k-th change, of what it has done before that because of the
// i-th: the act with most at stake. What it would delete must be there (again) to be harmed.
func (g *generator) gravest(i, k int, by string) strike {
	var most strike
	for _, act := range g.followUps(i, by) {
		if act >= k || g.deletes(act) && !g.lives(g.ref.Changes[act].Key, k) {
			continue
		}
		if s := g.act(act); s.stake > most.stake && g.causes(i, act, by) {
			most = s
		}
	}
	return most
}

// causes reports whether the i-th change is the last one by others from which the controller's k-th may follow. It may
// follow from earlier ones, too, but the last one is what the controller has waited for.
func (g *generator) causes(i, k int, by string) bool {
	for j := k - 1; j > i; j-- {
		if c := &g.ref.Changes[j]; c.By != by && len(g.changed[j]) > 0 && slices.Contains(c.Taken, by) &&
			g.ref.Changes[k].MayFollowFrom(c) {
			return false
		}
	}
	return true
}

// act is the i-th change as what a plan strikes at.
func (g *generator) act(i int) strike {
	c := &g.ref.Changes[i]
	s := strike{typ: c.Key.Type(), what: c.Event}
	content := c.Event == record.Created
	if c.Marked() {
		s.what = marks
	}
	for _, f := range g.changed[i] {
		content = content || isContent(f.Path)
	}
	s.stake = findings.AtStake(s.typ, g.deletes(i), content)
	return s
}

// lives reports whether an object is there after the k-th change, and not marked for deletion.
func (g *generator) lives(key facts.Key, k int) bool {
	all := g.runs[0].byKey[key]
	at, found := slices.BinarySearch(all, k)
	if !found {
		at--
	}
	if at < 0 {
		return false
	}
	c := &g.ref.Changes[all[at]]
	return c.Event != record.Deleted && valueAt(c.Cur, []string{"metadata", "deletionTimestamp"}) == nil
}

// staleAt shows a controller the state after the i-th change when the k-th is made. How says why then. Again is the
// gravest of what the controller may do once more.
func (g *generator) staleAt(i, k int, by, how string, chance float64, again strike) {
	why := fmt.Sprintf("%s is restarted at an API server that shows the past. That API server stops at: %s. %s%s",
		by, g.describe(i), how, g.describe(k))
	signature := g.signature(i) + " / " + g.signature(k)
	behind := g.behind(g.cluster(i))
	seen, acted, rule := g.both(
		i, point{"seen", plan.AfterAPIServerRecv, behind}, k, point{"acted", plan.AfterAPIServerRecv, g.server(k)},
	)
	if rule != "" {
		g.drop(signature, why, rule)
		return
	}
	scope, _ := g.object(i)
	g.addWith(chance, signature, why,
		build.PauseAPIServer(behind).InCluster(g.cluster(i)).Scope(scope).When(seen),
		g.toPast(by, g.cluster(i)).When(acted),
		build.ResumeAPIServer(behind).InCluster(g.cluster(i)).Scope(scope).OneByOne().When(g.window(staleFor)))
	if last := &g.all[len(g.all)-1]; last.Plan != nil {
		last.again = again
	}
}

// deletes reports whether the i-th change deletes its object, or marks it for deletion.
func (g *generator) deletes(i int) bool {
	c := &g.ref.Changes[i]
	return c.Event == record.Deleted || c.Marked()
}
