package actions

import (
	"context"
	"time"

	"github.com/trommel-dev/trommel/plan"
)

// Connections disturbs the connections between controllers and other clusters than their own.
type Connections interface {
	// Disturb makes all data between the controller and the cluster late by delay, in each direction; 0: none passes.
	// It is in effect when Disturb returns, also for connections that are made later, and takes the place of an earlier
	// disturbance of the same connection.
	Disturb(ctx context.Context, controller, cluster string, delay time.Duration) error
	// Restore ends that. It reports whether there was a disturbance.
	Restore(ctx context.Context, controller, cluster string) (disturbed bool, err error)
}

func init() {
	Register(plan.DisturbConnection, func(a *plan.Action, t Tools) Action {
		return &disturbConnection{connections: t.Connections, of: *plan.EffectOf[*plan.Disconnection](a)}
	})
	Register(plan.RestoreConnection, func(a *plan.Action, t Tools) Action {
		return &restoreConnection{connections: t.Connections, of: *plan.EffectOf[*plan.Connection](a)}
	})
}

type disturbConnection struct {
	connections Connections
	of          plan.Disconnection
}

func (a *disturbConnection) Do(ctx context.Context) (string, error) {
	return "", a.connections.Disturb(ctx, a.of.By, a.of.Cluster, a.of.Delay)
}

func (a *disturbConnection) Undo(ctx context.Context) error {
	_, err := a.connections.Restore(ctx, a.of.By, a.of.Cluster)
	return err
}

type restoreConnection struct {
	connections Connections
	of          plan.Connection
}

func (a *restoreConnection) Do(ctx context.Context) (string, error) {
	disturbed, err := a.connections.Restore(ctx, a.of.By, a.of.Cluster)
	return noteUnless(disturbed, err, notDisturbed, a.of.By)
}

func (a *restoreConnection) Undo(context.Context) error { return nil }
