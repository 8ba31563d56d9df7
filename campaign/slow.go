package campaign

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/run"
)

// Slow controllers read for slowOpen, and then not for slowShut, slowTimes times. A step of the workload that waits for
// them ends while they may read; the next steps must come when they may not, so that they see several as one.
const (
	slowOpen  = 50 * time.Millisecond
	slowShut  = 500 * time.Millisecond
	slowTimes = 50
)

// slowly runs a task's workload once with slow controllers, when the first plan with that workload has found something.
// Many faults delay controllers, and what they do may depend on what they have had the time to see: if a workload creates
// an object and changes it at once, there may be pods for the first spec, or not. What ends like that is no finding.
func (c *campaign) slowly(ctx context.Context, t *task) {
	if t.learned.Reference == nil || len(t.learned.Reference.Controllers) == 0 {
		return
	}
	c.mu.Lock()
	once := c.slow[t.learned.Workload]
	if once == nil {
		once = &sync.Once{}
		c.slow[t.learned.Workload] = once
	}
	c.mu.Unlock()
	once.Do(func() {
		if err := c.runSlowly(ctx, t); err != nil && ctx.Err() == nil {
			c.say("%s: with slow controllers: %v", t.learned.Workload, err)
		}
	})
}

func (c *campaign) runSlowly(ctx context.Context, t *task) error {
	p := *t.plan
	p.TestName = t.learned.Workload + "-slow"
	p.Description = "The controllers are slow, and otherwise undisturbed."
	actions, err := slow(t.learned.Reference.Controllers)
	if err != nil {
		return err
	}
	p.Actions = actions
	p.Complete(c.Suite)
	r, meta, err := c.once(ctx, &p, run.RunOptions{History: t.learned.Reference.Types})
	if err != nil {
		return err
	}
	if meta.Verdict != record.Pass {
		return fmt.Errorf("it does not pass: %s", meta.Reason) // so how it ends says nothing
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.widen(t, r)
	return nil
}

// slow are the actions that make controllers slow.
func slow(controllers []string) ([]plan.Action, error) {
	const at = plan.BeforeControllerRead
	trigger := func(i int, d time.Duration) build.Trigger {
		if i > 0 {
			return build.AtOnce()
		}
		return build.Timeout(d)
	}
	var actions []*build.Action
	for range slowTimes {
		for i, name := range controllers {
			actions = append(actions, build.PauseController(name, at).When(trigger(i, slowOpen)))
		}
		for i, name := range controllers {
			actions = append(actions, build.ResumeController(name, at).When(trigger(i, slowShut)))
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
