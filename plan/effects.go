package plan

import (
	"fmt"
	"time"
)

// Effects says what an action does to the processes of a run, the controllers and the API servers, and whether it
// writes objects.
type Effects struct {
	// Pauses says what is held once the action has begun; nil: nothing.
	Pauses *Pause
	// Resumes says which pauses end; nil: none.
	Resumes *Pause
	// OneByOne: these pauses let one observation after the other go on before they end.
	OneByOne bool
	// Fails says which calls fail once the action has begun; nil: none.
	Fails *CallFailure
	// Restores says which failures of calls end; nil: none.
	Restores *CallFailure
	// Freezes names the controller of which one process is stopped (SIGSTOP), and stays stopped; empty: none.
	Freezes string
	// Thaws names the controller whose stopped processes go on; if Kills is set, they are killed. Empty: none.
	Thaws string
	Kills bool
	// Stops names the process that is killed, which ends everything it holds; empty: none.
	Stops string
	// Starts names the process that is running when the action is complete; if Stops names it too, it is restarted.
	// Empty: none.
	Starts string
	// Moves says which controller is connected to another API server; nil: none.
	Moves *Move
	// Lists names the controller that fills its caches without streaming lists, in the whole run; empty: none.
	Lists string
	// Begins is the disruption that the action begins, Ends the one that it ends, by name.
	Begins, Ends string
	// Advances is how far the cluster's clock jumps; 0: it does not.
	Advances time.Duration
	// Skews says whose wall clock is wrong once the action has begun; nil: no one's.
	Skews *Skew
	// EndsSkew names the controller whose wall clock is right again; empty: none.
	EndsSkew string
	// Disconnects says which connection is disturbed once the action has begun; nil: none.
	Disconnects *Disconnection
	// Connects says which connection is no longer disturbed; nil: none. It has no delay.
	Connects *Disconnection
	// Upgrades says which build is installed; nil: none. It stops and starts all controllers.
	Upgrades *Upgrading
	// Writes: the action writes or deletes objects, as another client would.
	Writes bool
	// Deletes names the object that the action deletes; zero: none.
	Deletes ResourceKey
	// Applies is the object that the action creates, if it is not there; nil: none, or it is in a file.
	Applies map[string]any
}

// Pause is a point of a process at which observations are held.
type Pause struct {
	By    string // the process
	At    Timing // empty in a resume: any timing
	Scope string // a resource key, "*" for everything; empty: everything, in a resume any scope
	// Cluster is that of the objects in scope; empty: any.
	Cluster string
	// AvoidOngoingRead makes the pause wait until no read of the controller is in progress.
	AvoidOngoingRead bool
}

// OfAPIServer reports whether an API server is paused: reads from its cache are stale then.
func (p *Pause) OfAPIServer() bool { return p.At.ofAPIServer() }

// CallFailure makes writes of a controller fail, or calls of a function.
type CallFailure struct {
	By         string      // the controller
	Call       string      // the annotated call that fails; empty: writes
	Scope      string      // a resource key, "*" for everything; empty: everything, in a restore any scope
	Cluster    string      // of the objects in scope; empty: any
	Operations []Operation // empty: all
	Answer     CallAnswer
	Status     int // HTTP status of the error; 0: the client's timeout expires
	RetryAfter int // in seconds, for the client; 0: the answer does not say
	Times      int // how many calls fail; 0: all until they are restored
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

// Skew puts the wall clock of a controller's processes ahead of the others', or behind if Ahead is negative.
type Skew struct {
	By    string // the controller
	Ahead time.Duration
}

// Disconnection disturbs the connection between a controller and another cluster than its own.
type Disconnection struct {
	By      string        // the controller
	Cluster string        // the other cluster
	Delay   time.Duration // in each direction; 0: nothing passes
}

// SameAs reports whether both are about one connection.
func (d *Disconnection) SameAs(o *Disconnection) bool {
	return d != nil && o != nil && d.By == o.By && d.Cluster == o.Cluster
}

// Move says how a controller is connected to another API server.
type Move struct {
	Controller string
	APIServer  string
	By         Reconnect
}

// StopsIt reports whether the action kills the process of that name, which ends everything it holds.
func (e Effects) StopsIt(process string) bool {
	return e.Stops == process || e.Upgrades != nil && e.Upgrades.How == UpgradeKill && !IsAPIServer(process)
}

// StartsIt reports whether the process of that name is running when the action is complete.
func (e Effects) StartsIt(process string) bool {
	return e.Starts == process || e.Upgrades != nil && !IsAPIServer(process)
}

// Disturbs names the process that the action pauses, stops or moves; empty: none.
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

// Clocked reports whether the action needs a cluster that has a clock of its own.
func (e Effects) Clocked() bool { return e.Advances != 0 || e.Skews != nil || e.EndsSkew != "" }

// Switches reports whether the action begins or ends a pause when it begins. The change is in force when the action is
// complete.
func (e Effects) Switches() bool { return e.Pauses != nil || e.Resumes != nil && !e.OneByOne }
