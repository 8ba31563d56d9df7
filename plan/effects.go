package plan

import (
	"fmt"
	"slices"
	"time"
)

// Effect is one thing that an action does: to the controllers and the API servers, to their time, to their connections
// or to objects. The types are below; each is used as a pointer. Code that needs to know what an action does asks for
// an effect, see [EffectOf], and not for the action's type.
type Effect interface{ effect() }

// The effects.
type (
	// Pause holds observations at a point of a process once the action has begun.
	Pause struct {
		By      string // the process
		At      Timing
		Scope   Scope
		Cluster string // of the objects in scope; empty: any
		// AvoidOngoingRead makes the pause wait until no read of the controller is in progress.
		AvoidOngoingRead bool
	}
	// Resume ends pauses. What is empty is any.
	Resume struct {
		By      string // the process
		At      Timing
		Scope   Scope
		Cluster string
		// OneByOne: the pauses let one observation after the other go on before they end.
		OneByOne bool
	}
	// CallFailure makes writes of a controller fail, or calls of a function.
	CallFailure struct {
		By         string // the controller
		Call       string // the annotated call that fails; empty: writes
		Scope      Scope
		Cluster    string      // of the objects in scope; empty: any
		Operations []Operation // empty: all
		Answer     CallAnswer
		Status     int // HTTP status of the error; 0: the client's timeout expires
		RetryAfter int // in seconds, for the client; 0: the answer does not say
		Times      int // how many calls fail; 0: all until they are restored
	}
	// Restore ends failures of calls. What is empty is any, except for Call.
	Restore struct {
		By      string // the controller
		Call    string // an annotated call; empty: writes
		Scope   Scope
		Cluster string
	}
	// Freeze stops one process of the controller (SIGSTOP). It lasts.
	Freeze struct{ Controller string }
	// Thaw lets the controller's frozen processes go on, or kills them.
	Thaw struct {
		Controller string
		Kill       bool
	}
	// Stop kills a process, which ends everything that it holds.
	Stop struct{ Process string }
	// Start means that the process is running when the action is complete. With a Stop before it, it is restarted.
	Start struct{ Process string }
	// Move connects a controller to another API server.
	Move struct {
		Controller string
		APIServer  string
		By         Reconnect
	}
	// NoStreaming means that the controller fills its caches without streaming lists, in the whole run.
	NoStreaming struct{ Controller string }
	// Begin begins the disruption of that name.
	Begin struct{ Disruption string }
	// End ends the disruption of that name.
	End struct{ Disruption string }
	// Advance lets the cluster's clock jump ahead.
	Advance struct{ By time.Duration }
	// Skew puts the wall clock of a controller's processes ahead of the others', or behind if Ahead is negative. It
	// lasts.
	Skew struct {
		By    string // the controller
		Ahead time.Duration
	}
	// Unskew lets the wall clock of a controller's processes be right again.
	Unskew struct{ By string }
	// Disconnection disturbs the connection between a controller and another cluster than its own. It lasts.
	Disconnection struct {
		By      string        // the controller
		Cluster string        // the other cluster
		Delay   time.Duration // in each direction; 0: nothing passes
	}
	// Connection lets everything pass again between a controller and another cluster.
	Connection struct{ By, Cluster string }
	// Write writes or deletes objects as another client would.
	Write struct {
		Deletes ResourceKey    // the object that is deleted; zero: none
		Patches ResourceKey    // the object that is patched; zero: none
		Applies map[string]any // the object that is created, if it is not there; nil: none, or it is in a file
	}
)

func (*Pause) effect()         {}
func (*Resume) effect()        {}
func (*CallFailure) effect()   {}
func (*Restore) effect()       {}
func (*Freeze) effect()        {}
func (*Thaw) effect()          {}
func (*Stop) effect()          {}
func (*Start) effect()         {}
func (*Move) effect()          {}
func (*NoStreaming) effect()   {}
func (*Begin) effect()         {}
func (*End) effect()           {}
func (*Advance) effect()       {}
func (*Skew) effect()          {}
func (*Unskew) effect()        {}
func (*Disconnection) effect() {}
func (*Connection) effect()    {}
func (*Write) effect()         {}

// effect makes an upgrade an effect: it installs a build, and stops and starts all controllers.
func (*Upgrading) effect() {}

// EffectOf returns the effect of that type which the action has; nil: it has none.
func EffectOf[E Effect](a *Action) (none E) {
	for _, e := range a.Effects() {
		if e, ok := e.(E); ok {
			return e
		}
	}
	return none
}

// Has reports whether the action has an effect of that type.
func Has[E Effect](a *Action) bool {
	return slices.ContainsFunc(a.Effects(), func(e Effect) bool { _, ok := e.(E); return ok })
}

