package pattern

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

const (
	// calmBefore is how long nothing happens, at least, before what counts as due to a timer: much longer than the
	// run's clock is late, and than a controller works.
	calmBefore = time.Second
	// shortBefore is how long before the due moment plans strike, at most.
	shortBefore = 3 * time.Second
	// clearlyAfter is how long after the due moment a process is started again, or its write goes on.
	clearlyAfter = 2 * time.Second
	// farAway is a time that a plan does not let pass, but skips.
	farAway = time.Minute
	// beforeJump is how long before a jump of the clock nothing happens, at least, for a plan to strike then.
	beforeJump = 2 * time.Second
	// anchors is how many changes before a moment are tried as what the plan waits for.
	anchors = 4
)

// timed strikes at what controllers do because a time has passed. The clock of a run moves only while everything is at
// rest. So if a controller changes something after a time in which nothing has happened, one of its timers has expired.
func (g *generator) timed() {
	if !g.ref.Virtual || slices.ContainsFunc(g.ref.Courses, func(c facts.Course) bool {
		return len(c.Steps) != len(g.steps)
	}) || len(g.ref.Courses) != len(g.runs) {
		return // nothing is known of time
	}
	for i := range g.ref.Changes {
		if g.ref.Changes[i].By != "" && g.calm(0, i) >= calmBefore && !g.jumpedBefore(i) {
			g.dueAt(i)
		}
	}
	for k := range g.steps {
		if g.steps[k].AdvanceTime > 0 {
			g.afterJump(k)
		}
	}
}

// calm is how long nothing had happened in a run before its i-th change: no other change, and no new step of the
// workload.
func (g *generator) calm(r, i int) time.Duration {
	changes := g.runs[r].changes
	at := changes[i].Time
	var last time.Time
	if i > 0 {
		last = changes[i-1].Time
	}
	if k := g.ref.Courses[r].StepAt(at); k >= 0 && g.ref.Courses[r].Steps[k].Started.After(last) {
		last = g.ref.Courses[r].Steps[k].Started
	}
	if last.IsZero() {
		return 0
	}
	return at.Sub(last)
}

// jumpedBefore reports whether the workload let the clock jump in the time before the i-th change in which nothing
// happened.
func (g *generator) jumpedBefore(i int) bool {
	k := g.ref.Courses[0].StepAt(g.ref.Changes[i].Time)
	return k >= 0 && g.steps[k].AdvanceTime > 0 && g.calm(0, i) >= g.steps[k].AdvanceTime
}

// jumpBetween reports whether the workload let the clock jump between two moments of the first run.
func (g *generator) jumpBetween(from, to time.Time) bool {
	for k, s := range g.ref.Courses[0].Steps {
		if g.steps[k].AdvanceTime > 0 && s.Started.After(from) && s.Started.Before(to) {
			return true
		}
	}
	return false
}

// due is a moment at which a timer expires.
type due struct {
	from        *build.Condition // a change before it
	least, most time.Duration    // from there until then, in the runs without faults
	calm        time.Duration    // how long nothing happens before it
}

// dueAt makes plans that strike at the moment at which the i-th change is due.
func (g *generator) dueAt(i int) {
	by := g.ref.Changes[i].By
	what := fmt.Sprintf("%s is due to change something: %s", by, g.describe(i))
	signature := g.signature(i)
	d, rule := g.due(i)
	if rule != "" {
		g.drop("due "+signature, what, rule)
		return
	}
	before := min(shortBefore, d.calm/2).Truncate(100 * time.Millisecond)
	plans := []struct {
		name, why string
		late      time.Duration // a controller that counts the time anew does it so much later
		actions   []*build.Action
	}{
		{
			"before", fmt.Sprintf("%s is killed %s before it is due to do something, and started again at once: %s", by,
				plan.FormatDuration(before), g.describe(i)), d.most,
			g.strike(d, d.least-before, build.RestartController(by)),
		},
		{
			"missed", fmt.Sprintf("%s is down when it is due to do something, and is started %s later: %s", by,
				plan.FormatDuration(clearlyAfter), g.describe(i)), d.most + clearlyAfter,
			append(g.strike(d, d.least-before, build.KillController(by)),
				build.StartController(by).When(build.Timeout(d.most-d.least+before+clearlyAfter).Named("missed"))),
		},
	}
	for _, p := range plans {
		if rule := g.impatient(i, p.late); rule != "" {
			g.drop(p.name+" "+signature, p.why, rule)
			continue
		}
		g.add(p.name+" "+signature, p.why, p.actions...)
	}
	g.dueWhileWriting(i)
}

