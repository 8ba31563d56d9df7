package campaign

import (
	"context"

	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// freshly creates at once what a task's workload asks for in the end, to confirm what the task's plan has found. See
// learn.Fresh.
func (c *confirmer) freshly(ctx context.Context, t *task, done *record.Run, slow *confirm.Pace) (*record.Run, error) {
	return learn.Fresh{
		Suite: c.Suite, Workload: t.learned.ID(), Build: t.plan.LastBuild(), Steps: c.stepsOf(t), Pace: t.plan.Pace,
		Baseline: t.learned.Baseline, Done: done, Slow: slow,
	}.Run(ctx, func(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, *record.Meta, error) {
		return c.again(ctx, t, p, o)
	})
}
