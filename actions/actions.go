// Package actions implements the actions of plans: one interface, and one file for each kind of action. Each kind needs
// only a few of a cluster's capabilities; [Tools] holds all of them.
package actions

import (
	"context"
	"fmt"

	"github.com/trommel-dev/trommel/plan"
)

// Action is one action of a plan, ready to be carried out.
type Action interface {
	// Do carries the action out and returns when it is in effect: a killed process has exited, a paused one is held at
	// its next matching call. The note is a remark that is not an error, such as that there was nothing to do. It reads
	// as the end of a sentence that begins with the action.
	Do(ctx context.Context) (note string, err error)
	// Undo undoes what Do did, as far as the end of the run needs it: it restarts a killed controller or API server,
	// but does not revert writes. It is also called after a Do that failed or was cut short, and again after an Undo
	// that failed. If a later action has already undone the effect, it is a no-op.
	Undo(ctx context.Context) error
}

// Lasting is an action whose effect lasts after Do has returned, until Undo or another action ends it or until it ends
// on its own.
type Lasting interface {
	Action
	// Status describes the state of the effect in a few words. It may be called at any time after Do and does not
	// block.
	Status() string
	// Ended returns a channel that is closed when the effect has ended. It may be called after Do.
	Ended() <-chan struct{}
}

// Aimed is an action on one of several processes. Before Do, the process whose observation has fired it is given to Aim
// by its ID; if there was none, the process that leads; 0: neither is known.
type Aimed interface {
	Action
	Aim(pid int)
}

// Pointed is an action on an object that may be the one whose observation has fired it.
type Pointed interface {
	Action
	// PointTo is called before Do, with the object of the last observation that satisfied a part of the action's
	// trigger; zero: there was none. It returns the name of the object that the action is then for, as the plan would
	// give it; empty: what the action is for does not depend on it.
	PointTo(object plan.ResourceKey) string
}

// Controllers starts and stops controllers under test.
type Controllers interface {
	// Kill sends SIGKILL and returns when the processes have exited; their leases are released if the suite says so. It
	// reports whether the controller was running.
	Kill(ctx context.Context, controller string) (running bool, err error)
	// Start returns when the controller runs and, if it is instrumented, has connected. It reports whether it was
	// already running.
	Start(ctx context.Context, controller string) (running bool, err error)
	// Freeze stops a process of the controller and returns when it is stopped. A process ID of 0 means its only one.
	Freeze(ctx context.Context, controller string, pid int) error
	// Thaw lets the controller's frozen processes go on, or kills them, and reports how many there were.
	Thaw(ctx context.Context, controller string, kill bool) (frozen int, err error)
	// Route directs new connections of the controller to the API server, those to the server's cluster.
	Route(ctx context.Context, controller, apiServer string) error
	// CutConnections closes the controller's connections to the API server's cluster.
	CutConnections(ctx context.Context, controller, apiServer string) error
}

// APIServers starts and stops API servers.
type APIServers interface {
	// Both report whether the API server was running.
	KillAPIServer(ctx context.Context, name string) (running bool, err error)
	StartAPIServer(ctx context.Context, name string) (running bool, err error)
}

// Objects writes to the API server as a separate client.
type Objects interface {
	Apply(ctx context.Context, object map[string]any) error
	ApplyFile(ctx context.Context, file string) error
	Patch(ctx context.Context, key plan.ResourceKey, subresource, patchType string, patch any) error
	Delete(ctx context.Context, key plan.ResourceKey) error
}

// Tools holds the capabilities that actions need.
type Tools struct {
	Controllers Controllers
	APIServers  APIServers
	Objects     Objects
	ObjectsIn   map[string]Objects // in each of several clusters, by name
	Disruptions Disruptions
	Cycles      Cycles
	Clocks      Clocks
	Connections Connections
	Upgrades    Upgrades
}

// Notes of actions that changed nothing.
const (
	notRunning     = "found nothing to kill: %s was not running"
	alreadyRunning = "found %s running already"
	noDisruption   = "found nothing to end: the disruption %s had ended"
	noCycle        = "found nothing to end: the cycle %s had ended"
	notFrozen      = "found nothing to thaw: no process of %s was frozen"
	notDisturbed   = "found nothing to restore: that connection of %s was not disturbed"
	notSkewed      = "found nothing to end: the clock of %s was right"
)

// noteUnless returns the note about the named process unless its state was as the action expects.
func noteUnless(asExpected bool, err error, note, name string) (string, error) {
	if err != nil || asExpected {
		return "", err
	}
	return fmt.Sprintf(note, name), nil
}

// constructors prepare actions, by action type.
var constructors = map[plan.ActionType]func(a *plan.Action, t Tools) Action{}

// Register registers the function that prepares actions of a type; [plan.RegisterKind] registers their fields and
// meaning. It panics if the type is already registered. Call it in init.
func Register(t plan.ActionType, prepare func(a *plan.Action, t Tools) Action) {
	if constructors[t] != nil {
		panic(fmt.Sprintf("actions: %q is registered twice", t))
	}
	constructors[t] = prepare
}

// New prepares an action of a validated plan.
func New(a *plan.Action, t Tools) (Action, error) {
	prepare := constructors[a.Type]
	if prepare == nil {
		return nil, fmt.Errorf("unknown action type %q", a.Type)
	}
	return prepare(a, t), nil
}
