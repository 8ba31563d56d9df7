package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/campaign/lab"
	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/lead"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// confirmer confirms what plans have found.
type confirmer struct {
	*Config
	*lab.Lab
	queue *queue

	mu sync.Mutex // guards what follows
	// What runs without a plan's actions have found, by workload, and the baselines with how they ended.
	quietly map[string][]record.Finding
	widened map[*learn.Learned]*baseline.Baseline
	extra   map[string]*extra           // runs that add something to baselines, by workload and name
	anew    map[string][]record.Finding // what the workloads end like if all is created at once; see madeAnew
	still   map[string]*still           // the runs without actions, by the plan without its actions
}

// budgetEnded is why a finding is still to be confirmed.
const budgetEnded = "the budget ended before it was confirmed"

// confirm runs a plan again that has found something. What comes every time, and not without the plan's actions, is
// believed. What does great harm is also believed if it comes now and then, and never without the actions in as many
// runs. A finding that another plan has, too, is believed at once: most plans find one of a few bugs, and each further
// run takes long, since it waits until its timeout for an end that does not come. So a plan is put off while another
// one is being confirmed that has found the same, or if confirming has its share of the budget. The error is errPutOff,
// that of ctx, or of a record that cannot be read.
func (c *confirmer) confirm(ctx context.Context, t *task, o *result.Outcome, first *record.Meta) error {
	o.Status, o.Reason, o.Came, o.Of, o.Pending = result.Unconfirmed, "", 1, 1, false
	err := c.believe(ctx, t, o, first)
	if errors.Is(err, schedule.ErrBudget) {
		o.Status, o.Reason, o.Pending = result.Unconfirmed, budgetEnded, true
		return nil
	}
	return err
}

// believe is confirm of an outcome that says nothing yet. The error is also schedule.ErrBudget.
func (c *confirmer) believe(ctx context.Context, t *task, o *result.Outcome, first *record.Meta) error {
	slices.SortStableFunc(o.Findings, record.ByHarm)
	if confirm.Idle(t.plan, first) {
		o.Status, o.Reason = result.OfWorkload, first.NotHappened()
		r, err := record.Open(o.Record)
		if err == nil {
			c.quiet(t, r)
		}
		return err
	}
	if explained, err := c.explained(t, o); err != nil || explained {
		return err
	}
	if t.without != nil {
		// What a former build has left for good comes with each of its plans.
		err := c.without(ctx, t, o, 1)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, schedule.ErrBudget):
			return err
		}
		if explained, err := c.explained(t, o); err != nil || explained {
			return err
		}
	}
	if !c.queue.confirms(t, o, first) {
		return errPutOff
	}
	if c.takenFor(o) {
		return nil
	}
	if only, err := c.onlyStatus(ctx, t, o); err != nil || only {
		return err
	}
	paces, err := c.paces(t, o)
	if err != nil {
		return err
	}
	for _, how := range paces {
		if err := c.slowly(ctx, t, how); err != nil {
			return err
		}
		if explained, err := c.explained(t, o); err != nil || explained {
			return err
		}
	}
	if passed, err := c.unhurried(ctx, t, o, first); err != nil || passed {
		return err
	}
	if explained, err := c.explained(t, o); err != nil || explained {
		return err
	}
	for _, with := range []*confirm.Control{
		confirm.Answered(t.plan), confirm.Quietly(t.plan, c.stepsOf(t), c.Suite),
	} {
		if due, err := c.dueTo(ctx, t, o, with, 1); err != nil || !due {
			return err
		}
	}
	restarted, err := c.past(ctx, t, o)
	if err != nil {
		return err
	}
	c.label(t, o, restarted)
	if c.takenFor(o) {
		return nil
	}
	rare, err := c.repeat(ctx, t, o)
	if err != nil || o.Reason != "" || o.Findings == nil {
		return err
	}
	if o.Came < o.Of && !rare {
		return nil
	}
	quiet := 1
	switch {
	case rare:
		quiet = o.Of - c.learnedRuns(t)
	case c.queue.doubtful(o) || confirm.Jumps(c.stepsOf(t)):
		quiet = c.Repeat
	}
	if err := c.without(ctx, t, o, max(1, quiet)); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, schedule.ErrBudget) {
			return err
		}
		o.Reason = fmt.Sprintf("the workload could not be run without the plan's actions: %v", err)
		return nil
	}
	if explained, err := c.explained(t, o); err != nil || explained {
		return err
	}
	if due, err := c.dueTo(ctx, t, o, confirm.Killed(t.plan), 1); err != nil || !due {
		return err
	}
	// Once was before; who is faster may decide what another client leads to.
	times := c.Repeat - 1
	if rare {
		times = max(1, quiet)
	}
	if due, err := c.dueTo(ctx, t, o, confirm.Answered(t.plan), times); err != nil || !due {
		return err
	}
	o.Status = result.Bug
	o.GoneIn("without the plan's actions")
	c.label(t, o, restarted)
	if o.Restarted != "" && o.Cause == findings.Stale {
		o.GoneIn("with a restart only")
	}
	var why []string
	if o.Cause != causeOf(t.plan) {
		why = append(why, fmt.Sprintf("%s (%s)", confirm.OnlyRestarted, o.Restarted))
	}
	if rare {
		why = append(why, fmt.Sprintf("it does not come every time, but never came in %s without the plan's actions",
			wording.Count(max(1, quiet)+c.learnedRuns(t), "run")))
	}
	o.Reason = strings.Join(why, "; ")
	return c.trace(ctx, t, o)
}

