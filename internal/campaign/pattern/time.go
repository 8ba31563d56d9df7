package pattern

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// Time is the name of the pattern that asks what comes due later.
const Time = "time"

// The pattern time strikes at what controllers do because a time has passed. The clock of a run moves only while
// everything is at rest. So if a controller changes something after a time without events, one of its timers has
// expired.
var timers = Pattern{
	Name: Time, Finds: "work that is missed when it comes due, and timers that are lost with the process", chance: 2,
	drafts: strikeTimers,
}

const (
	// shortBefore is how long before the due moment plans strike, at most.
	shortBefore = 3 * time.Second
	// clearlyAfter is how long after the due moment a process is started again, or its write goes on.
	clearlyAfter = 2 * time.Second
	// farAway is a time that a plan does not let pass, but skips.
	farAway = time.Minute
	// beforeJump is how long before a jump of the clock nothing happens, at least, for a plan to strike then.
	beforeJump = 2 * time.Second
)

func strikeTimers(m *moment.Set) (all drafts) {
	t := times{m}
	if !t.known() {
		return nil
	}
	for i := range m.Changes {
		if m.Changes[i].By != "" && t.calm(0, i) >= calmBefore && !t.jumpedBefore(i) {
			all = append(all, dueAt(t, i)...)
		}
	}
	for k := range m.Steps {
		if m.Steps[k].AdvanceTime > 0 {
			all = append(all, afterJump(t, k)...)
		}
	}
	return all
}

// due is a moment at which a timer expires.
type due struct {
	moment.Occurrence               // the change that the timer causes
	from              build.Trigger // a change before it
	least, most       time.Duration // from there until then, in the runs without faults
	calm              time.Duration // how long nothing happens before it
}

// dueAt makes plans that strike at the moment at which a change is due.
func dueAt(t times, i int) (all drafts) {
	by := t.Changes[i].By
	signature := t.Signature(i)
	d, rule := dueOf(t, i)
	if rule != "" {
		all.drop("due "+signature, fmt.Sprintf("%s is due to change something: %s", by, t.Describe(i)), rule)
		return all
	}
	before := min(shortBefore, d.calm/2).Truncate(100 * time.Millisecond)
	for _, p := range []struct {
		name, why string
		late      time.Duration // a controller that counts the time anew does it so much later
		actions   []*build.Action
	}{
		{
			"before", fmt.Sprintf("%s is killed %s before it is due to do something, and started again at once: %s", by,
				plan.FormatDuration(before), t.Describe(i)), d.most,
			d.strike(d.least-before, build.RestartController(by)),
		},
		{
			"missed", fmt.Sprintf("%s is down when it is due to do something, and is started %s later: %s", by,
				plan.FormatDuration(clearlyAfter), t.Describe(i)), d.most + clearlyAfter,
			append(d.strike(d.least-before, build.KillController(by)),
				build.StartController(by).When(build.Timeout(d.most-d.least+before+clearlyAfter).Named("missed"))),
		},
	} {
		if rule := t.impatient(i, p.late); rule != "" {
			all.drop(p.name+" "+signature, p.why, rule)
			continue
		}
		all.add(p.name+" "+signature, p.why, p.actions...)
	}
	return append(all, dueWhileWriting(t, d)...)
}

// dueOf returns when a change is due. If that is not known well enough, rule says why.
func dueOf(t times, i int) (d due, rule string) {
	c := &t.Changes[i]
	changed, rule := t.Direct(moment.At("due", plan.AfterControllerWrite, c.By), moment.Start, i)
	if rule != "" {
		return d, rule
	}
	d.Occurrence, d.calm = changed.Occurrence, t.calm(0, i)
	for r, at := range d.Runs {
		if d.calm = min(d.calm, t.calm(r, at)); d.calm < calmBefore {
			return d, "in another run without faults something happens right before it"
		}
	}
	rule = "nothing happens before it"
	for k := i - 1; k >= max(0, i-moment.Anchors); k-- {
		if t.jumpBetween(t.Changes[k].Time, c.Time) {
			break
		}
		var from moment.Moment
		if from, rule = anchor(t, k); rule != "" {
			continue
		}
		d.from = from.Trigger
		d.least, d.most = t.Runs.Elapsed(from.Occurrence, d.Occurrence)
		if d.least >= d.calm {
			return d, ""
		}
		rule = moment.InSomeRuns
	}
	return d, rule
}

// anchor is the moment of a change, whoever makes it.
func anchor(t times, i int) (m moment.Moment, rule string) {
	if by := t.Changes[i].By; by != "" {
		return t.Direct(moment.At("from", plan.AfterControllerWrite, by), moment.Start, i)
	}
	return t.Direct(moment.At("from", plan.AfterAPIServerRecv, t.Server(i)), moment.Start, i)
}

// strike carries out an action at a time after the change that a moment is counted from. A long time is skipped.
func (d due) strike(after time.Duration, action *build.Action) []*build.Action {
	const settled = time.Second
	if after < farAway {
		return []*build.Action{action.When(build.Sequence(d.from, build.Timeout(after).Named("soon")))}
	}
	return []*build.Action{
		build.AdvanceTime(after - 2*settled).When(build.Sequence(d.from, build.Timeout(settled).Named("settled"))),
		action.When(build.Timeout(settled).Named("soon")),
	}
}

