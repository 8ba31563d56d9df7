package campaign

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// task is a plan to run.
type task struct {
	plan    *plan.Plan
	file    string
	learned *learn.Learned
	without *plan.Plan // see pattern.Candidate
	key     string     // changes with whatever could change the outcome
	// Of a generated plan.
	candidate    *pattern.Candidate
	pattern, why string
	entry        *schedule.Plan // what the schedule knows of it
	dropped      bool           // it is not run; see queue.dropPlans
	first        *record.Meta   // what its first run says, if the plan was put off
}

// learnAll learns the workloads, without plans. The error is that of ctx.
func (c *campaign) learnAll(ctx context.Context) error {
	defer context.AfterFunc(ctx, c.queue.wake)()
	c.known = c.learner.Begin()
	var workers errgroup.Group
	for range max(1, len(c.Runners)) {
		workers.Go(func() error {
			for {
				id := c.queue.lesson(ctx)
				if id == "" {
					return context.Cause(ctx)
				}
				l, err := c.learner.Study(ctx, id)
				if l != nil {
					c.mu.Lock()
					c.known = append(c.known, l)
					c.mu.Unlock()
				}
				c.queue.ended(id)
				if err != nil {
					return err
				}
			}
		})
	}
	err := workers.Wait()
	slices.SortFunc(c.known, learn.ByPlace)
	return err
}

// takeIn generates the plans of workloads that were learned, or cannot be, and hands them to the queue, with those of
// the workloads before, in a new order. Lesson is the ID of the workload that was learned; empty: there is none.
func (c *campaign) takeIn(news []*learn.Learned, lesson string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.generate(news); err != nil {
		return err
	}
	c.queue.take(c.inOrder(c.queue.begun()), c.SetNumber, lesson)
	return nil
}

// generate makes the tasks of workloads that were learned, or cannot be. The caller holds the lock.
func (c *campaign) generate(news []*learn.Learned) error {
	for _, l := range news {
		if l.Place[0] == 0 {
			for _, advice := range l.Advice() {
				c.Say("%s: %s", l.ID(), advice)
			}
		}
	}
	c.known = append(c.known, news...)
	slices.SortFunc(c.known, learn.ByPlace)
	between, err := c.between(c.known)
	if err != nil {
		return err
	}
	c.known = append(c.known, between...)
	slices.SortFunc(c.known, learn.ByPlace)
	for _, l := range slices.Concat(news, between) {
		if err := c.makePlans(l); err != nil {
			return err
		}
	}
	return nil
}

// makePlans makes the tasks of a workload, and notes what the result says of it.
func (c *campaign) makePlans(l *learn.Learned) error {
	if l.Baseline != nil && len(l.Baseline.Unlisted) > 0 {
		if c.result.Unrecorded == nil {
			c.result.Unrecorded = map[string][]string{}
		}
		c.result.Unrecorded[l.Workload] = l.Baseline.Unlisted
	}
	if l.Err != nil {
		c.result.Unlearned = append(c.result.Unlearned, result.Unlearned{Workload: l.Workload, Reason: l.Err.Error()})
	}
	switch {
	case c.Plans != nil:
		for _, p := range c.Plans {
			if learn.IDOf(p) == l.Workload {
				if err := c.add(&task{plan: p, file: p.File, learned: l, why: p.Description}); err != nil {
					return err
				}
			}
		}
		return nil
	case l.Err != nil || l.Build != "" && l.Scope == "": // a build only says what upgrades begin with
		return nil
	}
	patterns := c.Patterns
	switch {
	case l.Steps != nil:
		patterns = []string{pattern.Time} // what the others strike at, they do in the workload before
	case len(patterns) == 0 && c.Budget > 0 && l.Baseline.Virtual:
		patterns = pattern.WithBudget()
	}
	if l.Candidates == nil {
		l.Candidates = pattern.GenerateFor(c.Suite, l.Steps, l.Moments(), patterns...)
	}
	plans := 0
	for i := range l.Candidates {
		candidate := &l.Candidates[i]
		switch p := candidate.Plan; {
		case candidate.Skipped > 0:
			c.result.Skipped[candidate.Skipped-1].Plans++
		case p == nil:
			c.result.Dropped[candidate.Dropped]++
		case p.Pace == "" && p.Schedule == nil:
			p.Pace = l.Baseline.Pace
			if c.Pace != "" && l.Steps == nil { // the clock must not jump before rest
				p.Pace = c.Pace
			}
		}
		if candidate.Plan == nil {
			c.tasks[l] = append(c.tasks[l], nil)
			continue
		}
		plans++
		if err := c.add(&task{
			plan: candidate.Plan, learned: l, candidate: candidate, pattern: candidate.Pattern, why: candidate.Why,
			without: candidate.Without,
		}); err != nil {
			return err
		}
	}
	if l.Scope != "" || !c.onlyUpgrades() {
		c.Say("%s: %s", l.ID(), wording.Count(plans, "plan"))
	}
	return nil
}

