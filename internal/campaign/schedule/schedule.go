// Package schedule decides what a campaign runs next, and when it stops. It is a pure state machine: it starts no
// goroutines, reads no clock and does no I/O. Its caller reports what happens, such as the end of a plan, and when.
//
// Times are durations since the campaign began, including the time that it took before it was resumed.
package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Config has the limits of a campaign.
type Config struct {
	Budget
	Repeat   int  // how many runs must show a finding before it is confirmed
	FailFast bool // the campaign stops after the first bug
}

// Schedule is the state of a campaign. Its methods are not safe for concurrent use.
type Schedule struct {
	Config
	Learning *Learning
	plans    []*Plan // in the order in which those begin that have not begun
	done     map[string]*result.Outcome
	earlier  map[string]*result.Outcome // of an earlier session, whose plans are not known yet
	running  []string
	stopped  string // why no further plan begins; empty: plans begin
	failures int    // plans in a row that could not be run
	confirming
	forecast
}

// New returns the schedule of a campaign without plans.
func New(c Config) *Schedule {
	return &Schedule{
		Config: c, Learning: &Learning{Budget: c.Budget},
		done: map[string]*result.Outcome{}, earlier: map[string]*result.Outcome{},
		confirming: confirming{found: map[string]result.Outcome{}},
		forecast:   forecast{lasted: map[string]time.Duration{}},
	}
}

// Resume takes in what an earlier session of the campaign knew. Plans that could not be run are run again.
func (s *Schedule) Resume(spent time.Duration, outcomes []*result.Outcome) {
	s.Spent, s.Learning.Spent = spent, spent
	for _, o := range outcomes {
		if o.Status != result.Failed {
			s.earlier[o.Plan] = o
		}
	}
}

// Claimed is what an earlier session of the campaign knew of plans that are new to this one.
type Claimed struct {
	Known   int // plans whose outcomes count
	Changed int // plans that have changed since, and are run again
	// Pending are the plans whose findings are still to be confirmed, with their outcomes, which do not count until
	// then. The caller calls PutOff for a plan that can be confirmed now. Other plans are run again.
	Pending  []*Plan
	Outcomes []*result.Outcome
}

// Arrange takes in all plans that are known by now, in the order in which those begin that have not begun.
func (s *Schedule) Arrange(plans []*Plan) (c Claimed) {
	s.plans = plans
	s.estimate()
	for _, p := range plans {
		o := s.earlier[p.Name]
		if o == nil {
			continue
		}
		delete(s.earlier, p.Name)
		switch {
		case o.Key != p.Key:
			c.Changed++
		case o.Pending:
			c.Known++
			c.Pending, c.Outcomes = append(c.Pending, p), append(c.Outcomes, o)
		default:
			c.Known++
			s.done[p.Name] = o
			s.already(p, o)
		}
	}
	return c
}

// Forget forgets the outcomes of an earlier session whose plans are not in the campaign any more. It returns how many
// these are.
func (s *Schedule) Forget() int {
	n := len(s.earlier)
	clear(s.earlier)
	return n
}

// Drop takes away those of the given plans that have not begun. It returns these.
func (s *Schedule) Drop(which func(*Plan) bool) (dropped []*Plan) {
	var left []*Plan
	for _, p := range s.plans {
		if !p.begun && which(p) && s.Outcome(p) == nil && p.Known == nil {
			dropped = append(dropped, p)
		} else {
			left = append(left, p)
		}
	}
	s.plans = left
	return dropped
}

// Job is what a free worker does next. The zero value: nothing, because the campaign has ended for this worker.
type Job struct {
	Plan   *Plan  // to run
	Lesson string // ID of the workload to learn, if there is no Plan
	Wait   bool   // nothing now, but there may be something later
}

// Next returns what a free worker does. Learning has its share of the workers and of the time; see [Learning.Next].
// Plans that were put off come before others, as soon as they can go on. They have begun: they also go on if no new
// plan begins.
func (s *Schedule) Next(now time.Duration) Job {
	if s.stopped == "" {
		plans := s.unbegun() || slices.ContainsFunc(s.putOff, func(p *Plan) bool { return !s.inWork(p.Known) })
		if id := s.Learning.Next(now, plans); id != "" {
			return Job{Lesson: id}
		}
	}
	p := s.goOn(false)
	if p == nil {
		p = s.fresh(now)
	}
	if p == nil {
		p = s.goOn(true)
	}
	if p != nil {
		s.running = append(s.running, p.Name)
		return Job{Plan: p}
	}
	if len(s.putOff) > 0 || s.stopped == "" && s.Learning.Busy() {
		return Job{Wait: true}
	}
	if s.stopped == "" && len(s.Learning.Waiting(false)) > 0 {
		s.stopped = s.usedUp()
	}
	return Job{}
}

// unbegun reports whether there is a plan that has not begun.
func (s *Schedule) unbegun() bool { return slices.ContainsFunc(s.plans, s.mayBegin) }

