package campaign

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// unhurried runs a task's workload without the plan's actions and with time between its steps, as long as the plan's
// run took, once, if the plan has found something that time may explain, see [confirm.MayBeOfTime]. Most faults delay a
// workload, and what controllers do by timers then comes before its next step or its end: they scale something down
// after 5 s, say, which they never do if it is deleted within 1 s. It reports whether the plan finds nothing any more,
// compared with that, too. The error is schedule.ErrBudget, that of ctx, or of a record that cannot be read.
func (c *confirmer) unhurried(
	ctx context.Context, t *task, o *result.Outcome, first *record.Meta,
) (passed bool, err error) {
	ref, steps := t.learned.Baseline, c.stepsOf(t)
	if ref == nil || !confirm.MayBeOfTime(o.Findings) || t.without != nil || !confirm.TakesTime(t.plan, steps) {
		return false, nil
	}
	between := confirm.Between(first.WorkloadEnd.Sub(first.WorkloadStart), ref.Virtual)
	name := "unhurried-" + plan.FormatDuration(between)
	err = c.runOnce(t, name, func() error { return c.runUnhurried(ctx, t, name, steps, between) })
	if err != nil || ctx.Err() != nil {
		return false, errors.Join(err, context.Cause(ctx))
	}
	now := c.options(t).Baseline
	if !slices.ContainsFunc(o.Findings, func(f record.Finding) bool {
		return f.Judge == record.JudgeRevert && now.AnyReturned(facts.Key(f.Subject))
	}) {
		return false, nil
	}
	return c.passesNow(ctx, t, o)
}

// runUnhurried is unhurried's run. The error is schedule.ErrBudget.
func (c *confirmer) runUnhurried(
	ctx context.Context, t *task, name string, steps []plan.Step, between time.Duration,
) error {
	p := t.undisturbed()
	p.TestName = t.learned.ID() + "-" + name
	confirm.Unhurried(&p, steps, between)
	p.Complete(c.Suite)
	r, meta, err := c.again(ctx, t, &p, c.options(t))
	ofMore := func(f record.Finding) bool {
		return f.Judge != record.JudgeBaseline && f.Judge != record.JudgeRevert
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, schedule.ErrBudget):
		return err
	case err != nil:
		c.Say("%s: with time between its steps: %v", t.learned.Workload, err)
	case meta.Verdict == record.Inconclusive || slices.ContainsFunc(confirm.Bugs(r.Findings), ofMore):
		// The workload is not one that can be given time.
	default:
		c.mu.Lock()
		c.widen(t, r, (*baseline.Baseline).AllowUnhurried)
		c.mu.Unlock()
	}
	c.tried(t, name)
	return nil
}
