package campaign

import (
	"context"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Shrinking is a confirmed finding whose plan may be larger than it must be.
type Shrinking struct {
	Plan    *plan.Plan
	Learned *learn.Learned
	Options run.RunOptions // of the plan's runs; they know what the campaign has learned on its way
	Finding record.Finding // that the smaller plan must have
	Dir     string         // for run records; created
	// File is where the smaller plan is written to, so that it can be run by itself. If there is none, nothing is
	// written.
	File string
}

// shrinkAll looks for a smaller plan for each group of bugs. If that fails, the plan stays as it is. The error is that
// of ctx.
func (c *campaign) shrinkAll(ctx context.Context) error {
	if c.Shrink == nil {
		return nil
	}
	var bugs []result.Outcome
	tasks := map[string]*task{}
	all, outcomes := c.queue.all()
	for i, t := range all {
		tasks[t.plan.TestName] = t
		if o := outcomes[i]; o != nil && o.Status == result.Bug {
			bugs = append(bugs, *o)
		}
	}
	var group errgroup.Group
	for _, g := range result.Groups(bugs) {
		t, o := tasks[g.Plans[0].Plan], c.queue.done(g.Plans[0].Plan)
		if o.Smaller != "" {
			continue // before the campaign was resumed
		}
		if o.Like == "" && o.Came < o.Of {
			c.Say("%s: no smaller plan is looked for, because the finding does not come every time", o.Plan)
			continue
		}
		group.Go(func() error { return c.shrinkOne(ctx, t, o, g.Finding) })
	}
	return group.Wait()
}

func (c *campaign) shrinkOne(ctx context.Context, t *task, o *result.Outcome, f record.Finding) error {
	runner, err := c.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release(runner)
	c.Say("%s: looking for a smaller plan with the same finding", o.Plan)
	s := Shrinking{
		Plan: t.plan, Learned: t.learned, Options: c.confirmer.options(t), Finding: f,
		Dir:  filepath.Join(c.Dir, "smaller", "runs", o.Plan),
		File: filepath.Join(c.Dir, "smaller", o.Plan+".yaml"),
	}
	alone, err := c.Shrink(ctx, runner, s)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		c.Say("%s: no smaller plan: %v", o.Plan, err)
		return nil
	}
	return c.queue.change(func() { o.Smaller, o.Alone = s.File, alone })
}
