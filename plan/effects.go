package plan

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

// OfAPIServer reports whether an API server is paused: what is read from its cache is stale then.
func (p *Pause) OfAPIServer() bool { return p.At.ofAPIServer() }

// Move is a controller's way to another API server.
type Move struct {
	Controller string
	APIServer  string
	By         Reconnect
}

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
