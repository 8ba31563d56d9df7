package actions

import (
	"context"
	"time"

	"github.com/trommel-dev/trommel/plan"
)

// Clocks moves the clocks of a cluster that has one of its own.
type Clocks interface {
	// Advance moves the cluster's clock at once.
	Advance(by time.Duration) error
	// Skew puts the wall clock of a controller's processes ahead, or behind if by is negative, also of those that start
	// later; 0 ends that. It reports how far the clock was ahead before.
	Skew(controller string, by time.Duration) (before time.Duration, err error)
}

func init() {
	Register(plan.AdvanceTime, func(a *plan.Action, t Tools) Action {
		return &advanceTime{clocks: t.Clocks, by: plan.EffectOf[*plan.Advance](a).By}
	})
	Register(plan.SkewClock, func(a *plan.Action, t Tools) Action {
		return &skewClock{clocks: t.Clocks, name: a.Target, by: plan.EffectOf[*plan.Skew](a).Ahead}
	})
	Register(plan.EndSkew, func(a *plan.Action, t Tools) Action {
		return &endSkew{clocks: t.Clocks, name: a.Target}
	})
}

type advanceTime struct {
	clocks Clocks
	by     time.Duration
}

func (a *advanceTime) Do(context.Context) (string, error) { return "", a.clocks.Advance(a.by) }

func (a *advanceTime) Undo(context.Context) error { return nil } // time does not go back

type skewClock struct {
	clocks Clocks
	name   string
	by     time.Duration
}

func (a *skewClock) Do(context.Context) (string, error) {
	_, err := a.clocks.Skew(a.name, a.by)
	return "", err
}

func (a *skewClock) Undo(context.Context) error {
	_, err := a.clocks.Skew(a.name, 0)
	return err
}

type endSkew struct {
	clocks Clocks
	name   string
}

func (a *endSkew) Do(context.Context) (string, error) {
	before, err := a.clocks.Skew(a.name, 0)
	return noteUnless(before != 0, err, notSkewed, a.name)
}

func (a *endSkew) Undo(context.Context) error { return nil }
