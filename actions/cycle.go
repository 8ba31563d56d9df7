package actions

import (
	"context"

	"github.com/trommel-dev/trommel/plan"
)

// Cycles replaces the nodes of groups.
type Cycles interface {
	// Begin creates the request of an action cycleNodes, and returns when it is accepted or in the phase that the
	// action waits for. The note is as that of Action.Do.
	Begin(ctx context.Context, a *plan.Action) (note string, err error)
	// End deletes the request and returns when it is gone. It reports whether there was one that had not ended.
	End(ctx context.Context, name string) (ended bool, err error)
	// Status describes the cycle in a few words. It does not block.
	Status(name string) string
	// Ended returns a channel that is closed when the cycle of that name has ended, by itself or by End.
	Ended(name string) <-chan struct{}
}

func init() {
	Register(plan.CycleNodes, func(a *plan.Action, t Tools) Action { return &cycleNodes{action: a, cycles: t.Cycles} })
	Register(plan.EndCycle, func(a *plan.Action, t Tools) Action {
		return &endCycle{name: a.EndsCycle(), cycles: t.Cycles}
	})
}

// cycleNodes begins a cycle of nodes, which goes on by itself.
type cycleNodes struct {
	action *plan.Action
	cycles Cycles
}

func (c *cycleNodes) Do(ctx context.Context) (string, error) { return c.cycles.Begin(ctx, c.action) }

// Undo does nothing: a cycle goes on until it has ended. The run waits for that when everything else is undone, as what
// the cycle needs may be among it.
func (c *cycleNodes) Undo(context.Context) error { return nil }

func (c *cycleNodes) Status() string { return c.cycles.Status(c.action.Cycles().Name()) }

func (c *cycleNodes) Ended() <-chan struct{} { return c.cycles.Ended(c.action.Cycles().Name()) }

// endCycle ends a cycle that an earlier action has begun.
type endCycle struct {
	name   string
	cycles Cycles
}

func (e *endCycle) Do(ctx context.Context) (string, error) {
	ended, err := e.cycles.End(ctx, e.name)
	return noteUnless(ended, err, noCycle, e.name)
}

func (e *endCycle) Undo(context.Context) error { return nil }
