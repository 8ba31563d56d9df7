package actions

import (
	"context"

	"github.com/trommel-dev/trommel/plan"
)

func init() {
	Register(plan.KillAPIServer, func(a *plan.Action, t Tools) Action {
		return &killAPIServer{servers: t.APIServers, name: a.Target}
	})
	Register(plan.StartAPIServer, func(a *plan.Action, t Tools) Action {
		return &startAPIServer{servers: t.APIServers, name: a.Target}
	})
}

type killAPIServer struct {
	servers APIServers
	name    string
}

func (a *killAPIServer) Do(ctx context.Context) (string, error) {
	running, err := a.servers.KillAPIServer(ctx, a.name)
	return noteUnless(running, err, notRunning, a.name)
}

func (a *killAPIServer) Undo(ctx context.Context) error {
	_, err := a.servers.StartAPIServer(ctx, a.name)
	return err
}

type startAPIServer struct {
	servers APIServers
	name    string
}

func (a *startAPIServer) Do(ctx context.Context) (string, error) {
	running, err := a.servers.StartAPIServer(ctx, a.name)
	return noteUnless(!running, err, alreadyRunning, a.name)
}

func (a *startAPIServer) Undo(context.Context) error { return nil }