// planned are the workloads of which plans may be made.
func (c *campaign) planned() []*learn.Learned {
	return slices.DeleteFunc(slices.Clone(c.known), func(l *learn.Learned) bool {
		return l.Build != "" && l.Scope == "" && c.Plans == nil
	})
}

// inOrder returns the tasks in the order in which their plans are run: the most valuable ones first, see pattern.Order;
// or that of the campaign's own plans. Begun are those that do not begin any more; nil: none.
func (c *campaign) inOrder(begun map[*task]bool) (tasks []*task) {
	if c.Plans != nil {
		for _, l := range c.known {
			for _, t := range c.tasks[l] {
				if t != nil {
					tasks = append(tasks, t)
				}
			}
		}
		at := func(t *task) int { return slices.Index(c.Plans, t.plan) }
		slices.SortFunc(tasks, func(a, b *task) int { return cmp.Compare(at(a), at(b)) })
		return tasks
	}
	all := c.planned()
	lists := make([][]pattern.Candidate, len(all))
	for i, l := range all {
		lists[i] = l.Candidates
	}
	for _, place := range pattern.OrderAfter(func(p pattern.Place) bool {
		return begun[c.tasks[all[p.Workload]][p.Index]]
	}, lists...) {
		if t := c.tasks[all[place.Workload]][place.Index]; t != nil {
			tasks = append(tasks, t)
		}
	}
	return share(tasks, begun)
}

// run runs the campaign.
func (c *campaign) run(ctx context.Context) error {
	if err := c.queue.resume(); err != nil {
		return err
	}
	if err := c.takeIn(c.learner.Begin(), ""); err != nil {
		return err
	}
	if err := c.orderedBefore(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers errgroup.Group
	for range max(1, len(c.Runners)) {
		workers.Go(func() error {
			err := c.work(ctx)
			if err != nil {
				cancel(err)
			}
			return err
		})
	}
	if err := workers.Wait(); err != nil {
		return err
	}
	c.learner.End(c.queue.stopped())
	c.withoutPlans()
	if err := c.confirmer.join(); err != nil {
		return err
	}
	return c.shrinkAll(ctx)
}

// withoutPlans notes the patterns without a plan, unless no pattern could have one.
func (c *campaign) withoutPlans() {
	all := c.planned()
	if c.Plans != nil || !slices.ContainsFunc(all, func(l *learn.Learned) bool { return l.Baseline != nil }) {
		return
	}
	used := map[string]bool{}
	for _, l := range all {
		for i := range l.Candidates {
			used[l.Candidates[i].Pattern] = used[l.Candidates[i].Pattern] || l.Candidates[i].Plan != nil
		}
	}
	for _, p := range pattern.Patterns() {
		if !used[p.Name] && p.In(c.Patterns) && (p.Fits(c.Suite) || slices.Contains(c.Patterns, p.Name)) {
			c.result.Empty = append(c.result.Empty, p.Name)
		}
	}
}

// add adds a task to those of its workload, unless its plan is in another shard. It writes the plan's file if there is
// none.
func (c *campaign) add(t *task) error {
	nameless := *t.plan
	nameless.TestName, nameless.Description = "", ""
	content, err := plan.Marshal(&nameless)
	if err != nil {
		return err
	}
	if !c.Shard.Has(content) {
		c.result.Elsewhere++
		c.tasks[t.learned] = append(c.tasks[t.learned], nil)
		return nil
	}
	judged := struct {
		Source baseline.Source
		Masks  []baseline.MaskEntry
	}{Source: t.learned.Source}
	if ref := t.learned.Moments(); ref != nil {
		judged.Masks = ref.MaskEntries()
	}
	by, err := json.Marshal(judged)
	if err != nil {
		return err
	}
	hash := sha256.New()
	hash.Write(content)
	hash.Write(by)
	if t.file == "" {
		if t.file, err = c.write(t.plan); err != nil {
			return err
		}
	}
	t.key = learn.ShortHash(hash.Sum(nil))
	c.tasks[t.learned] = append(c.tasks[t.learned], t)
	return nil
}

// work runs plans and learns workloads until there is nothing more to begin. The error is that of ctx, or says that a
// campaign makes no sense.
func (c *campaign) work(ctx context.Context) error {
	defer context.AfterFunc(ctx, c.queue.wake)()
	for {
		t, lesson := c.queue.begin(ctx)
		switch {
		case lesson != "":
			var news []*learn.Learned
			l, err := c.learner.Study(ctx, lesson)
			if l != nil {
				news = append(news, l)
			}
			if err == nil {
				err = c.takeIn(news, lesson)
			}
			if err != nil {
				return err
			}
			continue
		case t == nil:
			return context.Cause(ctx)
		}
		o, err := c.try(ctx, t)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, errPutOff) {
			continue
		}
		if errors.Is(err, schedule.ErrBudget) {
			c.queue.leave(t)
			continue
		}
		if err != nil {
			o.Status, o.Reason = result.Failed, err.Error()
		}
		if err := c.queue.end(t, o); err != nil {
			return err
		}
		if err := c.ordered(t, o); err != nil {
			return err
		}
	}
}

