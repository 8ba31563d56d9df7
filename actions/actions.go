// Package actions carries out what plans ask for: one interface, one file a kind of action. Each kind names the two or
// three things that it needs of a cluster; [Tools] holds them all.
package actions

import (
	"context"
	"fmt"

	"github.com/trommel-dev/trommel/plan"
)

// Action is one action of a plan, ready to be carried out.
type Action interface {
	// Do carries the action out and returns when its effect is there: a killed process is gone, a paused one holds at
	// its next matching call. The note is what is worth knowing and no mistake: that there was nothing to do. It reads
	// as the end of a sentence that begins with the action.
	Do(ctx context.Context) (note string, err error)
	// Undo takes back what Do did, as far as the run's end needs it: a killed controller or API server is started
	// again. Writes to the API server stay. It is called also after a Do that failed or was cut short, and again after
	// an Undo that failed; after a later action has taken the effect back it is a no-op.
	Undo(ctx context.Context) error
}

// Lasting is an action whose effect goes on when Do has returned, until Undo, until another action ends it, or by
// itself.
type Lasting interface {
	Action
	// Status says in a few words how the effect stands. It may be asked at any time after Do, and does not block.
	Status() string
	// Ended is closed when the effect has ended. It is asked after Do.
	Ended() <-chan struct{}
}

// Controllers starts and stops controllers under test.
type Controllers interface {
	// Kill sends SIGKILL and returns when the processes are gone; their leases are released as the suite says. It
	// reports whether the controller was running.
	Kill(ctx context.Context, controller string) (running bool, err error)
	// Start returns when the controller runs and, where it is instrumented, has connected. It reports whether it was
	// running already.
	Start(ctx context.Context, controller string) (running bool, err error)
	// Route leads new connections of the controller to the API server.
	Route(ctx context.Context, controller, apiServer string) error
	// CutConnections closes the controller's connections to the API server.
	CutConnections(ctx context.Context, controller string) error
}

// APIServers starts and stops API servers.
type APIServers interface {
	// Both report whether the API server was running.
	KillAPIServer(ctx context.Context, name string) (running bool, err error)
	StartAPIServer(ctx context.Context, name string) (running bool, err error)
}

// Objects writes to the API server as a client of its own.
type Objects interface {
	Apply(ctx context.Context, object map[string]any) error
	ApplyFile(ctx context.Context, file string) error
	Patch(ctx context.Context, key plan.ResourceKey, subresource, patchType string, patch any) error
	Delete(ctx context.Context, key plan.ResourceKey) error
}

// Tools is what the actions of a plan work with.
type Tools struct {
	Controllers Controllers
	APIServers  APIServers
	Objects     Objects
}

// Notes of actions that changed nothing.
const (
	notRunning     = "found nothing to kill: %s was not running"
	alreadyRunning = "found %s running already"
)

// noteUnless gives the note about the named process unless what the action takes for granted was so.
func noteUnless(asExpected bool, err error, note, name string) (string, error) {
	if err != nil || asExpected {
		return "", err
	}
	return fmt.Sprintf(note, name), nil
}

// constructors holds how each type of action is prepared, by type.
var constructors = map[plan.ActionType]func(a *plan.Action, t Tools) Action{}

// Register says how actions of a type are prepared; what they mean says [plan.RegisterKind]. It panics if that has been
// said before. It is meant for initialization.
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
