package campaign

import (
	"context"
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/record"
)

// confirm runs a plan again that has found something. What comes every time, and not without the plan's actions, is
// believed. The error is that of ctx.
func (c *campaign) confirm(ctx context.Context, t *task, o *Outcome, first *record.Meta) error {
	o.Status, o.Came, o.Of = Unconfirmed, 1, 1
	if idle(t, first) {
		o.Status, o.Reason = OfWorkload, first.NotHappened()
		return nil
	}
	for o.Of < c.Repeat {
		r, meta, err := c.once(ctx, t.plan, t.learned.Options())
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			o.Reason = fmt.Sprintf("it could not be run again: %v", err)
			return nil
		}
		o.Of++
		again := bugs(r.Findings)
		if idle(t, meta) {
			c.quiet(t, again)
		}
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
	return c.quiet(t, bugs(r.Findings)), nil
}

// quiet takes what was found with a plan's workload in a run without a plan's actions, and returns all such findings of
// this campaign.
func (c *campaign) quiet(t *task, found []record.Finding) []record.Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quietly == nil {
		c.quietly = map[string][]record.Finding{}
	}
	w := t.learned.Workload
	c.quietly[w] = append(c.quietly[w], found...)
	return slices.Clone(c.quietly[w])
}

// idle reports whether a run carried out none of its plan's actions: what it has found is not the plan's.
func idle(t *task, m *record.Meta) bool { return len(t.plan.Actions) > 0 && m.ActionsFired == 0 }

// bugs are the findings about the controllers.
func bugs(all []record.Finding) []record.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f record.Finding) bool { return !f.IsBug() })
}
