// Package actions carries out what plans ask for: one interface, one file a kind of action. Each kind names the two or three
// things that it needs of a cluster; [Tools] holds them all.
package actions

import (
	"context"
	"fmt"

	"github.com/trommel-dev/trommel/plan"
)

// Action is one action of a plan, ready to be carried out.
type Action interface {
	// Do carries the action out and returns when its effect is there: a killed process is gone, a paused one holds at its
	// next matching call. The note is what is worth knowing and no mistake: that there was nothing to do. It reads as the
	// end of a sentence that begins with the action.
	Do(ctx context.Context) (note string, err error)
	// Undo takes back what Do did, as far as the run's end needs it: a killed controller or API server is started
	// again. Writes to the API server stay. It is called once at most, also after a Do that failed, and after a later
	// action has already taken the effect back it is a no-op.
	Undo(ctx context.Context) error
}

// Controllers starts and stops controllers under test.
type Controllers interface {
	// Kill sends SIGKILL and returns when the processes are gone; their leases are released as the suite says. It reports
	// whether the controller was running.
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

// Pauses begins and ends the pause of an action. Both return when every process concerned judges by it.
type Pauses interface {
	// Switch puts the action's pause or resume into force.
	Switch(ctx context.Context, action int) error
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
	Pauses      Pauses
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

// New prepares action number index of a validated plan.
func New(a *plan.Action, index int, t Tools) (Action, error) {
	switch a.Type {
	case plan.RestartController:
		return &restartController{controllers: t.Controllers, name: a.Target}, nil
	case plan.KillController:
		return &killController{controllers: t.Controllers, name: a.Target}, nil
	case plan.StartController:
		return &startController{controllers: t.Controllers, name: a.Target}, nil
	case plan.ReconnectController:
		return &reconnectController{controllers: t.Controllers, name: a.Target, apiServer: a.ReconnectAPIServer, by: a.ReconnectBy}, nil
	case plan.PauseController, plan.PauseAPIServer, plan.ResumeController, plan.ResumeAPIServer:
		return &switchPause{pauses: t.Pauses, index: index}, nil
	case plan.KillAPIServer:
		return &killAPIServer{servers: t.APIServers, name: a.Target}, nil
	case plan.StartAPIServer:
		return &startAPIServer{servers: t.APIServers, name: a.Target}, nil
	case plan.ApplyObject:
		return &applyObject{objects: t.Objects, object: a.Manifest, file: a.ManifestFile}, nil
	case plan.PatchObject:
		return &patchObject{objects: t.Objects, key: a.ResourceKey, subresource: a.Subresource, patchType: a.PatchType, patch: a.Patch}, nil
	case plan.DeleteObject:
		return &deleteObject{objects: t.Objects, key: a.ResourceKey}, nil
	}
	return nil, fmt.Errorf("unknown action type %q", a.Type)
}
