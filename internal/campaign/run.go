package campaign

import (
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
	// Of a generated plan.
	pattern, why string
	entry        *schedule.Plan // what the schedule knows of it
	first        *record.Meta   // what its first run says, if the plan was put off
}

// prepare learns the workloads and generates their plans. It returns those that were learned.
func (c *campaign) prepare(ctx context.Context) ([]learn.Learned, error) {
	if err := os.MkdirAll(c.Dir, record.DirMode); err != nil {
		return nil, err
	}
	learned, err := c.learner.All(ctx)
	if err != nil {
		return nil, err
	}
	c.result.Unstudied = c.learner.Unstudied
	if c.learner.Cut {
		c.queue.learningTookAll()
	}
	later, err := c.learner.Later(ctx, learned)
	if err != nil {
		return nil, err
	}
	if c.Plans == nil {
		for i, s := range c.Suite.Generate.Skip {
			c.result.Skipped = append(c.result.Skipped, result.Skipped{At: c.Suite.SkipAt(i), What: s.String()})
		}
	}
	var all []learn.Learned
	between, err := c.between(learned)
	if err != nil {
		return nil, err
	}
	for i := range learned {
		for _, advice := range learned[i].Advice() {
			c.Say("%s: %s", learned[i].ID(), advice)
		}
	}
	for _, l := range slices.Concat(learned, later, between) {
		if l.Baseline != nil && len(l.Baseline.Unlisted) > 0 {
			if c.result.Unrecorded == nil {
				c.result.Unrecorded = map[string][]string{}
			}
			c.result.Unrecorded[l.Workload] = l.Baseline.Unlisted
		}
		if l.Err != nil {
			c.result.Unlearned = append(c.result.Unlearned, result.Unlearned{
				Workload: l.Workload, Reason: l.Err.Error(),
			})
		} else if c.Plans == nil && (l.Build == "" || l.Scope != "") {
			patterns := c.Patterns
			if l.Steps != nil {
				patterns = []string{pattern.Time} // what the others strike at, they do in the workload before
			}
			if l.Candidates == nil {
				l.Candidates = pattern.GenerateFor(c.Suite, l.Steps, l.Baseline, patterns...)
			}
			for i := range l.Candidates {
				if p := l.Candidates[i].Plan; p != nil && p.Pace == "" {
					p.Pace = l.Baseline.Pace
					if c.Pace != "" && l.Steps == nil { // the clock must not jump before rest
						p.Pace = c.Pace
					}
				}
			}
			plans := 0
			for _, candidate := range l.Candidates {
				switch {
				case candidate.Skipped > 0:
					c.result.Skipped[candidate.Skipped-1].Plans++
				case candidate.Plan == nil:
					c.result.Dropped[candidate.Dropped]++
				default:
					plans++
				}
			}
			if l.Scope != "" || !c.onlyUpgrades() {
				c.Say("%s: %s", l.ID(), wording.Count(plans, "plan"))
			}
		}
		if l.Build == "" || l.Scope != "" || c.Plans != nil { // the others only say what upgrades begin with
			all = append(all, l)
		}
	}
	c.result.Unreached, c.result.Suggested = c.unreached(all), c.suggest(all)
	return all, nil
}

// run runs the campaign.
func (c *campaign) run(ctx context.Context) error {
	if err := c.queue.resume(); err != nil {
		return err
	}
	c.learner.Resume(c.clock.Before())
	all, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	if c.Plans != nil {
		err = c.planTasks(all)
	} else {
		err = c.generatedTasks(all)
	}
	if err != nil {
		return err
	}
	c.queue.forgetOthers()
	c.queue.takeUp(c.SetNumber)
	c.queue.dropAgain()
	c.queue.foresee()
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
	if err := c.confirmer.join(); err != nil {
		return err
	}
	return c.shrinkAll(ctx)
}