// errPutOff says that a plan waits for another one.
var errPutOff = errors.New("another plan with the same findings is being confirmed")

// try runs a plan, and again if it finds something. The outcome is never nil. The error says that the plan could not be
// run, is errPutOff or schedule.ErrBudget, or that of ctx.
func (c *campaign) try(ctx context.Context, t *task) (*result.Outcome, error) {
	if known := t.entry.Known; known != nil && !t.learned.Unjudged() {
		return known, c.confirmer.confirm(ctx, t, known, t.first)
	}
	t.learned = c.learner.Newest(t.learned)
	o := &result.Outcome{
		Plan: t.plan.TestName, File: t.file, Workload: t.learned.Workload, Pattern: t.pattern, Why: t.why,
		Key:    t.entry.Key,
		Judged: t.learned.Baseline != nil,
	}
	o.Actions, o.Triggers = size(t.plan)
	o.Cause, o.Struck = causeOf(t.plan), findings.StruckBy(t.plan.Actions)
	c.SetNumber(o.Plan, 0)
	if err := os.RemoveAll(c.Records(o.Plan)); err != nil { // of a campaign that was interrupted
		return o, err
	}
	brief := c.confirmer.options(t)
	brief.Brief = t.pattern != pattern.Schedules // further plans follow from the record
	r, meta, err := c.Once(ctx, t.plan, brief)
	o.AddRun(meta)
	if err == nil && meta.Verdict == record.Inconclusive &&
		(meta.ActionsFired < meta.ActionsTotal || t.plan.Schedule != nil) {
		r, meta, err = c.Once(ctx, t.plan, c.confirmer.options(t)) // what it waits for may have been a matter of luck
		o.AddRun(meta)
	}
	if err != nil {
		return o, err
	}
	known := t.learned
	t.learned, err = c.learner.More(ctx, known, o.Plan, meta.Unrecorded)
	if err == nil && t.learned != known {
		r, meta, err = c.Once(ctx, t.plan, c.confirmer.options(t))
		o.AddRun(meta)
	}
	if err != nil {
		return o, err
	}
	if meta.Verdict == record.Bug && t.learned.Unjudged() {
		if r, meta, err = c.judge(ctx, t, o, r, meta); err != nil {
			return o, err
		}
	}
	o.Record = r.Dir
	for _, f := range r.Findings {
		if f.Judge == record.JudgeUpgrade {
			c.Say("%s: %s", o.Plan, f.Title)
		}
	}
	switch {
	case o.Status != "": // it cannot be judged
	case meta.Verdict == record.Pass:
		o.Status, o.Reason = result.Passed, judge.Excused(r.Findings)
	case meta.Verdict == record.Bug:
		o.Findings = confirm.Bugs(r.Findings)
		return o, c.confirmer.confirm(ctx, t, o, meta)
	default:
		o.Status, o.Reason = result.Inconclusive, meta.Reason
		o.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(f record.Finding) bool {
			return f.Severity == record.SeverityNote
		})
	}
	return o, nil
}

