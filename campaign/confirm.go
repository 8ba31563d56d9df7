package campaign

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/trommel-dev/trommel/record"
)

// confirm runs a plan again that has found something. What comes every time, and not without the plan's actions, is
// believed. The error is that of ctx.
func (c *campaign) confirm(ctx context.Context, t *task, o *Outcome) error {
	o.Status, o.Came, o.Of = Unconfirmed, 1, 1
	for o.Of < c.Repeat {
		r, _, err := c.once(ctx, t.plan, t.learned.Options())
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			o.Reason = fmt.Sprintf("it could not be run again: %v", err)
			return nil
		}
		o.Of++
		again := bugs(r.Findings)
		common := slices.DeleteFunc(slices.Clone(o.Findings), func(f record.Finding) bool {
			return !slices.ContainsFunc(again, f.Same)
		})
		if len(common) > 0 {
			o.Came++
			o.Findings = common
		}
	}
	if o.Came < o.Of {
		return nil
	}
	without, err := c.without(ctx, t)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		o.Reason = fmt.Sprintf("the workload could not be run without the plan's actions: %v", err)
		return nil
	}
	planOnly := slices.DeleteFunc(slices.Clone(o.Findings), func(f record.Finding) bool {
		return slices.ContainsFunc(without, f.Same)
	})
	if len(planOnly) == 0 {
		o.Status = OfWorkload
		return nil
	}
	o.Status, o.Findings = Bug, planOnly
	if c.Shrink != nil {
		return c.shrink(ctx, t, o)
	}
	return nil
}

// without runs the plan's workload without the plan's actions once more, and returns what all such runs of this campaign
// have found.
func (c *campaign) without(ctx context.Context, t *task) ([]record.Finding, error) {
	p, err := c.quiet(t.plan.Workload)
	if err != nil {
		return nil, err
	}
	p.TestName = t.plan.TestName + "-without"
	r, _, err := c.once(ctx, p, t.learned.Options())
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quietly == nil {
		c.quietly = map[string][]record.Finding{}
	}
	c.quietly[p.Workload] = append(c.quietly[p.Workload], bugs(r.Findings)...)
	return slices.Clone(c.quietly[p.Workload]), nil
}

// shrink looks for a smaller plan with the same finding. If that fails, the plan stays as it is.
func (c *campaign) shrink(ctx context.Context, t *task, o *Outcome) error {
	var runner Runner
	select {
	case runner = <-c.free:
		defer func() { c.free <- runner }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	file, err := c.Shrink(ctx, runner, t.learned, o, t.plan, filepath.Join(c.Dir, "smaller", o.Plan))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		c.say("%s: no smaller plan: %v", o.Plan, err)
	}
	o.Smaller = file
	return nil
}

// bugs are the findings about the controllers.
func bugs(all []record.Finding) []record.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f record.Finding) bool { return !f.IsBug() })
}
