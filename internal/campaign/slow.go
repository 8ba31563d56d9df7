package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// pace is how slow controllers are: they read for a time, and then not for a time, again and again. A step of the
// workload that waits for them ends while they may read; the next steps must come when they may not, so that they see
// several as one.
type pace struct {
	name       string // in that of the plan
	open, shut time.Duration
	times      int
}

var (
	slowPace = pace{"slow", 50 * time.Millisecond, 500 * time.Millisecond, 50}
	// slowerPace is for workloads that wait only for a time, and for plans that hold controllers for seconds.
	slowerPace = pace{"slower", 50 * time.Millisecond, 6 * time.Second, 8}
)

// paces are those that may show that what a plan has found is a matter of time. The error is that of a record that
// cannot be read.
func (c *campaign) paces(t *task, o *Outcome) ([]pace, error) {
	if t.learned.Baseline == nil || len(t.learned.Baseline.Controllers) == 0 || len(t.plan.Actions) == 0 {
		return nil, nil
	}
	steps := c.stepsOf(t)
	if waits(steps) {
		followed, err := followed(o)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(judge.Differences(t.learned.Baseline, t.plan, followed),
			func(d baseline.Difference) bool { return d.Field != "" }) {
			return nil, nil // only fields could be explained
		}
	}
	finished := t.learned.Baseline.AnyFinished()
	if slices.ContainsFunc(steps, func(s plan.Step) bool { return s.Sleep > 0 }) ||
		slices.ContainsFunc(t.plan.Actions, func(a plan.Action) bool {
			pause := a.Effects().Pauses
			return pause != nil && (finished || !pause.OfAPIServer())
		}) {
		return []pace{slowPace, slowerPace}, nil
	}
	return []pace{slowPace}, nil
}

func (c *campaign) stepsOf(t *task) []plan.Step {
	return slices.Concat(t.plan.Steps, c.Suite.Workloads[t.plan.Workload].Steps)
}

// waits reports whether a workload always waits for something between two changes that it makes.
func waits(steps []plan.Step) bool {
	changed := false
	for _, s := range steps {
		switch {
		case s.Wait != nil:
			changed = false
		case s.Sleep > 0, s.AdvanceTime > 0:
		case changed:
			return false
		default:
			changed = true
		}
	}
	return true
}

// slowly runs a task's workload once with slow controllers, when a plan with that workload has found something. Many
// faults delay controllers, and what they write may depend on what they have had the time to see: objects that end like
// that are no finding, if they end like that too when what the workload asks for in the end is created at once. Else a
// controller has missed something, which is a mistake even if it only has to be slow to make it. If the workload makes
// steps without waiting, that may include which objects there are: if it creates an object and changes it at once,
// there may be others for the first spec, or not.
func (c *campaign) slowly(ctx context.Context, t *task, how pace) error {
	return c.runOnce(t, how.name, func() error {
		err := c.runSlowly(ctx, t, how)
		if errors.Is(err, errBudget) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			c.say("%s: with slow controllers: %v", t.learned.Workload, err)
		}
		return nil
	})
}

func (c *campaign) runSlowly(ctx context.Context, t *task, how pace) error {
	p := *t.plan
	p.TestName, p.Build = t.learned.id()+"-"+how.name, t.plan.LastBuild()
	p.Description = "The controllers are slow, and otherwise undisturbed."
	actions, err := how.actions(t.learned.Baseline.Controllers)
	if err != nil {
		return err
	}
	p.Actions = actions
	p.Complete(c.Suite)
	r, meta, err := c.again(ctx, t, &p, run.RunOptions{History: t.learned.Baseline.Types})
	if err != nil {
		return err
	}
	if meta.Verdict != record.Pass {
		return fmt.Errorf("it does not pass: %s", meta.Reason) // so how it ends says nothing
	}
	created := func(also *pace) (*record.Run, error) {
		made, err := c.freshlyAgain(ctx, t, r, also)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, errBudget) {
			return nil, err
		}
		if err != nil {
			c.say("%s: %v", t.learned.Workload, err)
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
		return ref.AllowSlow(r, fresh, slowlyMade, waits(c.stepsOf(t)))
	})
	c.mu.Unlock()
	c.tried(t, how.name)
	return nil
}

// actions make controllers slow.
func (how pace) actions(controllers []string) ([]plan.Action, error) {
	const at = plan.BeforeControllerRead
	trigger := func(i int, d time.Duration) build.Trigger {
		if i > 0 {
			return build.AtOnce()
		}
		return build.Timeout(d)
	}
	var actions []*build.Action
	for range how.times {
		for i, name := range controllers {
			actions = append(actions, build.PauseController(name, at).When(trigger(i, how.open)))
		}
		for i, name := range controllers {
			actions = append(actions, build.ResumeController(name, at).When(trigger(i, how.shut)))
		}
	}
	// The first pause is in force before the workload begins.
	actions = slices.Insert(actions[1:], 0, build.PauseController(controllers[0], at).When(build.AtOnce()))
	p, err := build.Plan("slow").Then(actions...).Build()
	if err != nil {
		return nil, err
	}
	return p.Actions, nil
}
