package actions

import (
	"context"

	"github.com/trommel-dev/trommel/plan"
)

func init() {
	Register(plan.FreezeController, func(a *plan.Action, t Tools) Action {
		return &freezeController{controllers: t.Controllers, name: a.Target}
	})
	Register(plan.ThawController, func(a *plan.Action, t Tools) Action {
		return &thawController{controllers: t.Controllers, name: a.Target, kill: a.Kill}
	})
}

// The coordinator knows the frozen processes by their sessions, and how long each is frozen.
type freezeController struct {
	controllers Controllers
	name        string
	pid         int
}

func (a *freezeController) Aim(pid int) { a.pid = pid }

func (a *freezeController) Do(ctx context.Context) (string, error) {
	return "", a.controllers.Freeze(ctx, a.name, a.pid)
}

func (a *freezeController) Undo(ctx context.Context) error {
	_, err := a.controllers.Thaw(ctx, a.name, false)
	return err
}

type thawController struct {
	controllers Controllers
	name        string
	kill        bool
}

func (a *thawController) Do(ctx context.Context) (string, error) {
	frozen, err := a.controllers.Thaw(ctx, a.name, a.kill)
	return noteUnless(frozen > 0, err, notFrozen, a.name)
}

func (a *thawController) Undo(context.Context) error { return nil }
