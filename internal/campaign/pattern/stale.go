package pattern

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

var stale = Pattern{Name: "stale", Finds: "acting on the past", chance: 4, foremost: true, drafts: showPast}

// staleFor is how long a controller is shown the past.
const staleFor = 5 * time.Second

// showPast keeps an API server at a state of an object that is undone later. When the controller has acted on what came
// after, it is restarted at that API server, which shows it the past.
func showPast(m *moment.Set) (all drafts) {
	if m.Suite.FirstCluster() == "" && len(m.Suite.APIServerNames()) < 2 {
		all.drop("", "a controller is shown the past", moment.OnlyServer(""))
		return all
	}
	for i := range m.Changes {
		c := &m.Changes[i]
		for _, by := range c.Taken {
			if m.Cluster(i) != m.Home(by) && c.By != by {
				all = append(all, staleElsewhere(m, i, by))
			}
			// The controller knows a state that it has written itself, unless the object is gone.
			if c.By != by || m.Deletes(i) {
				all = append(all, staleState(m, i, by)...)
			}
		}
	}
	return all
}

// staleState shows a controller the state after a change when it has reacted to what has undone it.
func staleState(m *moment.Set, i int, by string) (all drafts) {
	drop := func(rule string) drafts {
		all.drop(m.Signature(i), fmt.Sprintf("%s is shown the past: %s", by, m.Describe(i)), rule)
		return all
	}
	if len(m.Servers(m.Cluster(i))) < 2 {
		return drop(moment.OnlyServer(m.Cluster(i)))
	}
	if _, rule := m.Baseline.StaleBy(m.Suite, by); rule != "" {
		return drop(rule)
	}
	undone := m.Undone(i)
	again := thereAgain(m, i, by, undone)
	if len(undone)+len(again) == 0 {
		return drop("nothing undoes it later")
	}
	var struck []int // the moments of the plans
	for _, u := range undone {
		acts := slices.DeleteFunc(m.FollowUps(i, by), func(k int) bool { return k > u.At })
		if len(acts) == 0 && m.Changes[i].By != by {
			if len(again) == 0 {
				return drop("the controller has written nothing because of it")
			}
			break
		}
		chance := 0.5
		if slices.ContainsFunc(acts, m.Deletes) {
			chance = 1 // what the controller does once more is a deletion
		}
		switch {
		case u.By == moment.Replaced:
			chance /= 2
		case m.Changes[i].Marked() && u.By == moment.Restored:
			chance *= 4 // what is alive looks as if it were on its way out
		}
		how := fmt.Sprintf("This is undone: %s. %s has reacted: ", u.How, by)
		for _, k := range m.Reactions(u.At, by) {
			struck = append(struck, k)
			all = append(all, staleAt(m, i, k, by, how, chance))
		}
	}
	for _, k := range again {
		if !slices.Contains(struck, k) {
			struck = append(struck, k)
			how := fmt.Sprintf("What %s has deleted because of this is there again: ", by)
			all = append(all, staleAt(m, i, k, by, how, 1))
		}
	}
	if len(struck) == 0 && len(undone) > 0 {
		return drop("the controller does not react when it is undone")
	}
	return all
}

// thereAgain lists the changes that create objects again which a controller has deleted because of the i-th change, if
// the state after that change is past then. If that change is what the controller has waited for, any client may have
// created them; otherwise only the controller itself, when the state is undone.
func thereAgain(m *moment.Set, i int, by string, undone []moment.Undoing) []int {
	later := m.Later(i)
	if len(later) == 0 {
		return nil
	}
	var all []int
	for _, k := range m.FollowUps(i, by) {
		if !m.Deletes(k) {
			continue
		}
		caused := m.Changes[k].Key != m.Changes[i].Key && m.Causes(i, k, by)
		for _, n := range m.Later(k) {
			c := &m.Changes[n]
			if c.Event != record.Created {
				continue
			}
			past := slices.ContainsFunc(undone, func(u moment.Undoing) bool { return k <= u.At && u.At < n })
			if !slices.Contains(all, n) && later[0] < n && (caused || past && c.By == by) {
				all = append(all, n)
			}
			break
		}
	}
	return all
}

// staleAt shows a controller the state after the i-th change when the k-th is made. How says why then.
func staleAt(m *moment.Set, i, k int, by, how string, chance float64) draft {
	d := draft{
		signature: m.Signature(i) + " / " + m.Signature(k), chance: chance,
		why: fmt.Sprintf("%s is restarted at an API server that shows the past. That API server stops at: %s. %s%s",
			by, m.Describe(i), how, m.Describe(k)),
	}
	behind := m.Behind(m.Cluster(i))
	seen, acted, rule := m.Both(
		i, moment.At("seen", plan.AfterAPIServerRecv, behind),
		k, moment.At("acted", plan.AfterAPIServerRecv, m.Server(k)),
	)
	if d.dropped = rule; rule != "" {
		return d
	}
	scope, _ := m.Object(i)
	d.again = gravest(m, i, k, by)
	d.actions = []*build.Action{
		build.PauseAPIServer(behind).InCluster(m.Cluster(i)).Scope(scope).When(seen.Trigger),
		toPast(m, by, m.Cluster(i)).When(acted.Trigger),
		build.ResumeAPIServer(behind).InCluster(m.Cluster(i)).Scope(scope).OneByOne().When(m.Window(staleFor)),
	}
	return d
}

