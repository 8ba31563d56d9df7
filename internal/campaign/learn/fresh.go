package learn

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

// Fresh is a run of one step: it creates what a workload asks for in the end. What the controllers make of that is
// right in any case, whatever there was before.
type Fresh struct {
	Suite    *plan.Suite
	Workload string      // its name, without the build
	Build    string      // see Learned
	Steps    []plan.Step // of the workload
	Pace     plan.Pace
	Baseline *baseline.Baseline
	Done     *record.Run   // a run of the workload
	Slow     *confirm.Pace // the controllers are slow in this way; nil: they are not
}

// Run carries it out. It returns nil if what the workload asks for is unknown. once runs a plan, and Run returns its
// error. A run that does not pass is an error.
func (f Fresh) Run(
	ctx context.Context,
	once func(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, *record.Meta, error),
) (*record.Run, error) {
	objects, clusters, ok, err := facts.Asked(f.Done, steps.FieldManager)
	if err != nil || !ok {
		return nil, err
	}
	p, err := confirm.Fresh(objects, clusters, f.Steps, f.Slow, f.Baseline.Controllers)
	if err != nil {
		return nil, err
	}
	w := workload{name: f.Workload, build: f.Build}
	p.TestName, p.Build, p.Pace = w.id()+p.TestName, f.Build, f.Pace
	p.Complete(f.Suite)
	if err := p.Validate(f.Suite); err != nil {
		return nil, err
	}
	r, meta, err := once(ctx, p, run.RunOptions{History: f.Baseline.Types})
	if err != nil {
		return nil, err
	}
	if meta.Verdict != record.Pass {
		return nil, fmt.Errorf("what it asks for in the end, created at once, does not pass: %s", meta.Reason)
	}
	return r, nil
}
