package actions

import "context"

type killAPIServer struct {
	servers APIServers
	name    string
}

func (a *killAPIServer) Do(ctx context.Context) error   { return a.servers.KillAPIServer(ctx, a.name) }
func (a *killAPIServer) Undo(ctx context.Context) error { return a.servers.StartAPIServer(ctx, a.name) }

type startAPIServer struct {
	servers APIServers
	name    string
}

func (a *startAPIServer) Do(ctx context.Context) error { return a.servers.StartAPIServer(ctx, a.name) }
func (a *startAPIServer) Undo(context.Context) error   { return nil }
