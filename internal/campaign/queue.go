package campaign

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/lab"
	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// queue hands out plans to workers, in the order of the schedule. It keeps their outcomes, and is the only one that
// touches the schedule.
type queue struct {
	lab.Voice
	clock  *lab.Clock
	chosen bool // the user has chosen the plans: none is dropped

	mu        sync.Mutex // guards what follows
	changed   sync.Cond  // signalled when there may be something new to do
	schedule  *schedule.Schedule
	tasks     map[*schedule.Plan]*task
	faultless map[string]*Faultless // see count; by workload
	denied    int                   // plans that were left out; see dropDenied
	refused   []clientWrite         // for which plans were left out; see dropDenied
	over      bool                  // all workloads are learned
	again     int                   // plans of an earlier session that have changed, or are not there any more
	store     store
}

func newQueue(v lab.Voice, c *lab.Clock, s result.Settings, runners int, dir string) *queue {
	q := &queue{
		Voice: v, clock: c, tasks: map[*schedule.Plan]*task{}, faultless: map[string]*Faultless{},
		schedule: schedule.New(schedule.Config{
			Budget: schedule.Budget{Limit: s.Budget, Runners: runners}, Repeat: s.Repeat, FailFast: s.FailFast,
		}),
		store: store{dir: dir, settings: s},
	}
	q.changed.L = &q.mu
	return q
}

// take takes in all tasks that are known by now, in the order in which those begin that have not begun. number takes in
// how many runs a plan had in an earlier session. Lesson is the ID of the workload that was learned, or cannot be;
// empty: there is none.
func (q *queue) take(tasks []*task, number func(plan string, runs int), lesson string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lessonEnded(lesson)
	var plans, added []*schedule.Plan
	for _, t := range tasks {
		if t.entry == nil {
			t.entry = &schedule.Plan{
				Name: t.plan.TestName, Key: t.key, Workload: t.learned.ID(), Estimate: cost(t),
			}
			q.tasks[t.entry] = t
			added = append(added, t.entry)
		}
		if !t.dropped {
			plans = append(plans, t.entry)
		}
	}
	claimed := q.schedule.Arrange(plans)
	first, over := q.schedule.Ready(q.clock.Elapsed()), q.schedule.Learning.Over()
	q.again += claimed.Changed
	if over && !q.over {
		q.again += q.schedule.Forget()
	}
	if n := q.again; n > 0 && over {
		q.Say("%d plans are run again, because something has changed since", n)
		q.again = 0
	}
	if p := q.schedule.Progress(q.clock.Elapsed()); claimed.Known > 0 {
		q.Say("%d of %d plans were run before", p.Done+len(claimed.Pending), p.Of)
	}
	q.takeUp(claimed, number)
	q.dropNew(added)
	if said := q.schedule.Foresee(q.clock.Elapsed()); said != "" && (first || over && !q.over) {
		q.Say("%s", said)
	}
	q.over = over
}

// begin returns the next plan to run, or the ID of the workload to learn; neither: there is nothing to do any more. It
// waits while there is nothing, but may be something later.
func (q *queue) begin(ctx context.Context) (t *task, lesson string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ctx.Err() == nil {
		next := q.schedule.Next(q.clock.Elapsed())
		switch {
		case next.Plan != nil:
			q.showStatus()
			return q.tasks[next.Plan], ""
		case next.Lesson != "" || !next.Wait:
			return nil, next.Lesson
		}
		q.changed.Wait()
	}
	return nil, ""
}

// lesson returns the ID of the next workload to learn, without regard to plans; empty: there is none. It waits while
// workloads are learned that others may follow.
func (q *queue) lesson(ctx context.Context) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ctx.Err() == nil {
		id := q.schedule.Learning.Next(q.clock.Elapsed(), false)
		if id != "" || !q.schedule.Learning.Busy() {
			return id
		}
		q.changed.Wait()
	}
	return ""
}

// ended takes in that a workload is learned, or cannot be, of which no plans are run.
func (q *queue) ended(lesson string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lessonEnded(lesson)
}

// lessonEnded is ended. The caller holds the lock.
func (q *queue) lessonEnded(lesson string) {
	if lesson != "" {
		q.schedule.Learning.End(q.clock.Elapsed(), lesson)
	}
	q.changed.Broadcast()
}

// learnedAll reports whether no workload is left to be learned.
func (q *queue) learnedAll() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.schedule.Learning.Waiting(false)) == 0
}

