package actions

import (
	"context"

	"github.com/trommel-dev/trommel/plan"
)

func init() {
	Register(plan.RestartController, func(a *plan.Action, t Tools) Action {
		return &restartController{controllers: t.Controllers, name: a.Target}
	})
	Register(plan.KillController, func(a *plan.Action, t Tools) Action {
		return &killController{controllers: t.Controllers, name: a.Target}
	})
	Register(plan.StartController, func(a *plan.Action, t Tools) Action {
		return &startController{controllers: t.Controllers, name: a.Target}
	})
	Register(plan.ReconnectController, func(a *plan.Action, t Tools) Action {
		return &reconnectController{controllers: t.Controllers, name: a.Target, apiServer: a.ReconnectAPIServer,
			by: a.ReconnectBy}
	})
}

type restartController struct {
	controllers Controllers
	name        string
	done        bool
}

func (a *restartController) Do(ctx context.Context) (string, error) {
	note, err := killed(ctx, a.controllers, a.name)
	if err != nil {
		return "", err
	}
	err = started(ctx, a.controllers, a.name)
	a.done = err == nil
	return note, err
}

// killed kills a controller and returns the note if it was not running.
func killed(ctx context.Context, controllers Controllers, name string) (string, error) {
	running, err := controllers.Kill(ctx, name)
	return noteUnless(running, err, notRunning, name)
}

// started starts a controller, which may be running.
func started(ctx context.Context, controllers Controllers, name string) error {
	_, err := controllers.Start(ctx, name)
	return err
}

func (a *restartController) Undo(ctx context.Context) error {
	// A Do that failed halfway may have left the controller down. After one that did not, a controller that is down has
	// died since: to wait for it here would blame the action, and only if it happens to be down just now.
	if a.done {
		return nil
	}
	return started(ctx, a.controllers, a.name)
}

type killController struct {
	controllers Controllers
	name        string
}

func (a *killController) Do(ctx context.Context) (string, error) {
	return killed(ctx, a.controllers, a.name)
}
func (a *killController) Undo(ctx context.Context) error { return started(ctx, a.controllers, a.name) }

type startController struct {
	controllers Controllers
	name        string
}

func (a *startController) Do(ctx context.Context) (string, error) {
	running, err := a.controllers.Start(ctx, a.name)
	return noteUnless(!running, err, alreadyRunning, a.name)
}

func (a *startController) Undo(context.Context) error { return nil }

// reconnectController moves a controller to another API server: by a restart, like a rescheduled pod, or by cutting its
// connections, as a load balancer does when a server goes down.
type reconnectController struct {
	controllers Controllers
	name        string
	apiServer   string
	by          plan.Reconnect
	done        bool
}

func (a *reconnectController) Do(ctx context.Context) (string, error) {
	if a.by == plan.ReconnectCut {
		if err := a.controllers.Route(ctx, a.name, a.apiServer); err != nil {
			return "", err
		}
		return "", a.controllers.CutConnections(ctx, a.name, a.apiServer)
	}
	// Kill it before Route: otherwise one of its last connections could go to the new server.
	note, err := killed(ctx, a.controllers, a.name)
	if err != nil {
		return "", err
	}
	if err := a.controllers.Route(ctx, a.name, a.apiServer); err != nil {
		return "", err
	}
	err = started(ctx, a.controllers, a.name)
	a.done = err == nil
	return note, err
}

func (a *reconnectController) Undo(ctx context.Context) error {
	if a.by == plan.ReconnectCut || a.done { // see restartController
		return nil
	}
	return started(ctx, a.controllers, a.name)
}
