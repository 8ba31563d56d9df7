package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/expr"
	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// control is a plan with everything but what it is about: what it finds, too, is due to something else.
type control struct {
	plan *plan.Plan
	how  string // what is different, in words
	due  string // what it means that all findings come with it, too
	anew bool   // what is created anew in the plan may end as if it had been created at once; see madeAnew
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
	return &control{
		plan: &p, how: "with the frozen process killed",
		due: "the same comes if the frozen process is killed and not thawed: it is not due to what the process does " +
			"too late",
	}
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
	return &control{
		plan: &p, how: "with no answer lost", anew: true,
		due: "the same comes if the answer is not lost: it is due to what the other client does",
	}
}

// restarted only restarts the controller where a plan shows it the past: when the controller is moved to an API server
// that is behind, or when deliveries to it or its reads begin to be held; a write that it is not to see is complete
// then. All else that shows it the past is left out. Nil: the plan does nothing like that, or it freezes processes, for
// which see killed.
func restarted(of *plan.Plan, suite *plan.Suite) (*control, error) {
	p := *of
	p.TestName += "-restarted"
	p.Actions = nil
	moves := slices.ContainsFunc(of.Actions, func(a plan.Action) bool { return a.Effects().Moves != nil })
	var waits []plan.Trigger // of actions that were left out since the last one that was not
	done := false
	for _, a := range of.Actions {
		e := a.Effects()
		controller := ""
		switch {
		case e.Freezes != "":
			return nil, nil
		case e.Moves != nil:
			controller = e.Moves.Controller
		case e.Pauses != nil && !e.Pauses.OfAPIServer() && !moves && !done:
			controller = e.Pauses.By
		case e.Pauses != nil, e.Resumes != nil:
			waits = append(waits, a.Trigger)
			continue
		}
		trigger, err := inTurn(append(waits, a.Trigger))
		if err != nil {
			return nil, err
		}
		if controller != "" {
			only, err := build.Plan("restart").Then(build.RestartController(controller).When(build.AtOnce())).Build()
			if err != nil {
				return nil, err
			}
			a, done = only.Actions[0], true
			for i := range trigger.Definitions {
				if at := &trigger.Definitions[i].Observe.Timing; *at == plan.BeforeControllerWrite {
					*at = plan.AfterControllerWrite
				}
			}
		}
		a.Trigger, waits = trigger, nil
		p.Actions = append(p.Actions, a)
	}
	if !done {
		return nil, nil
	}
	p.Complete(suite)
	return &control{plan: &p, how: "with a restart only"}, nil
}

// onlyRestarted says of a finding that the past is not needed for it.
const onlyRestarted = "the same comes if the controller is only restarted at that moment: it need not be shown the past"

// inTurn is satisfied when the triggers are, one after the other.
func inTurn(all []plan.Trigger) (plan.Trigger, error) {
	var t plan.Trigger
	var parts []string
	for n, one := range all {
		e, err := expr.Parse(one.Expression)
		if err != nil {
			return t, err
		}
		text := one.Expression
		prefix := ""
		if len(all) > 1 {
			prefix = fmt.Sprintf("%c-", 'a'+n) // they may have names in common
		}
		for _, name := range slices.Backward(e.Names()) {
			text = text[:name.Offset] + prefix + text[name.Offset:]
		}
		for _, d := range one.Definitions {
			d.Name = prefix + d.Name
			t.Definitions = append(t.Definitions, d)
		}
		parts = append(parts, "("+text+")")
	}
	t.Expression = strings.Join(parts, ";")
	return t, nil
}

// past runs a plan that shows a controller the past with a restart only, once, and returns what is found then. It is
// nil if the plan does nothing like that, or the run does not happen as planned. The error is errBudget, that of ctx,
// or of a record that cannot be read.
func (c *campaign) past(ctx context.Context, t *task, o *Outcome) ([]record.Finding, error) {
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
	with, err := restarted(t.plan, c.Suite)
	if err != nil || with == nil {
		return nil, err
	}
	c.showConfirming(with.plan, nil, 0, with.how, 0)
	r, meta, err := c.again(ctx, t, with.plan, c.options(t))
	o.AddRun(meta)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, errBudget):
		return nil, err
	case err != nil:
		c.say("%s: it could not be run %s: %v", o.Plan, with.how, err)
		return nil, nil
	case meta.ActionsFired < meta.ActionsTotal:
		return nil, nil
	}
	o.Restarted = r.Dir
	return confirm.Bugs(r.Findings), nil
}

// label says what an outcome's worst finding is due to. If it comes with a restart only, too, the past is not needed
// for it: work is interrupted, as in the plans of the pattern intermediate.
func (c *campaign) label(t *task, o *Outcome, restarted []record.Finding) {
	o.Cause, o.Pattern = findings.CauseOf(t.plan.Actions), t.pattern
	if o.Cause == findings.Stale && len(o.Findings) > 0 && slices.ContainsFunc(restarted, o.Findings[0].Same) {
		o.Cause = findings.Interrupted
		if o.Pattern != "" {
			o.Pattern = intermediate
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, confirming := c.confirming[o.Plan]; confirming && known.Cause != o.Cause {
		known.Cause = o.Cause
		c.confirming[o.Plan] = known
		c.changed.Broadcast()
	}
}

// intermediate is the pattern that only restarts controllers.
const intermediate = "intermediate"

// dueTo takes away the findings that a plan's control has, too, in any of some runs, and reports whether any are left:
// these are due to what the plan is about. If not, or if that cannot be known, the outcome's reason says so. Without a
// control all are left. The error is errBudget, that of ctx, or of a record that cannot be read.
func (c *campaign) dueTo(ctx context.Context, t *task, o *Outcome, with *control, times int) (bool, error) {
	if with == nil {
		return true, nil
	}
	left := slices.Clone(o.Findings)
	besides := func(found []record.Finding) bool {
		left = slices.DeleteFunc(left, func(f record.Finding) bool { return slices.ContainsFunc(found, f.Same) })
		if len(left) == 0 {
			o.Reason = with.due
		}
		return len(left) > 0
	}
	if with.anew {
		found, err := c.madeAnew(ctx, t)
		if err != nil || !besides(found) {
			return false, err
		}
	}
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
		case !besides(confirm.Bugs(r.Findings)):
			return false, nil
		}
	}
	o.Findings = left
	return true, nil
}

// madeAnew lists how the run differs from a workload's baseline in which all that the workload asks for in the end is
// created at once. What another client deletes and creates again in the middle of the workload may end like that.
func (c *campaign) madeAnew(ctx context.Context, t *task) ([]record.Finding, error) {
	if t.learned.Baseline == nil {
		return nil, nil
	}
	err := c.runOnce(t, "anew", func() error {
		p := t.undisturbed()
		p.TestName = t.learned.id() + "-before-fresh"
		p.Complete(c.Suite)
		done, _, err := c.again(ctx, t, &p, c.options(t))
		if err != nil {
			return err
		}
		fresh, err := c.freshlyAgain(ctx, t, done, nil)
		if err != nil || fresh == nil {
			return err
		}
		follower, err := facts.Follow(fresh)
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.anew[t.learned.id()] = differing(t.learned.Baseline, &p, follower)
		return nil
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, errBudget) {
			return nil, err
		}
		c.say("%s: what it asks for in the end, created at once: %v", t.learned.Workload, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.anew[t.learned.id()], nil
}
