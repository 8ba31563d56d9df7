package campaign

import (
	"context"
	"fmt"
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
	return nil
}

// without runs the plan without its actions once more, and returns what all such runs with its workload have found in
// this campaign.
func (c *campaign) without(ctx context.Context, t *task) ([]record.Finding, error) {
	if len(t.plan.Actions) == 0 {
		return nil, nil // what it finds is what it is for
	}
	p := *t.plan
	p.TestName += "-without"
	p.Actions = nil
	p.Complete(c.Suite)
	r, _, err := c.once(ctx, &p, t.learned.Options())
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quietly == nil {
		c.quietly = map[string][]record.Finding{}
	}
	w := t.learned.Workload
	c.quietly[w] = append(c.quietly[w], bugs(r.Findings)...)
	return slices.Clone(c.quietly[w]), nil
}

// bugs are the findings about the controllers.
func bugs(all []record.Finding) []record.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f record.Finding) bool { return !f.IsBug() })
}