// trace runs the plan of a bug once more to see what led to the worst finding, if the budget has the time. If the
// finding does not come then, nothing is known. The error is that of ctx.
func (c *confirmer) trace(ctx context.Context, t *task, o *result.Outcome) error {
	if !c.Trace {
		return nil
	}
	c.showConfirming(t.plan, o, o.Of+1, "to see what led to it", 1)
	how := c.options(t)
	how.Trace = true
	r, meta, err := c.again(ctx, t, t.plan, how)
	o.AddRun(meta)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return nil // that it is a bug is known already
	}
	worst := slices.MinFunc(o.Findings, record.ByHarm)
	bugs := confirm.Bugs(r.Findings)
	if i := slices.IndexFunc(bugs, worst.Same); i >= 0 {
		if l := lead.Of(r, bugs[i]); l != nil {
			o.Lead, o.Traced = l, r.Dir
		}
	}
	return c.later(ctx, t, o, worst)
}

// repeat runs a plan again and sees what comes again. The outcome's findings are then those that came every time; if
// something worse came now and then, rare, it comes first, and the outcome says how often it came. If nothing came
// every time, the findings are those that came most often. A reason says why that is not known.
func (c *confirmer) repeat(ctx context.Context, t *task, o *result.Outcome) (rare bool, err error) {
	tally := confirm.NewTally(o.Findings, c.Repeat)
	incomplete := ""
	for tally.More() {
		c.showConfirming(t.plan, o, tally.Tries()+1, fmt.Sprintf("run %d of %d", tally.Of()+1, tally.Wants()),
			tally.Wants()-tally.Of()+1)
		r, meta, err := c.again(ctx, t, t.plan, c.options(t))
		o.AddRun(meta)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if errors.Is(err, schedule.ErrBudget) {
			o.Came = tally.CameFirst()
			return false, err
		}
		if err != nil {
			o.Reason = fmt.Sprintf("it could not be run again: %v", err)
			return false, nil
		}
		if confirm.Idle(t.plan, meta) {
			c.quiet(t, r)
		}
		if meta.Verdict == record.Inconclusive || confirm.Idle(t.plan, meta) {
			incomplete = cmp.Or(meta.Reason, meta.NotHappened())
			tally.Skip()
			continue
		}
		tally.Take(confirm.Bugs(r.Findings))
		o.Of = tally.Of()
	}
	o.Findings, o.Came, rare = tally.Kept()
	if o.Of < c.Repeat {
		o.Reason = fmt.Sprintf("only %d of %d runs could be completed; the last other one: %s", o.Of, c.Repeat,
			incomplete)
	}
	return rare, nil
}

// learnedRuns is how many runs without faults the workload's baseline is made of. None of them has found anything.
func (c *confirmer) learnedRuns(t *task) int {
	if t.learned.Baseline == nil {
		return 0
	}
	return t.learned.Baseline.Runs
}

// explainedBy reports whether runs without a plan's actions explain all its findings.
func (c *confirmer) explainedBy(t *task, o *result.Outcome) (bool, error) {
	planOnly, err := c.planOnly(t, o)
	return len(planOnly) == 0, err
}

