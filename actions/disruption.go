package actions

import (
	"context"
	"sync/atomic"

	"github.com/trommel-dev/trommel/plan"
)

// Disruptions begins and ends disruptions.
type Disruptions interface {
	// Begin creates the disruption of an action disrupt and returns when it is injected. The note is as that of
	// Action.Do.
	Begin(ctx context.Context, a *plan.Action) (note string, err error)
	// End deletes the disruption and returns when nothing of it is left. It reports whether there was one.
	End(ctx context.Context, name string) (ended bool, err error)
}

func init() {
	Register(plan.Disrupt, func(a *plan.Action, t Tools) Action {
		return &disrupt{action: a, disruptions: t.Disruptions}
	})
	Register(plan.EndDisruption, func(a *plan.Action, t Tools) Action {
		return &endDisruption{name: a.Ends(), disruptions: t.Disruptions}
	})
}

// disrupt begins a disruption. It is undone by its end, which an action of the plan may have caused before.
type disrupt struct {
	action      *plan.Action
	disruptions Disruptions
	begun       atomic.Bool
}

func (d *disrupt) Do(ctx context.Context) (string, error) {
	d.begun.Store(true)
	return d.disruptions.Begin(ctx, d.action)
}

func (d *disrupt) Undo(ctx context.Context) error {
	if !d.begun.Load() {
		return nil
	}
	_, err := d.disruptions.End(ctx, d.action.Begins().Name())
	return err
}

// endDisruption ends a disruption that an earlier action has begun.
type endDisruption struct {
	name        string
	disruptions Disruptions
}

func (e *endDisruption) Do(ctx context.Context) (string, error) {
	ended, err := e.disruptions.End(ctx, e.name)
	return noteUnless(ended, err, noDisruption, e.name)
}

func (e *endDisruption) Undo(context.Context) error { return nil }