// Begun reports whether a plan has begun, now or in an earlier session.
func (s *Schedule) Begun(p *Plan) bool { return !s.mayBegin(p) }

// mayBegin reports whether a plan has not begun, now or in an earlier session.
func (s *Schedule) mayBegin(p *Plan) bool { return !p.begun && s.done[p.Name] == nil && p.Known == nil }

// fresh returns the next plan that has not begun; nil: none begins.
func (s *Schedule) fresh(now time.Duration) *Plan {
	if s.stopped != "" {
		return nil
	}
	tooLong := false
	for _, p := range s.plans {
		switch {
		case !s.mayBegin(p):
		case !s.room(now, p):
			tooLong = true // others may take less
		default:
			p.begun = true
			s.begun++
			return p
		}
	}
	if tooLong {
		s.stopped = s.usedUp()
	}
	return nil
}

// room reports whether the budget leaves time for a plan, for confirming what it may find, and for confirming what does
// great harm and waits for that.
func (s *Schedule) room(now time.Duration, p *Plan) bool {
	return s.Holds(now, s.needs(s.Expected(p.Name, p.Estimate))+s.owed()/s.runners())
}

// needs returns how much of the budget must be left for a new plan to begin: the time for its run. As soon as a plan
// has found something, it is also the time for the runs that confirm what the new one may find.
func (s *Schedule) needs(run time.Duration) time.Duration {
	if s.confirmed == 0 && len(s.found) == 0 {
		return run
	}
	return run * time.Duration(1+s.Repeat)
}

// usedUp says what has used up the budget.
func (s *Schedule) usedUp() string {
	if s.begun == 0 && s.Spent == 0 {
		return fmt.Sprintf("the budget of %s was used up by learning", plan.FormatDuration(s.Given()))
	}
	return fmt.Sprintf("the budget of %s leaves no time for more", plan.FormatDuration(s.Given()))
}

// ManyFailures in a row show that something else than the plans is wrong.
const ManyFailures = 5

// End takes in the outcome of a plan. The error says that it makes no sense to go on.
func (s *Schedule) End(p *Plan, o *result.Outcome) error {
	s.ended(p.Name)
	delete(s.found, p.Name)
	s.done[p.Name] = o
	s.measure(p)
	if o.Status == result.Bug && s.FailFast && s.stopped == "" {
		s.stopped = "the campaign stops at the first bug"
	}
	if o.Status != result.Failed {
		s.failures = 0
		return nil
	}
	if s.failures++; s.failures == ManyFailures {
		s.stopped = fmt.Sprintf("%d plans in a row could not be run", s.failures)
		return errors.New(s.stopped + ", the last one because: " + o.Reason)
	}
	return nil
}

// Leave gives up a plan for which the budget is too short, as if it had not begun.
func (s *Schedule) Leave(p *Plan) {
	s.ended(p.Name)
	s.stopped = cmp.Or(s.stopped, s.usedUp())
}

func (s *Schedule) ended(plan string) {
	s.running = slices.DeleteFunc(s.running, func(name string) bool { return name == plan })
}

// Stopped says why no further plan begins; empty: plans begin.
func (s *Schedule) Stopped() string { return s.stopped }

// Plans returns the plans in the order in which those begin that have not begun.
func (s *Schedule) Plans() []*Plan { return s.plans }

// Done returns the outcome of the plan with a name; nil: the plan has not ended.
func (s *Schedule) Done(name string) *result.Outcome { return s.done[name] }

// Outcome returns what is known of a plan; nil: it was not run.
func (s *Schedule) Outcome(p *Plan) *result.Outcome {
	if o := s.done[p.Name]; o != nil {
		return o
	}
	return p.Before
}

// Outcomes returns what is known, in the order of the plans. Then come those of an earlier session whose plans are not
// known yet, in the order of their names.
func (s *Schedule) Outcomes() []*result.Outcome {
	all := []*result.Outcome{}
	for _, p := range s.plans {
		if o := s.Outcome(p); o != nil {
			all = append(all, o)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.earlier)) {
		all = append(all, s.earlier[name])
	}
	return all
}

// Like returns the plan whose findings are confirmed and include all of an outcome, of the same cause; empty: there is
// none.
func (s *Schedule) Like(o *result.Outcome) string {
	for _, name := range slices.Sorted(maps.Keys(s.done)) {
		known := s.done[name]
		if known.Status == result.Bug && known.Of >= s.Repeat && known.Cause == o.Cause &&
			confirm.Within(o.Findings, known.Findings) {
			return name
		}
	}
	return ""
}

// Doubtful reports whether another plan of the workload has found the same, but not every time. The finding may come by
// itself now and then, so that one run without a plan's actions does not show much.
func (s *Schedule) Doubtful(o *result.Outcome) bool {
	for _, known := range s.done {
		if known.Status == result.Unconfirmed && !known.Pending && known.Workload == o.Workload &&
			slices.ContainsFunc(known.Findings, func(f record.Finding) bool {
				return slices.ContainsFunc(o.Findings, f.Same)
			}) {
			return true
		}
	}
	return false
}