// toPast restarts a controller at the API server of a cluster that is paused, so that it can be shown the past.
func toPast(m *moment.Set, by, cluster string) *build.Action {
	move := build.ReconnectController(by, m.Behind(cluster))
	if off, _ := m.Baseline.StaleBy(m.Suite, by); off {
		move.WithoutStreamingLists()
	}
	return move
}

// gravest is the act with most at stake that a controller may repeat after the k-th change, of those that it has done
// before because of the i-th. Something that it would delete must exist then.
func gravest(m *moment.Set, i, k int, by string) strike {
	var most strike
	for _, act := range m.FollowUps(i, by) {
		if act >= k || m.Deletes(act) && !m.Lives(m.Changes[act].Key, k) {
			continue
		}
		if s := strikeOf(m, act); s.stake > most.stake && m.Causes(i, act, by) {
			most = s
		}
	}
	return most
}

// strikeOf is a change as what a plan strikes at.
func strikeOf(m *moment.Set, i int) strike {
	c := &m.Changes[i]
	s := strike{typ: c.Key.Type(), what: c.Event}
	content := c.Event == record.Created
	if c.Marked() {
		s.what = marks
	}
	for _, f := range m.Changed[i] {
		content = content || isContent(f.Path)
	}
	s.stake = findings.AtStake(s.typ, m.Deletes(i), content)
	return s
}

// staleElsewhere shows a controller the state before a change, of an object in another cluster than its own, and the
// present of its own one. Before the change, its connection is moved to an API server that is paused, until the
// controller has made the first write after it that follows from something else: it should have taken the change into
// account. The cluster's other controllers go on: they read from the first API server.
func staleElsewhere(m *moment.Set, i int, by string) draft {
	cluster := m.Cluster(i)
	d := draft{
		signature: m.Signature(i), chance: 0.5,
		why: fmt.Sprintf("%s is shown the past of %s, where it does not see: %s", by, cluster, m.Describe(i)),
	}
	all := m.Runs[0].ByKey[m.Changes[i].Key]
	at, _ := slices.BinarySearch(all, i)
	k := unaware(m, i, by)
	switch {
	case len(m.Servers(cluster)) < 2:
		d.dropped = moment.OnlyServer(cluster)
		return d
	case at == 0:
		d.dropped = "before that there is no state of the object to show"
		return d
	case k < 0:
		d.dropped = "the controller writes nothing after it because of something else"
		return d
	}
	was := all[at-1]
	d.why += fmt.Sprintf(". The API server stops at: %s; until %s has made its write: %s", m.Describe(was), by,
		m.Describe(k))
	d.signature += " / " + m.Signature(k)
	server := m.Behind(cluster)
	seen, acted, rule := m.Both(
		was, moment.At("seen", plan.AfterAPIServerRecv, server), k, moment.At("acted", plan.AfterControllerWrite, by),
	)
	if d.dropped = rule; rule != "" {
		return d
	}
	if m.Deletes(k) || slices.ContainsFunc(m.FollowUps(i, by), m.Deletes) {
		d.chance = 1
	}
	limit, rule := m.Limit(m.Runs.Longest(seen.Occurrence, acted.Occurrence), staleFor)
	if d.dropped = rule; rule != "" {
		return d
	}
	d.why += fmt.Sprintf("; for %s at most", plan.FormatDuration(limit))
	scope, _ := m.Object(i)
	d.actions = []*build.Action{
		build.PauseAPIServer(server).InCluster(cluster).Scope(scope).When(seen.Trigger),
		toPast(m, by, cluster).When(build.AtOnce()),
		build.ResumeAPIServer(server).InCluster(cluster).Scope(scope).
			When(build.Either(acted.Trigger, build.Timeout(limit).Named("late"))),
	}
	return d
}

// unaware returns the first write of a controller that takes a change into account, and would also be made without it:
// it follows from another change that the controller takes in after that one. It returns -1 if there is none.
func unaware(m *moment.Set, i int, by string) int {
	for _, k := range m.FollowUps(i, by) {
		for j := i + 1; j < k; j++ {
			c := &m.Changes[j]
			if c.By != by && c.Key != m.Changes[i].Key && slices.Contains(c.Taken, by) &&
				m.Changes[k].MayFollowFrom(c) {
				return k
			}
		}
	}
	return -1
}