// dueWhileWriting holds the answer to the controller's last write before a change until that change was due.
func dueWhileWriting(t times, d due) (all drafts) {
	i := d.Change
	by := t.Changes[i].By
	writes := t.Writes[by]
	at, _ := slices.BinarySearch(writes, i)
	if at == 0 {
		return nil
	}
	w := writes[at-1]
	signature := "held " + t.Signature(i) + " / " + t.Signature(w)
	write, rule := t.BeforeWrite(w)
	if rule != "" {
		return nil // a plan for a moment of w's own says so
	}
	_, most := t.Runs.Elapsed(write.Occurrence, d.Occurrence)
	hold := (most + clearlyAfter).Round(100 * time.Millisecond)
	if hold > t.Suite.Timeouts.Hold/2 {
		return nil
	}
	why := fmt.Sprintf("the answer to a write of %s takes %s, so that its next one is due meanwhile: %s; then: %s", by,
		plan.FormatDuration(hold), t.Describe(w), t.Describe(i))
	if rule := t.impatient(i, hold+most); rule != "" {
		all.drop(signature, why, rule)
		return all
	}
	scope, _ := t.Object(w)
	all.add(signature, why,
		build.PauseController(by, plan.AfterControllerWrite).InCluster(t.Cluster(w)).Scope(scope).When(write.Trigger),
		build.ResumeController(by, plan.AfterControllerWrite).InCluster(t.Cluster(w)).Scope(scope).
			When(build.Timeout(hold).Named("due")))
	return all
}

// afterJump makes plans for what the controllers change because the k-th step of the workload lets the clock jump.
func afterJump(t times, k int) (all drafts) {
	began := t.Baseline.Courses[0].Steps[k].Started
	last := -1 // change before the jump
	var after []int
	for i := range t.Changes {
		at := t.Changes[i].Time
		switch {
		case at.Before(began):
			last = i
		case t.Changes[i].By != "" && t.jumpOf(t.Baseline.Courses[0].StepAt(at)) == k:
			after = append(after, i)
		}
	}
	jump := plan.FormatDuration(t.Steps[k].AdvanceTime)
	done := map[string]bool{} // by controller
	for _, i := range after {
		if by := t.Changes[i].By; !done[by] {
			done[by] = true
			all = append(all, downDuring(t, k, last, by, fmt.Sprintf(
				"%s is down while %s pass, and is started again after that, when it should have made this change: %s",
				by, jump, t.Describe(i))))
		}
	}
	for _, i := range after {
		all = append(all, killedAfterJump(t, k, i, jump), lostAfterJump(t, i, jump))
	}
	return all
}

// killedAfterJump kills a controller after a write that it makes because the clock has jumped.
func killedAfterJump(t times, k, i int, jump string) draft {
	by := t.Changes[i].By
	d := draft{
		signature: "later " + t.Signature(i), chance: 1,
		why: fmt.Sprintf("%s is killed right after its own write, which comes when %s have passed: %s", by, jump,
			t.Describe(i)),
	}
	written, rule := t.Direct(moment.At("written", plan.AfterControllerWrite, by), moment.Start, i)
	if rule == "" && !t.again(k) {
		rule = tooLate
	}
	if d.dropped = rule; rule == "" {
		d.actions = []*build.Action{build.RestartController(by).When(written.Trigger)}
	}
	return d
}

// lostAfterJump loses the answer to a write that a controller makes because the clock has jumped.
func lostAfterJump(t times, i int, jump string) draft {
	d := draft{
		signature: "lost " + t.Signature(i), chance: 1,
		why: fmt.Sprintf("%s gets no answer to its own write, which comes when %s have passed, and takes effect: %s",
			t.Changes[i].By, jump, t.Describe(i)),
	}
	write, rule := t.BeforeWrite(i)
	if d.dropped = rule; rule == "" {
		d.actions = []*build.Action{answerLost(t.Set, i, write)}
	}
	return d
}

// tooLate is the rule by which a controller is not restarted around a jump of the clock.
const tooLate = "not as much time passes again: a controller that counts the time anew would be late"

// downDuring keeps a controller down while the k-th step of the workload lets the clock jump. Last is the last change
// before that.
func downDuring(t times, k, last int, by, why string) draft {
	d := draft{signature: "down " + by, why: why, chance: 1, dropped: "nothing happens before it"}
	if !t.again(k) {
		d.dropped = tooLate
		return d
	}
	for i := last; i >= max(0, last-moment.Anchors); i-- {
		from, rule := anchor(t, i)
		if d.dropped = rule; rule != "" {
			continue
		}
		var least, most time.Duration
		for r, run := range t.Runs {
			before := t.Baseline.Courses[r].Steps[k].Started.Sub(run.Changes[from.Runs[r]].Time)
			if r == 0 || before < least {
				least = before
			}
			most = max(most, before)
		}
		if least < beforeJump {
			d.dropped = "something happens right before the clock jumps"
			continue
		}
		kill := (least / 2).Truncate(100 * time.Millisecond)
		d.actions = []*build.Action{
			build.KillController(by).When(build.Sequence(from.Trigger, build.Timeout(kill).Named("soon"))),
			build.StartController(by).When(build.Timeout((most - kill + shortBefore).Round(100 * time.Millisecond)).
				Named("later")),
		}
		return d
	}
	return d
}