// AnyHas reports whether one of the actions has an effect of that type.
func AnyHas[E Effect](actions []Action) bool {
	return slices.ContainsFunc(actions, func(a Action) bool { return Has[E](&a) })
}

// Lasting is an effect that stays in force until another action ends it, or the plan.
type Lasting interface {
	Effect
	// Of names the process that is affected.
	Of() string
	// Clause says what is in force, such as "the clock of db has been wrong". How long and by which action comes next.
	Clause() string
	// EndedBy reports whether an effect of a later action ends it.
	EndedBy(e Effect) bool
}

// Of is the frozen controller.
func (f *Freeze) Of() string { return f.Controller }

// Clause says that a process is frozen.
func (f *Freeze) Clause() string { return "a process of " + f.Controller + " has been frozen" }

// EndedBy is true for a thaw, and for what kills the process.
func (f *Freeze) EndedBy(e Effect) bool {
	thaw, ok := e.(*Thaw)
	return ok && thaw.Controller == f.Controller || stops(e, f.Controller)
}

// Of is the controller with the wrong clock.
func (s *Skew) Of() string { return s.By }

// Clause says that the clock is wrong.
func (s *Skew) Clause() string { return "the clock of " + s.By + " has been wrong" }

// EndedBy is true for the end of the skew, and for another skew, which takes its place.
func (s *Skew) EndedBy(e Effect) bool {
	switch e := e.(type) {
	case *Skew:
		return e.By == s.By
	case *Unskew:
		return e.By == s.By
	}
	return false
}

// Of is the controller whose connection is disturbed.
func (d *Disconnection) Of() string { return d.By }

// Clause says that a connection is disturbed.
func (d *Disconnection) Clause() string { return "a connection of " + d.By + " has been disturbed" }

// EndedBy is true for what restores the connection, and for another disturbance, which takes its place.
func (d *Disconnection) EndedBy(e Effect) bool {
	switch e := e.(type) {
	case *Disconnection:
		return e.By == d.By && e.Cluster == d.Cluster
	case *Connection:
		return e.By == d.By && e.Cluster == d.Cluster
	}
	return false
}

// OfAPIServer reports whether an API server is paused: reads from its cache are stale then.
func (p *Pause) OfAPIServer() bool { return p.At.ofAPIServer() }

// Ends reports whether the resume ends a pause. The point, the scope and the cluster, if given, must equal the pause's;
// the scope "*" means pauses of everything.
func (r *Resume) Ends(p *Pause) bool {
	return r.By == p.By && (r.At == "" || r.At == p.At) && (r.Cluster == "" || r.Cluster == p.Cluster) &&
		r.Scope.selects(p.Scope)
}

// Ends reports whether the action ends a failure of calls: of the same call, and of exactly the scope and the cluster
// if they are given.
func (r *Restore) Ends(f *CallFailure) bool {
	return r.By == f.By && r.Call == f.Call && (r.Cluster == "" || r.Cluster == f.Cluster) && r.Scope.selects(f.Scope)
}

// String says what becomes of a call.
func (f *CallFailure) String() string {
	if f.Call != "" && f.Answer == Refused {
		return "it returns an error at once"
	}
	if f.Status == 0 {
		return "its answer is lost, and its timeout expires"
	}
	if f.Answer == Lost {
		return fmt.Sprintf("its answer is lost, and it gets the error %d", f.Status)
	}
	return fmt.Sprintf("it is refused with the error %d", f.Status)
}

// stops reports whether an effect kills the process of that name.
func stops(e Effect, process string) bool {
	switch e := e.(type) {
	case *Stop:
		return e.Process == process
	case *Upgrading:
		return e.How != UpgradeRolling && !IsAPIServer(process)
	}
	return false
}

// Stops reports whether the action kills the process of that name, which ends everything it holds.
func (a *Action) Stops(process string) bool {
	return slices.ContainsFunc(a.Effects(), func(e Effect) bool { return stops(e, process) })
}

// Starts reports whether the process of that name is running when the action is complete.
func (a *Action) Starts(process string) bool {
	return slices.ContainsFunc(a.Effects(), func(e Effect) bool {
		switch e := e.(type) {
		case *Start:
			return e.Process == process
		case *Upgrading:
			return !IsAPIServer(process)
		}
		return false
	})
}

// Disturbs names the process that the action pauses, stops or moves; empty: none.
func (a *Action) Disturbs() string {
	for _, e := range a.Effects() {
		switch e := e.(type) {
		case *Pause:
			return e.By
		case *Stop:
			return e.Process
		case *Move:
			return e.Controller
		}
	}
	return ""
}

// Switches reports whether the action begins or ends a pause when it begins. The change is in force when the action is
// complete.
func (a *Action) Switches() bool {
	resume := EffectOf[*Resume](a)
	return Has[*Pause](a) || resume != nil && !resume.OneByOne
}
