package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// past runs a plan that shows a controller the past with a restart only, once, and returns what is found then. It is
// nil if the plan does nothing like that, or the run does not happen as planned. The error is schedule.ErrBudget, that
// of ctx, or of a record that cannot be read.
func (c *confirmer) past(ctx context.Context, t *task, o *result.Outcome) ([]record.Finding, error) {
	if o.Restarted != "" { // an earlier campaign has run it
		r, err := record.Open(o.Restarted)
		if err != nil {
			return nil, err
		}
		return confirm.Bugs(r.Findings), nil
	}
	if findings.CauseOf(t.plan.Actions) != findings.Stale {
		return nil, nil
	}
	with, err := confirm.Restarted(t.plan, c.Suite)
	if err != nil || with == nil {
		return nil, err
	}
	c.showConfirming(with.Plan, nil, 0, with.How, 0)
	r, meta, err := c.again(ctx, t, with.Plan, c.options(t))
	o.AddRun(meta)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, schedule.ErrBudget):
		return nil, err
	case err != nil:
		c.Say("%s: it could not be run %s: %v", o.Plan, with.How, err)
		return nil, nil
	case meta.ActionsFired < meta.ActionsTotal:
		return nil, nil
	}
	o.Restarted = r.Dir
	return confirm.Bugs(r.Findings), nil
}

// label says what an outcome's worst finding is due to. If it comes with a restart only, too, the past is not needed
// for it: work is interrupted, as in the plans of the pattern intermediate.
func (c *confirmer) label(t *task, o *result.Outcome, restarted []record.Finding) {
	o.Cause, o.Pattern = causeOf(t.plan), t.pattern
	if o.Cause == findings.Stale && len(o.Findings) > 0 && slices.ContainsFunc(restarted, o.Findings[0].Same) {
		o.Cause = findings.Interrupted
		if o.Pattern != "" {
			o.Pattern = intermediate
		}
	}
	c.queue.relabel(o.Plan, o.Cause)
}

// intermediate is the pattern that only restarts controllers.
const intermediate = "intermediate"

// dueTo takes away the findings that a plan's control has, too, in any of some runs, and reports whether any are left:
// these are due to what the plan is about. If not, or if that cannot be known, the outcome's reason says so. Without a
// control all are left. The error is schedule.ErrBudget, that of ctx, or of a record that cannot be read.
func (c *confirmer) dueTo(
	ctx context.Context, t *task, o *result.Outcome, with *confirm.Control, times int,
) (bool, error) {
	if with == nil {
		return true, nil
	}
	left := slices.Clone(o.Findings)
	besides := func(found []record.Finding) bool {
		left = with.Left(left, found)
		if len(left) == 0 {
			o.Reason = with.Due
		}
		return len(left) > 0
	}
	if with.Anew {
		found, err := c.madeAnew(ctx, t)
		if err != nil || !besides(found) {
			return false, err
		}
	}
	for range times {
		c.showConfirming(with.Plan, nil, 0, with.How, 0)
		r, _, err := c.again(ctx, t, with.Plan, c.options(t))
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case errors.Is(err, schedule.ErrBudget):
			return false, err
		case err != nil:
			o.Reason = fmt.Sprintf("it could not be run %s: %v", with.How, err)
			return false, nil
		case !besides(confirm.Bugs(r.Findings)):
			return false, nil
		}
	}
	o.Findings = left
	o.GoneIn(with.How)
	return true, nil
}

// later runs a plan that kills a controller with the kill a second later, and notes if the worst finding is gone then:
// it proves that the moment matters. Nothing else depends on it. The error is that of ctx.
func (c *confirmer) later(ctx context.Context, t *task, o *result.Outcome, worst record.Finding) error {
	with, err := confirm.Later(t.plan, c.Suite)
	if err != nil || with == nil {
		return nil // a plan that cannot be changed proves nothing
	}
	c.showConfirming(with.Plan, nil, 0, with.How, 0)
	r, meta, err := c.again(ctx, t, with.Plan, c.options(t))
	o.AddRun(meta)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil || meta.ActionsFired < meta.ActionsTotal:
	case !slices.ContainsFunc(confirm.Bugs(r.Findings), worst.Same):
		o.GoneIn(with.How)
	}
	return nil
}

// madeAnew lists how the run differs from a workload's baseline in which all that the workload asks for in the end is
// created at once. What another client deletes and creates again in the middle of the workload may end like that.
func (c *confirmer) madeAnew(ctx context.Context, t *task) ([]record.Finding, error) {
	if t.learned.Baseline == nil {
		return nil, nil
	}
	err := c.runOnce(t, "anew", func() error {
		p := t.undisturbed()
		p.TestName = t.learned.ID() + "-before-fresh"
		p.Complete(c.Suite)
		done, _, err := c.again(ctx, t, &p, c.options(t))
		if err != nil {
			return err
		}
		fresh, err := c.freshly(ctx, t, done, nil)
		if err != nil || fresh == nil {
			return err
		}
		follower, err := facts.Follow(fresh)
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.anew[t.learned.ID()] = differing(t.learned.Baseline, &p, follower)
		return nil
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, schedule.ErrBudget) {
			return nil, err
		}
		c.Say("%s: what it asks for in the end, created at once: %v", t.learned.Workload, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.anew[t.learned.ID()], nil
}