// explained takes away the findings that runs without a plan's actions explain, and reports whether these are all.
func (c *confirmer) explained(t *task, o *result.Outcome) (bool, error) {
	planOnly, err := c.planOnly(t, o)
	if err != nil {
		return false, err
	}
	if len(planOnly) == 0 {
		o.Status = result.OfWorkload
		o.Reason, err = c.excuse(t, o)
		return true, err
	}
	o.Findings = planOnly
	return false, nil
}

// excuse says why what a plan has found does not count: which other run has ended like that. Empty: runs without the
// plan's actions have found the same.
func (c *confirmer) excuse(t *task, o *result.Outcome) (string, error) {
	ref := c.options(t).Baseline
	if ref == nil {
		return "", nil
	}
	run, err := followed(o)
	if err != nil {
		return "", err
	}
	var all []string
	for _, f := range better(ref, t.plan, run) {
		all = append(all, f.Title)
	}
	for _, x := range ref.Excuses(run.Objects()) {
		if line := fmt.Sprintf("%s ends like that %s", x.Differences[0].Key, x.How); !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return strings.Join(all, "; "), nil
}

// takenFor reports whether an outcome is a bug because a confirmed one has the same findings. It says so there.
func (c *confirmer) takenFor(o *result.Outcome) bool {
	like := c.queue.like(o)
	if like != "" {
		o.Status, o.Like, o.Reason = result.Bug, like, "the same findings as those of "+like
	}
	return like != ""
}

// again runs a plan to confirm what the task's has found. The error is schedule.ErrBudget if the run is not expected to
// end within the budget.
func (c *confirmer) again(
	ctx context.Context, t *task, p *plan.Plan, o run.RunOptions,
) (*record.Run, *record.Meta, error) {
	if !c.queue.holdsRuns(1, p.TestName, costOf(t, p)) {
		return nil, nil, schedule.ErrBudget
	}
	if !p.Disturbs() && p != t.plan {
		o.Shift = learn.Shift(c.Learn + 1 + c.Number(p.TestName)) // learning has the first ones
	}
	r, meta, err := c.Once(ctx, p, o)
	if meta != nil {
		c.queue.confirmed(meta.Took())
	}
	return r, meta, err
}

// without runs the workload without a plan's actions, until that was done the given number of times. All plans that
// have it share these runs.
func (c *confirmer) without(ctx context.Context, t *task, o *result.Outcome, times int) error {
	if !t.plan.Disturbs() {
		return nil // what it finds is what it is for
	}
	p := t.undisturbed()
	content, err := plan.Marshal(&p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	s := c.still[string(content)]
	if s == nil {
		s = &still{name: t.learned.ID() + confirm.WithoutActionsSuffix}
		for n := 2; slices.ContainsFunc(slices.Collect(maps.Values(c.still)), func(o *still) bool {
			return o.name == s.name
		}); n++ {
			s.name = fmt.Sprintf("%s%s-%d", t.learned.ID(), confirm.WithoutActionsSuffix, n)
		}
		c.still[string(content)] = s
	}
	c.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	p.TestName = s.name
	p.Complete(c.Suite)
	for s.runs < times {
		c.showConfirming(&p, o, max(1, o.Of), fmt.Sprintf("without the plan's actions, run %d of %d", s.runs+1, times),
			times-s.runs)
		r, meta, err := c.again(ctx, t, &p, c.options(t))
		o.AddRun(meta)
		if err != nil {
			return err
		}
		s.runs++
		c.quiet(t, r)
		if explained, err := c.explainedBy(t, o); err != nil || explained {
			return err
		}
	}
	return nil
}

// undisturbed is what is left of a task's plan without its actions, without a name. A plan that upgrades is compared
// with what its last build does alone.
func (t *task) undisturbed() plan.Plan {
	if t.without != nil {
		p := *t.without
		p.TestName, p.Description, p.File, p.Pace = "", "", "", t.plan.Pace
		return p
	}
	return confirm.Undisturbed(t.plan)
}

// still are the runs of a workload without actions.
type still struct {
	name string
	mu   sync.Mutex // held while one goes on
	runs int
}

// quiet takes in a run with a plan's workload in which no action of a plan was carried out: what it has found is not a
// plan's, and where it ended differently from the baseline, other runs may end like it.
func (c *confirmer) quiet(t *task, r *record.Run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := t.learned.ID()
	c.quietly[w] = append(c.quietly[w], confirm.Bugs(r.Findings)...)
	allow := (*baseline.Baseline).Allow
	if t.without != nil && t.without.Upgrades() {
		allow = (*baseline.Baseline).AllowUpgraded
	}
	c.widen(t, r, allow)
	c.count(t, r)
}

// widen adds what a run shows to the baseline that the next runs are compared with. c.mu is held.
func (c *confirmer) widen(t *task, r *record.Run, allow func(*baseline.Baseline, *record.Run) error) {
	c.change(t, func(ref *baseline.Baseline) error {
		if err := allow(ref, r); err != nil {
			return fmt.Errorf("%s: %w", r.Dir, err)
		}
		return nil
	})
}

// change changes the baseline that the next runs are compared with, and keeps what is new for others. c.mu is held.
func (c *confirmer) change(t *task, what func(*baseline.Baseline) error) {
	ref := c.widened[t.learned]
	if ref == nil {
		ref = t.learned.Baseline
	}
	if ref == nil {
		return
	}
	wider := *ref // runs that are going on read it
	wider.Alternatives = slices.Clone(ref.Alternatives)
	if err := what(&wider); err != nil {
		c.Say("%v", err)
		return
	}
	wider.Later(len(ref.Alternatives))
	c.widened[t.learned] = &wider
	if len(wider.Alternatives) == len(ref.Alternatives) && len(wider.Kept) == len(ref.Kept) &&
		len(wider.Tried) == len(ref.Tried) {
		return
	}
	if err := wider.WriteAllowed(t.learned.Allowed); err != nil {
		c.Say("%v", err)
	}
}

// options are those of the next run of a plan.
func (c *confirmer) options(t *task) run.RunOptions {
	o := t.learned.Options()
	c.mu.Lock()
	defer c.mu.Unlock()
	if wider := c.widened[t.learned]; wider != nil {
		o.Baseline = wider
	}
	return o
}

// planOnly returns the findings of an outcome that no run without a plan's actions explains. A run explains a finding
// if it ends like the plan's, or if it has a finding that the plan's joins.
func (c *confirmer) planOnly(t *task, o *result.Outcome) ([]record.Finding, error) {
	var before, after []record.Finding // how its first run differs
	var nearer []record.Finding        // what is wrong without any fault
	if ref := t.learned.Baseline; ref != nil {
		followed, err := followed(o)
		if err != nil {
			return nil, err
		}
		before, nearer = differing(ref, t.plan, followed), better(ref, t.plan, followed)
		after = differing(c.options(t).Baseline, t.plan, followed)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	quietly := c.quietly[t.learned.ID()]
	return slices.DeleteFunc(slices.Clone(o.Findings), func(f record.Finding) bool {
		same := func(d record.Finding) bool { return d.Subject == f.Subject && (f.Harm == "" || d.Same(f)) }
		if f.Judge == record.JudgeBaseline && slices.ContainsFunc(nearer, f.Same) {
			return true
		}
		if f.Judge == record.JudgeBaseline && slices.ContainsFunc(before, same) && !slices.ContainsFunc(after, same) {
			return true
		}
		return confirm.Comes(f, quietly)
	}), nil
}

// followed is what happened in the first run of an outcome's plan.
func followed(o *result.Outcome) (*facts.Follower, error) {
	r, err := record.Open(o.Record)
	if err != nil {
		return nil, err
	}
	return facts.Follow(r)
}

// differing are the findings that a run of a plan differs from a baseline, and better those of them by which it is
// nearer to what an object's status promises.
func differing(ref *baseline.Baseline, p *plan.Plan, f *facts.Follower) []record.Finding {
	return findingsOf(ref, p, f, func(t findings.Part) bool { return !t.Nearer })
}

func better(ref *baseline.Baseline, p *plan.Plan, f *facts.Follower) []record.Finding {
	return findingsOf(ref, p, f, func(t findings.Part) bool { return t.Nearer })
}

func findingsOf(
	ref *baseline.Baseline, p *plan.Plan, f *facts.Follower, which func(findings.Part) bool,
) (all []record.Finding) {
	for _, part := range judge.Parts(ref, p, f, nil) {
		if which(part) {
			all = append(all, part.Finding)
		}
	}
	return all
}
