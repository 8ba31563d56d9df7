package plan

import (
	"fmt"
	"slices"
)

// ActionKind is what is to know of a type of action without carrying it out. It is declared once; whoever wants to know what
// an action does asks for its [Effects], and nobody else looks at names of types. How an action is carried out and
// taken back says package actions, in the file of the same name.
type ActionKind struct {
	Type ActionType
	// Effects says what an action of this type does to the processes of a run; nil: nothing.
	Effects func(a *Action) Effects
}

// Effects is what an action does to the processes of a run: the controllers and the API servers.
type Effects struct {
	// Pauses is what is held from the action's beginning on; nil: nothing.
	Pauses *Pause
	// Resumes ends the pauses that agree with it; nil: none.
	Resumes *Pause
	// Stops names the process that is killed, with all that it holds; empty: none.
	Stops string
	// Starts names the process that runs when the action is complete, begun anew if it is also stopped; empty: none.
	Starts string
	// Moves is the controller that is led to another API server; nil: none.
	Moves *Move
}

// Pause is a point of a process at which observations are held.
type Pause struct {
	By    string // the process
	At    Timing // empty in a resume: any
	Scope string // a resource key, "*" for everything; empty: everything, in a resume any
	// AvoidOngoingRead has the pause wait until no read of the controller is under way.
	AvoidOngoingRead bool
}

// Move is a controller's way to another API server.
type Move struct {
	Controller string
	APIServer  string
	By         Reconnect
}

// IsZero reports whether an action leaves all processes as they are.
func (e Effects) IsZero() bool { return e == Effects{} }

// Disturbs names the process that the action holds up, stops or moves; empty: none.
func (e Effects) Disturbs() string {
	switch {
	case e.Pauses != nil:
		return e.Pauses.By
	case e.Stops != "":
		return e.Stops
	case e.Moves != nil:
		return e.Moves.Controller
	}
	return ""
}

// Switches reports whether the action begins or ends a pause: then it is in force when the action is complete.
func (e Effects) Switches() bool { return e.Pauses != nil || e.Resumes != nil }

// kinds holds the types of actions in the order in which messages name them.
var kinds []*ActionKind

// RegisterKind adds a type of action. It panics if there is one of that name. It is meant for initialization: plans
// must not be read at the same time.
func RegisterKind(k ActionKind) {
	if kindOfAction(k.Type) != nil {
		panic(fmt.Sprintf("plan: there are two kinds of action %q", k.Type))
	}
	kinds = append(kinds, &k)
}

// kindOfAction is the kind of that type; nil: there is none.
func kindOfAction(t ActionType) *ActionKind {
	i := slices.IndexFunc(kinds, func(k *ActionKind) bool { return k.Type == t })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// Effects is what the action does to the processes of a run.
func (a *Action) Effects() Effects {
	if k := kindOfAction(a.Type); k != nil && k.Effects != nil {
		return k.Effects(a)
	}
	return Effects{}
}

func init() {
	for _, k := range []ActionKind{
		restartController, killController, startController, pauseController, resumeController, reconnectController,
		pauseAPIServer, resumeAPIServer, killAPIServer, startAPIServer, applyObject, patchObject, deleteObject,
	} {
		RegisterKind(k)
	}
}

// OfAPIServer reports whether an API server is paused: what is read from its cache is stale then.
func (p *Pause) OfAPIServer() bool { return p.At.ofAPIServer() }
