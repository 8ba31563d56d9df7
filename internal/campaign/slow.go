package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// paces are those that may show that what a plan has found is a matter of time. The error is that of a record that
// cannot be read.
func (c *confirmer) paces(t *task, o *result.Outcome) ([]confirm.Pace, error) {
	ref := t.learned.Baseline
	return confirm.Paces(t.plan, c.stepsOf(t), ref, func() ([]baseline.Difference, error) {
		run, err := followed(o)
		if err != nil {
			return nil, err
		}
		return judge.Differences(ref, t.plan, run), nil
	})
}

func (c *Config) stepsOf(t *task) []plan.Step {
	return slices.Concat(t.plan.Steps, c.Suite.Workloads[t.plan.Workload].Steps)
}

// slowly runs a task's workload once with slow controllers, when a plan with that workload has found something. Many
// faults delay controllers, and what they write may depend on what they have had the time to see: objects that end like
// that are not a finding, if they end like that too when what the workload asks for in the end is created at once. Else
// a controller has missed something, which is a mistake even if it only has to be slow to make it. If the workload
// makes steps without waiting, that may include which objects there are: if it creates an object and changes it at
// once, there may be others for the first spec, or not.
func (c *confirmer) slowly(ctx context.Context, t *task, how confirm.Pace) error {
	return c.runOnce(t, how.Name, func() error {
		err := c.runSlowly(ctx, t, how)
		if errors.Is(err, schedule.ErrBudget) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			c.Say("%s: with slow controllers: %v", t.learned.Workload, err)
		}
		return nil
	})
}

func (c *confirmer) runSlowly(ctx context.Context, t *task, how confirm.Pace) error {
	p, err := confirm.Slow(t.plan, how, t.learned.Baseline.Controllers)
	if err != nil {
		return err
	}
	p.TestName = t.learned.ID() + "-" + how.Name
	p.Complete(c.Suite)
	r, meta, err := c.again(ctx, t, p, run.RunOptions{History: t.learned.Baseline.Types})
	if err != nil {
		return err
	}
	if meta.Verdict != record.Pass {
		return fmt.Errorf("it does not pass: %s", meta.Reason) // so how it ends says nothing
	}
	created := func(also *confirm.Pace) (*record.Run, error) {
		made, err := c.freshly(ctx, t, r, also)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, schedule.ErrBudget) {
			return nil, err
		}
		if err != nil {
			c.Say("%s: %v", t.learned.Workload, err)
		}
		return made, nil
	}
	fresh, err := created(nil)
	if err != nil {
		return err
	}
	var slowlyMade *record.Run
	if fresh != nil && t.learned.Baseline.AnyFinished() {
		if slowlyMade, err = created(&how); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.widen(t, r, func(ref *baseline.Baseline, r *record.Run) error {
		return ref.AllowSlow(r, fresh, slowlyMade, confirm.Waits(c.stepsOf(t)))
	})
	c.mu.Unlock()
	c.tried(t, how.Name)
	return nil
}
