package actions

import (
	"context"

	"github.com/trommel-dev/trommel/plan"
)

func init() {
	Register(plan.RestartAPIServer, func(a *plan.Action, t Tools) Action {
		return &restartAPIServer{killAPIServer{servers: t.APIServers, name: a.Target}}
	})
}

// restartAPIServer is undone like a kill: if it was cut short, the server may be down.
type restartAPIServer struct{ killAPIServer }

func (a *restartAPIServer) Do(ctx context.Context) (string, error) {
	note, err := a.killAPIServer.Do(ctx)
	if err != nil {
		return note, err
	}
	_, err = a.servers.StartAPIServer(ctx, a.name)
	return note, err
}