// begun returns the tasks whose plans do not begin any more.
func (q *queue) begun() map[*task]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := map[*task]bool{}
	for p, t := range q.tasks {
		all[t] = q.schedule.Begun(p)
	}
	return all
}

// stopped says why no further plan begins, and whether there were plans at all.
func (q *queue) stopped() (why string, planned bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.schedule.Stopped(), len(q.schedule.Plans()) > 0
}

// wake wakes those that wait for plans that were put off.
func (q *queue) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed.Broadcast()
}

// end takes in the outcome of a plan, and keeps it. The error says that the campaign cannot go on.
func (q *queue) end(t *task, o *result.Outcome) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed.Broadcast()
	err := q.schedule.End(t.entry, o)
	if err := q.keepOutcome(o); err != nil {
		return err
	}
	if said := q.schedule.Reforesee(q.clock.Elapsed()); said != "" {
		q.Say("%s", said)
	}
	q.showOutcome(o)
	q.dropDenied(t, o)
	return err
}

// leave gives up a plan for which the budget is too short.
func (q *queue) leave(t *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.schedule.Leave(t.entry)
	q.changed.Broadcast()
}

// confirms reports whether a plan is confirmed now. Otherwise it is put off. First is the plan's first run.
func (q *queue) confirms(t *task, o *result.Outcome, first *record.Meta) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.schedule.Confirm(t.entry, o) {
		return true
	}
	t.first = first
	return false
}

// relabel takes in what the findings are due to that are being confirmed.
func (q *queue) relabel(plan, cause string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.schedule.Relabel(plan, cause) {
		q.changed.Broadcast()
	}
}

// like returns the plan that is confirmed and has all the same findings, of the same cause; empty: there is none.
func (q *queue) like(o *result.Outcome) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.schedule.Like(o)
}

func (q *queue) doubtful(o *result.Outcome) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.schedule.Doubtful(o)
}

// ran takes in how long a run of a plan took, and confirmed how long one took that confirms a finding.
func (q *queue) ran(plan string, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.schedule.Ran(plan, took)
}

func (q *queue) confirmed(took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.schedule.Confirmed(took)
}

// holds reports whether something that takes that long ends within the budget.
func (q *queue) holds(takes time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.schedule.Holds(q.clock.Elapsed(), takes)
}

// holdsRuns reports whether that many runs of a plan, of which each is estimated to take that long, end within the
// budget.
func (q *queue) holdsRuns(runs int, plan string, estimate time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.schedule.Holds(q.clock.Elapsed(), time.Duration(runs)*q.schedule.Expected(plan, estimate))
}

// all returns the tasks in the order in which they begin, with the outcomes of those that have ended.
func (q *queue) all() (tasks []*task, outcomes []*result.Outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.schedule.Plans() {
		tasks, outcomes = append(tasks, q.tasks[p]), append(outcomes, q.schedule.Done(p.Name))
	}
	return tasks, outcomes
}

// done returns the outcome of a plan; nil: it has not ended.
func (q *queue) done(plan string) *result.Outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.schedule.Done(plan)
}

// showOutcome shows what became of a plan. The caller holds the lock.
func (q *queue) showOutcome(o *result.Outcome) {
	p := q.schedule.Progress(q.clock.Elapsed())
	q.Show(progress.Event{
		Type: progress.PlanDone, Plan: o.Plan, Verdict: string(o.Status), Record: o.Record,
		Text: fmt.Sprintf("[%d/%d] %s (%s): %s", p.Done, p.Of, o.Plan, wording.Roughly(o.Took), describe(o)),
	})
	q.showStatus()
}

// showStatus shows how far the campaign is. The caller holds the lock.
func (q *queue) showStatus() {
	p := q.schedule.Progress(q.clock.Elapsed())
	q.Show(progress.Event{Type: progress.Status, Text: p.Text, Campaign: &progress.CampaignEvent{
		Done: p.Done, Of: p.Of, Reach: p.Reach, Bugs: p.Bugs, Left: p.Left.Seconds(), Running: p.Running,
	}})
}

// describe says what became of a plan.
func describe(o *result.Outcome) string {
	first := ""
	if len(o.Findings) > 0 {
		first = ": " + o.Findings[0].Title
	}
	switch o.Status {
	case result.Passed:
		return "pass"
	case result.Bug:
		return fmt.Sprintf("bug %s%s", o.Rate(), first)
	case result.Unconfirmed:
		if o.Pending {
			return fmt.Sprintf("not confirmed: the budget ended %s%s", o.Rate(), first)
		}
		return fmt.Sprintf("not confirmed %s%s", o.Rate(), first)
	case result.OfWorkload:
		return o.WithoutActions() + first
	case result.Inconclusive:
		return "inconclusive: " + wording.FirstLine(o.Reason)
	}
	return "could not be run: " + o.Reason
}