// due finds out when the i-th change is due. If that is not known well enough, rule says why.
func (g *generator) due(i int) (d due, rule string) {
	c := &g.ref.Changes[i]
	if _, rule = g.named("due", start, i, plan.AfterControllerWrite, c.By); rule != "" {
		return d, rule
	}
	d.calm = g.calm(0, i)
	for r, at := range g.positions[i] {
		if d.calm = min(d.calm, g.calm(r, at)); d.calm < calmBefore {
			return d, "in another run without faults something happens right before it"
		}
	}
	rule = "nothing happens before it"
	for k := i - 1; k >= max(0, i-anchors); k-- {
		if g.jumpBetween(g.ref.Changes[k].Time, c.Time) {
			break
		}
		if d.from, rule = g.anchor("from", k); rule != "" {
			continue
		}
		d.least, d.most = g.elapsed(k, i)
		if d.least >= d.calm {
			return d, ""
		}
		rule = inSomeRuns
	}
	return d, rule
}

// elapsed is the shortest and the longest time between two changes, which triggers were made of, in the runs without
// faults.
func (g *generator) elapsed(i, k int) (least, most time.Duration) {
	for r, t := range g.runs {
		d := t.changes[g.positions[k][r]].Time.Sub(t.changes[g.positions[i][r]].Time)
		if r == 0 || d < least {
			least = d
		}
		most = max(most, d)
	}
	return least, most
}

// anchor is the condition that a change satisfies, whoever makes it.
func (g *generator) anchor(name string, i int) (t *build.Condition, rule string) {
	if by := g.ref.Changes[i].By; by != "" {
		return g.named(name, start, i, plan.AfterControllerWrite, by)
	}
	return g.named(name, start, i, plan.AfterAPIServerRecv, g.server(i))
}

// strike carries out an action at a time after the change that a moment is counted from. A long time is skipped.
func (g *generator) strike(d due, after time.Duration, action *build.Action) []*build.Action {
	const settled = time.Second
	if after < farAway {
		return []*build.Action{action.When(build.Sequence(d.from, build.Timeout(after).Named("soon")))}
	}
	return []*build.Action{
		build.AdvanceTime(after - 2*settled).When(build.Sequence(d.from, build.Timeout(settled).Named("settled"))),
		action.When(build.Timeout(settled).Named("soon")),
	}
}

// impatient says why nobody waits long enough for the i-th change if it comes so much later, as it does if a restarted
// controller counts the time anew, which is no mistake. Empty: everybody does.
func (g *generator) impatient(i int, late time.Duration) (rule string) {
	const reserve = 10 * time.Second
	late += reserve
	if late > g.suite.Timeouts.Rest {
		return "a controller that counts the time anew would not be waited for that long"
	}
	if g.overtaken(i, late) {
		return "something else happens before a controller would be done that counts the time anew"
	}
	c := g.ref.Courses[0]
	at := g.ref.Changes[i].Time
	if at.After(c.Ended) {
		return ""
	}
	for _, s := range g.steps[max(0, g.ref.Courses[0].StepAt(at)):] {
		if s.Wait == nil || s.OnTimeout == plan.OnTimeoutContinue {
			continue
		}
		limit := s.Wait.Timeout
		if limit == 0 {
			limit = g.suite.Timeouts.Step
		}
		if late > limit {
			return "a controller that counts the time anew would be too late for a step of the workload"
		}
	}
	return ""
}

// overtaken reports whether somebody else does something within a time after the i-th change, and not because of it: a
// step of the workload that comes after a sleep, or what comes after a time in which nothing happens. What the
// controller does may depend on which of the two comes first.
func (g *generator) overtaken(i int, within time.Duration) bool {
	changes := g.ref.Changes
	end := changes[i].Time.Add(within)
	began := g.ref.Courses[0].Steps
	if k := g.ref.Courses[0].StepAt(changes[i].Time); k >= 0 && g.steps[k].Sleep > 0 && k+1 < len(began) &&
		g.steps[k+1].Wait == nil && began[k+1].Started.Before(end) {
		return true
	}
	for k := i + 1; k < len(changes) && changes[k].Time.Before(end); k++ {
		if changes[k].By != changes[i].By && changes[k].Time.Sub(changes[k-1].Time) >= calmBefore {
			return true
		}
	}
	return false
}

// dueWhileWriting holds the answer to the controller's last write before the i-th change until that change was due.
func (g *generator) dueWhileWriting(i int) {
	by := g.ref.Changes[i].By
	writes := g.writes[by]
	at, _ := slices.BinarySearch(writes, i)
	if at == 0 {
		return
	}
	w := writes[at-1]
	signature := "held " + g.signature(i) + " / " + g.signature(w)
	write, rule := g.beforeWrite(w)
	if rule != "" {
		return // a plan for a moment of w's own says so
	}
	_, most := g.elapsed(w, i)
	hold := (most + clearlyAfter).Round(100 * time.Millisecond)
	if hold > g.suite.Timeouts.Hold/2 {
		return
	}
	why := fmt.Sprintf("the answer to a write of %s takes %s, so that its next one is due meanwhile: %s; then: %s", by,
		plan.FormatDuration(hold), g.describe(w), g.describe(i))
	if rule := g.impatient(i, hold+most); rule != "" {
		g.drop(signature, why, rule)
		return
	}
	scope, _ := g.object(w)
	g.add(signature, why,
		build.PauseController(by, plan.AfterControllerWrite).InCluster(g.cluster(w)).Scope(scope).When(write),
		build.ResumeController(by, plan.AfterControllerWrite).InCluster(g.cluster(w)).Scope(scope).
			When(build.Timeout(hold).Named("due")))
}

