package campaign

import (
	"context"
	"fmt"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/run"
	steps "github.com/trommel-dev/trommel/internal/workload"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// runner runs a plan and reads its record, as once does.
type runner func(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, *record.Meta, error)

// freshly runs a workload of one step: it creates what a workload of these steps asks for in the end. What the
// controllers make of that is right in any case, whatever there was before. Done is a run of the workload. With slow
// the controllers are slow. It returns nil if it cannot be told what the workload asks for, or if the run does not
// pass. An error of once, which runs plans, is returned.
func (c *Config) freshly(
	ctx context.Context, once runner, w workload, all []plan.Step, rest plan.Pace, ref *baseline.Baseline,
	done *record.Run, slow *confirm.Pace,
) (*record.Run, error) {
	objects, clusters, ok, err := facts.Asked(done, steps.FieldManager)
	if err != nil || !ok {
		return nil, err
	}
	p, err := confirm.Fresh(objects, clusters, all, slow, ref.Controllers)
	if err != nil {
		return nil, err
	}
	p.TestName, p.Build, p.Pace = w.id()+p.TestName, w.build, rest
	p.Complete(c.Suite)
	if err := p.Validate(c.Suite); err != nil {
		return nil, err
	}
	r, meta, err := once(ctx, p, run.RunOptions{History: ref.Types})
	if err != nil {
		return nil, err
	}
	if meta.Verdict != record.Pass {
		return nil, fmt.Errorf("what it asks for in the end, created at once, does not pass: %s", meta.Reason)
	}
	return r, nil
}

// freshlyAgain is freshly for a task's workload, to confirm what the task's plan has found.
func (c *confirmer) freshlyAgain(
	ctx context.Context, t *task, done *record.Run, slow *confirm.Pace,
) (*record.Run, error) {
	once := func(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, *record.Meta, error) {
		return c.again(ctx, t, p, o)
	}
	w := workload{name: t.learned.id(), build: t.plan.LastBuild()}
	return c.freshly(ctx, once, w, c.stepsOf(t), t.plan.Pace, t.learned.Baseline, done, slow)
}