// count takes in a run of a workload without faults. Failed is the step that failed; empty: the run has passed. If the
// workload fails, none of its plans begins any more, except those that the user has chosen.
func (q *queue) count(l *learn.Learned, failed, dir string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	counts := q.faultlessOf(l)
	counts.Runs++
	if failed == "" {
		return
	}
	if counts.Failed++; counts.Failed == 1 {
		counts.Step, counts.Record = failed, dir
		q.Say("%s", counts)
	}
	q.drop(counts)
}

// drop takes away the plans of a workload that fails without faults. The caller holds the lock.
func (q *queue) drop(counts *Faultless) {
	if !q.chosen && counts.Failed > 0 {
		counts.dropped += q.dropPlans(func(p *schedule.Plan) bool { return p.Workload == counts.learned.ID() })
	}
}

// dropPlans takes away those of the given plans that have not begun. The caller holds the lock.
func (q *queue) dropPlans(which func(*schedule.Plan) bool) int {
	dropped := q.schedule.Drop(which)
	for _, p := range dropped {
		q.tasks[p].dropped = true
	}
	return len(dropped)
}

// giveUp takes away the plans of a workload that turned out to end differently without faults, except those that the
// user has chosen.
func (q *queue) giveUp(l *learn.Learned) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.chosen {
		q.dropPlans(func(p *schedule.Plan) bool { return p.Workload == l.ID() })
	}
}

// dropNew drops those of new plans that an earlier session of the campaign has dropped, and those that other clients
// are known to be denied. The caller holds the lock.
func (q *queue) dropNew(added []*schedule.Plan) {
	known := map[string]bool{}
	for _, p := range added {
		if l := q.tasks[p].learned; !known[l.ID()] && q.faultless[l.ID()] != nil {
			known[l.ID()] = true
			q.drop(q.faultlessOf(l))
		}
	}
	for _, write := range q.refused {
		q.dropLike(write)
	}
}

// faultlessOf returns the counts of a workload. Those of an earlier session count if nothing has changed since. The
// caller holds the lock.
func (q *queue) faultlessOf(l *learn.Learned) *Faultless {
	source := sourceHash(l.Source)
	counts := q.faultless[l.ID()]
	if counts == nil || counts.Source != source {
		counts = &Faultless{Source: source}
		q.faultless[l.ID()] = counts
	}
	counts.learned = l
	return counts
}

// unrunPlans is how many plans that were not run a result describes.
const unrunPlans = 5

// finish adds the outcomes of plans, and the plans that were not run, to the result. Tasks are in the order in which
// all plans would begin if none had: so the order of the outcomes does not depend on when a workload was learned.
func (q *queue) finish(r *result.Result, tasks []*task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	pending := false
	for _, t := range tasks {
		if t.dropped || t.entry == nil {
			continue
		}
		if o := q.schedule.Outcome(t.entry); o != nil {
			r.Outcomes = append(r.Outcomes, *o)
			pending = pending || o.Pending
		}
	}
	for _, p := range q.schedule.Plans() {
		if q.schedule.Outcome(p) != nil {
			continue
		}
		if t := q.tasks[p]; len(r.NotRun) < unrunPlans {
			r.Next = append(r.Next, result.Unrun{
				Plan: p.Name, File: t.file, Workload: t.learned.Workload, Pattern: t.pattern, Why: t.why,
			})
		}
		r.NotRun = append(r.NotRun, p.Name)
	}
	r.Unstudied = q.schedule.Learning.Waiting(false)
	slices.Sort(r.Unstudied)
	if len(r.NotRun) > 0 || len(r.Unstudied) > 0 || pending {
		r.GoOn = q.store.goOn(q.schedule.Given())
	}
	for _, workload := range slices.Sorted(maps.Keys(q.faultless)) {
		if counts := q.faultless[workload]; counts.Failed > 0 && counts.learned != nil {
			r.Unlearned = append(r.Unlearned, result.Unlearned{
				Workload: counts.learned.Workload, Reason: counts.String(),
			})
		}
	}
	if q.denied > 0 {
		r.Dropped[deniedRule] += q.denied
	}
	r.Stopped, r.Took = q.schedule.Stopped(), q.clock.Elapsed()
}
