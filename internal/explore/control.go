package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// control is a plan with everything but what it is about: what it finds, too, is due to something else.
type control struct {
	plan *plan.Plan
	how  string // what is different, in words
	due  string // what it means that all findings come with it, too
}

// killed kills the processes that a plan thaws: a frozen leader also leaves its work undone until there is a new one,
// which may take longer than a workload waits. That is not due to what it does when it goes on. Nil: it thaws nothing.
func killed(of *plan.Plan) *control {
	p := *of
	p.TestName += "-killed"
	p.Actions = slices.Clone(p.Actions)
	thaws := false
	for i := range p.Actions {
		if e := p.Actions[i].Effects(); e.Thaws != "" && !e.Kills {
			p.Actions[i].Kill, thaws = true, true
		}
	}
	if !thaws {
		return nil
	}
	return &control{&p, "with the frozen process killed",
		"the same comes if the frozen process is killed and not thawed: it is not due to what the process does too late"}
}

// answered leaves out the lost answers of a plan in which another client writes: what was garbage of an object that the
// other client has deleted, for example, is missing afterwards in any case. Nil: there is no such thing in the plan.
func answered(of *plan.Plan) *control {
	p := *of
	p.TestName += "-answered"
	p.Actions = slices.DeleteFunc(slices.Clone(of.Actions), func(a plan.Action) bool {
		fails := a.Effects().Fails
		return fails != nil && fails.Answer == plan.Lost
	})
	if len(p.Actions) == len(of.Actions) ||
		!slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Effects().Writes }) {
		return nil
	}
	return &control{&p, "with no answer lost",
		"the same comes if the answer is not lost: it is due to what the other client does"}
}

// dueTo takes away the findings that a plan's control has, too, in any of some runs, and reports whether any are left:
// these are due to what the plan is about. If not, or if that cannot be known, the outcome's reason says so. Without a
// control all are left.
func (c *campaign) dueTo(ctx context.Context, t *task, o *Outcome, with *control, times int) (bool, error) {
	if with == nil {
		return true, nil
	}
	left := o.Findings
	for range times {
		c.showConfirming(with.plan, nil, 0, with.how, 0)
		r, _, err := c.again(ctx, t, with.plan, c.options(t))
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case errors.Is(err, errBudget):
			return false, err
		case err != nil:
			o.Reason = fmt.Sprintf("it could not be run %s: %v", with.how, err)
			return false, nil
		}
		found := bugs(r.Findings)
		left = slices.DeleteFunc(slices.Clone(left), func(f record.Finding) bool {
			return slices.ContainsFunc(found, f.Same)
		})
		if len(left) == 0 {
			o.Reason = with.due
			return false, nil
		}
	}
	o.Findings = left
	return true, nil
}