// judge makes the other runs of a workload without faults when one of its plans has found something. If the complete
// baseline could judge differently, the plan runs again, and that run counts. If there is no budget for that, or if
// the workload turns out to end differently without faults, the outcome has the findings, which are not confirmed.
// The error is that of ctx, or says that the plan could not be run.
func (c *campaign) judge(
	ctx context.Context, t *task, o *result.Outcome, r *record.Run, meta *record.Meta,
) (*record.Run, *record.Meta, error) {
	before := t.learned
	var err error
	t.learned, err = c.learner.Rest(ctx, before, o.Plan)
	switch {
	case errors.Is(err, schedule.ErrBudget), errors.Is(err, learn.ErrNoBaseline):
		o.Findings, o.Status, o.Came, o.Of = confirm.Bugs(r.Findings), result.Unconfirmed, 1, 1
		slices.SortStableFunc(o.Findings, record.ByHarm)
		if o.Reason, o.Pending = budgetEnded, errors.Is(err, schedule.ErrBudget); !o.Pending {
			o.Reason = err.Error()
			c.giveUp(before, o.Reason)
		}
		return r, meta, nil
	case err != nil:
		return r, meta, err
	case baseline.JudgeAlike(before.Baseline, t.learned.Baseline) && !slices.ContainsFunc(r.Findings, ofWaste):
		return r, meta, nil
	}
	r, meta, err = c.Once(ctx, t.plan, c.confirmer.options(t))
	o.AddRun(meta)
	return r, meta, err
}

// ofWaste reports whether a finding is one that depends on each run without faults.
func ofWaste(f record.Finding) bool { return f.Judge == record.JudgeWaste }

// giveUp takes away the plans of a workload that ends differently without faults, and notes that.
func (c *campaign) giveUp(l *learn.Learned, why string) {
	c.queue.giveUp(l)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.ContainsFunc(c.result.Unlearned, func(u result.Unlearned) bool { return u.Workload == l.Workload }) {
		c.result.Unlearned = append(c.result.Unlearned, result.Unlearned{Workload: l.Workload, Reason: why})
	}
}

// write writes a generated plan, so that it can be run by itself.
func (c *campaign) write(p *plan.Plan) (file string, err error) {
	file = filepath.Join(c.Dir, "plans", p.TestName+".yaml")
	own := *p
	own.Variant = c.Variant
	if own.Suite, err = relative(filepath.Dir(file), c.SuiteFile); err != nil {
		return "", err
	}
	data, err := plan.Marshal(&own)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(file), record.DirMode); err != nil {
		return "", err
	}
	return file, os.WriteFile(file, append([]byte(plan.EditorLine("TestPlan", c.Version)), data...), record.FileMode)
}

// relative is a path from a directory, as it is written in files that people read.
func relative(dir, file string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if file, err = filepath.Abs(file); err != nil {
		return "", err
	}
	path, err := filepath.Rel(dir, file)
	return filepath.ToSlash(path), err
}

// unreached lists the points that each controller has and that none of the workloads reaches.
func (c *campaign) unreached(all []*learn.Learned) map[string][]string {
	missing := map[string][]string{}
	for i, b := range c.Binaries {
		if b.Manifest == nil {
			continue
		}
		name := c.Suite.Controllers[i].Name
		for _, point := range points(b.Manifest) {
			known := false
			reached := slices.ContainsFunc(all, func(l *learn.Learned) bool {
				known = known || l.Baseline != nil
				return l.Baseline != nil && slices.Contains(l.Baseline.Reached[name], point)
			})
			if known && !reached {
				missing[name] = append(missing[name], point)
			}
		}
	}
	return missing
}

// causeOf is what a plan does to the controllers. If it has faults and a schedule, the faults count.
func causeOf(p *plan.Plan) string {
	if p.Schedule != nil && len(p.Actions) == 0 {
		return findings.Ordered
	}
	return findings.CauseOf(p.Actions)
}

// size counts a plan's actions and the definitions of their triggers.
func size(p *plan.Plan) (actions, triggers int) {
	for i := range p.Actions {
		triggers += len(p.Actions[i].Trigger.Definitions)
	}
	return len(p.Actions), triggers
}
