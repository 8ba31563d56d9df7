package campaign

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/record"
)

// harmless is the name of the runs with harmless faults among those that are not made again.
const harmless = "harmless"

// onlyStatus reports whether a plan has found only that a status describes what has happened. To know that, it runs the
// workload with harmless faults first, once. Then it runs the plan again, whose outcome is that of this run.
func (c *confirmer) onlyStatus(ctx context.Context, t *task, o *result.Outcome) (bool, error) {
	ref := c.options(t).Baseline
	if ref == nil || slices.ContainsFunc(o.Findings, func(f record.Finding) bool {
		return f.Judge != record.JudgeBaseline
	}) {
		return false, nil
	}
	first, err := followed(o)
	if err != nil || !ref.OnlyInStatus(judge.Differences(ref, t.plan, first)) {
		return false, err
	}
	if err := c.runOnce(t, harmless, func() error { return c.runHarmless(ctx, t) }); err != nil {
		return false, err
	}
	if ctx.Err() != nil || len(judge.Differences(c.options(t).Baseline, t.plan, first)) > 0 {
		return false, context.Cause(ctx)
	}
	return c.passesNow(ctx, t, o)
}

// passesNow runs a plan again when more is known of what does not count, and reports whether it passes. The outcome is
// that of this run then.
func (c *confirmer) passesNow(ctx context.Context, t *task, o *result.Outcome) (bool, error) {
	r, meta, err := c.again(ctx, t, t.plan, c.options(t))
	o.AddRun(meta)
	if err != nil || meta.Verdict != record.Pass {
		return false, err
	}
	o.Status, o.Record, o.Findings, o.Came, o.Of = result.Passed, r.Dir, nil, 0, 0
	return true, nil
}

// runHarmless runs the workload with harmless faults. The error is schedule.ErrBudget.
func (c *confirmer) runHarmless(ctx context.Context, t *task) error {
	c.Say("%s: what does a status keep? The workload is run with harmless faults", t.learned.Workload)
	for _, candidate := range pattern.Harmless(c.Suite, t.plan.Steps, t.learned.Baseline) {
		candidate.Plan.Build = t.plan.LastBuild()
		r, meta, err := c.again(ctx, t, candidate.Plan, c.options(t))
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, schedule.ErrBudget):
			return err
		case err != nil:
			c.Say("%s: %v", t.learned.Workload, err)
			continue
		case meta.Verdict == record.Inconclusive || meta.ActionsFired < meta.ActionsTotal ||
			slices.ContainsFunc(confirm.Bugs(r.Findings), func(f record.Finding) bool {
				return f.Judge != record.JudgeBaseline
			}):
			continue // it says nothing, or was not harmless
		}
		c.mu.Lock()
		c.widen(t, r, func(ref *baseline.Baseline, r *record.Run) error { return ref.Keep(r, candidate.Why) })
		c.mu.Unlock()
	}
	c.tried(t, harmless)
	return nil
}

// extra are runs that add something to a workload's baseline.
type extra struct {
	once sync.Once
	err  error // that of runOnce
}

// runOnce makes runs that add something to a workload's baseline, unless they were made before, by this campaign or an
// earlier one. It waits for those that are going on. The error is schedule.ErrBudget if they do not end within the
// budget.
func (c *confirmer) runOnce(t *task, name string, run func() error) error {
	c.mu.Lock()
	id := t.learned.ID() + "-" + name
	x := c.extra[id]
	if x == nil {
		x = &extra{}
		c.extra[id] = x
	}
	c.mu.Unlock()
	if slices.Contains(c.options(t).Baseline.Tried, name) {
		return nil
	}
	x.once.Do(func() { x.err = run() })
	return x.err
}

// tried notes that runs need not be made again.
func (c *confirmer) tried(t *task, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change(t, func(ref *baseline.Baseline) error {
		ref.Tried = append(slices.Clip(ref.Tried), name)
		return nil
	})
}