// generatedTasks makes tasks of the generated plans, the most valuable ones first: see pattern.Order.
func (c *campaign) generatedTasks(all []learn.Learned) error {
	used := map[string]bool{}
	for _, place := range inOrder(all) {
		l := &all[place.Workload]
		candidate := &l.Candidates[place.Index]
		used[candidate.Pattern] = true
		if err := c.add(&task{
			plan: candidate.Plan, learned: l, pattern: candidate.Pattern, why: candidate.Why,
			without: candidate.Without,
		}); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(all, func(l learn.Learned) bool { return l.Baseline != nil }) {
		return nil // no pattern could have a plan
	}
	for _, p := range pattern.Patterns() {
		if !used[p.Name] && p.In(c.Patterns) && (p.Fits(c.Suite) || slices.Contains(c.Patterns, p.Name)) {
			c.result.Empty = append(c.result.Empty, p.Name)
		}
	}
	return nil
}

// inOrder is the order in which the workloads' plans are run.
func inOrder(all []learn.Learned) []pattern.Place {
	lists := make([][]pattern.Candidate, len(all))
	for i := range all {
		lists[i] = all[i].Candidates
	}
	return pattern.Order(lists...)
}

// planTasks makes tasks of the campaign's own plans.
func (c *campaign) planTasks(all []learn.Learned) error {
	for _, p := range c.Plans {
		l := &all[slices.IndexFunc(all, func(l learn.Learned) bool { return l.Workload == learn.IDOf(p) })]
		if err := c.add(&task{plan: p, file: p.File, learned: l, why: p.Description}); err != nil {
			return err
		}
	}
	return nil
}

// add adds a task, unless its plan is in another shard. It writes the plan's file if there is none.
func (c *campaign) add(t *task) error {
	nameless := *t.plan
	nameless.TestName, nameless.Description = "", ""
	content, err := plan.Marshal(&nameless)
	if err != nil {
		return err
	}
	if !c.Shard.Has(content) {
		c.result.Elsewhere++
		return nil
	}
	judged := struct {
		Source baseline.Source
		Masks  []baseline.MaskEntry
	}{Source: t.learned.Source}
	if ref := t.learned.Baseline; ref != nil {
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
	c.queue.add(t, learn.ShortHash(hash.Sum(nil)))
	return nil
}

// work runs plans until there are no more to begin. The error is that of ctx, or says that a campaign makes no sense.
func (c *campaign) work(ctx context.Context) error {
	defer context.AfterFunc(ctx, c.queue.wake)()
	for {
		t := c.queue.begin(ctx)
		if t == nil {
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
	}
}

// errPutOff says that a plan waits for another one.
var errPutOff = errors.New("another plan with the same findings is being confirmed")

// try runs a plan, and again if it finds something. The outcome is never nil. The error says that the plan could not be
// run, is errPutOff or schedule.ErrBudget, or that of ctx.
func (c *campaign) try(ctx context.Context, t *task) (*result.Outcome, error) {
	if known := t.entry.Known; known != nil {
		return known, c.confirmer.confirm(ctx, t, known, t.first)
	}
	t.learned = c.learner.Newest(t.learned)
	o := &result.Outcome{
		Plan: t.plan.TestName, File: t.file, Workload: t.learned.Workload, Pattern: t.pattern, Why: t.why,
		Key:    t.entry.Key,
		Judged: t.learned.Baseline != nil,
	}
	o.Actions, o.Triggers = size(t.plan)
	o.Cause, o.Struck = findings.CauseOf(t.plan.Actions), findings.StruckBy(t.plan.Actions)
	c.SetNumber(o.Plan, 0)
	if err := os.RemoveAll(c.Records(o.Plan)); err != nil { // of a campaign that was interrupted
		return o, err
	}
	brief := c.confirmer.options(t)
	brief.Brief = true
	r, meta, err := c.Once(ctx, t.plan, brief)
	o.AddRun(meta)
	if err == nil && meta.Verdict == record.Inconclusive && meta.ActionsFired < meta.ActionsTotal {
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
	o.Record = r.Dir
	for _, f := range r.Findings {
		if f.Judge == record.JudgeUpgrade {
			c.Say("%s: %s", o.Plan, f.Title)
		}
	}
	switch meta.Verdict {
	case record.Pass:
		o.Status, o.Reason = result.Passed, judge.Excused(r.Findings)
	case record.Bug:
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
func (c *campaign) unreached(all []learn.Learned) map[string][]string {
	missing := map[string][]string{}
	for i, b := range c.Binaries {
		if b.Manifest == nil {
			continue
		}
		name := c.Suite.Controllers[i].Name
		for _, point := range points(b.Manifest) {
			known := false
			reached := slices.ContainsFunc(all, func(l learn.Learned) bool {
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

// size counts a plan's actions and the definitions of their triggers.
func size(p *plan.Plan) (actions, triggers int) {
	for i := range p.Actions {
		triggers += len(p.Actions[i].Trigger.Definitions)
	}
	return len(p.Actions), triggers
}