// afterJump makes plans for what the controllers change because the k-th step of the workload lets the clock jump.
func (g *generator) afterJump(k int) {
	began := g.ref.Courses[0].Steps[k].Started
	last := -1 // change before the jump
	var after []int
	for i := range g.ref.Changes {
		at := g.ref.Changes[i].Time
		switch {
		case at.Before(began):
			last = i
		case g.ref.Changes[i].By != "" && g.jumpOf(g.ref.Courses[0].StepAt(at)) == k:
			after = append(after, i)
		}
	}
	jump := plan.FormatDuration(g.steps[k].AdvanceTime)
	told := map[string]bool{}
	for _, i := range after {
		if by := g.ref.Changes[i].By; !told[by] {
			told[by] = true
			g.downDuring(k, last, by, fmt.Sprintf(
				"%s is down while %s pass, and is started again after that, when it should have made this change: %s",
				by, jump, g.describe(i)))
		}
	}
	for _, i := range after {
		by := g.ref.Changes[i].By
		why := fmt.Sprintf("%s is killed right after its own write, which comes when %s have passed: %s", by, jump,
			g.describe(i))
		written, rule := g.named("written", start, i, plan.AfterControllerWrite, by)
		if rule == "" && !g.again(k) {
			rule = "not as much time passes again: a controller that counts the time anew would be late"
		}
		if rule != "" {
			g.drop("later "+g.signature(i), why, rule)
		} else {
			g.add("later "+g.signature(i), why, build.RestartController(by).When(written))
		}
		why = fmt.Sprintf("%s gets no answer to its own write, which comes when %s have passed, and takes effect: %s",
			by, jump, g.describe(i))
		write, rule := g.beforeWrite(i)
		if rule != "" {
			g.drop("lost "+g.signature(i), why, rule)
			continue
		}
		scope, _ := g.object(i)
		g.add("lost "+g.signature(i), why, build.FailCall(by, plan.Lost, 0).InCluster(g.cluster(i)).Scope(scope).
			Operations(plan.Operation(g.ref.Changes[i].Op)).When(write))
	}
}

// jumpOf is the step that lets the clock jump and that a later step may show the effects of: there is nothing between
// them but waiting. -1: there is none.
func (g *generator) jumpOf(k int) int {
	for ; k >= 0 && g.steps[k].AdvanceTime == 0; k-- {
		if g.steps[k].Sleep == 0 && g.steps[k].Wait == nil {
			return -1
		}
	}
	return k
}

// again reports whether as much time passes once more after the k-th step as a controller may have to count anew that
// was restarted then.
func (g *generator) again(k int) bool {
	need := g.steps[k].AdvanceTime
	var longest time.Duration
	for _, p := range g.ref.Polls {
		longest = max(longest, p.Delay)
	}
	if longest > 0 {
		need = min(need, longest)
	}
	return slices.ContainsFunc(g.steps[k+1:], func(s plan.Step) bool { return s.AdvanceTime >= need })
}

// downDuring keeps a controller down while the k-th step of the workload lets the clock jump.
func (g *generator) downDuring(k, last int, by, why string) {
	signature := "down " + by
	rule := "nothing happens before it"
	if !g.again(k) {
		last, rule = -1, "not as much time passes again: a controller that counts the time anew would be late"
	}
	for i := last; i >= max(0, last-anchors); i-- {
		var from *build.Condition
		if from, rule = g.anchor("from", i); rule != "" {
			continue
		}
		var least, most time.Duration
		for r, t := range g.runs {
			d := g.ref.Courses[r].Steps[k].Started.Sub(t.changes[g.positions[i][r]].Time)
			if r == 0 || d < least {
				least = d
			}
			most = max(most, d)
		}
		if least < beforeJump {
			rule = "something happens right before the clock jumps"
			continue
		}
		kill := (least / 2).Truncate(100 * time.Millisecond)
		g.add(signature, why,
			build.KillController(by).When(build.Sequence(from, build.Timeout(kill).Named("soon"))),
			build.StartController(by).When(build.Timeout((most - kill + shortBefore).Round(100*time.Millisecond)).
				Named("later")))
		return
	}
	g.drop(signature, why, rule)
}
