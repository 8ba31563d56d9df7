// Package wire holds the messages that travel between the hook, which is linked into API servers and
// controllers, and the coordinator's monitor.
//
// Both sides speak net/rpc (gob) over yamux on one connection. The hook dials. On the first stream, which the
// hook opens, the monitor serves [MonitorService]: Hello once, then Observe for every observation, Abandon, Miss and
// Trouble. On the second stream, which the monitor opens after Hello, the hook serves [HookService]: Configure.
//
// Observe is answered when the coordinator releases the observation, so a held caller is nothing but an
// unanswered call; when the session ends, every unanswered call of it ends too. A caller whose context ends does not
// wait for the answer: the hook lets it go and says so with Abandon. Observations of one session are
// sent in the order in which their callers arrived; nothing orders observations of different sessions but their
// arrival at the monitor.
//
// Each side pings the other, see [Heartbeat]. A monitor that hangs (stopped, in a debugger, swapped out) must not hold
// processes for ever: the hook lets all callers go when the monitor has not answered for [Limits].Silence, and a single
// one that was held for [Limits].Hold. It says so with Abandon and Miss, which wait in the connection until the monitor
// reads them. The session lasts, and the hook reports again as soon as the monitor answers.
//
// The package is compiled into controllers of any age: it uses the standard library only and no language feature
// newer than Go 1.16.
package wire

import "time"

// ProtocolVersion is raised whenever a message changes its meaning. Hook and monitor must agree on it exactly.
const ProtocolVersion = 3

// Names of the RPC services.
const (
	MonitorService = "Monitor"
	HookService    = "Hook"
)

// Environment variables by which a process learns where its coordinator is.
const (
	EnvCoordinator = "TROMMEL_COORDINATOR" // unix:///path or tcp://host:port; unset: the hook stays inert
	EnvToken       = "TROMMEL_TOKEN"       // shared secret of this cluster
	EnvIdentity    = "TROMMEL_IDENTITY"    // apiserver-1, or the controller's name
	// EnvServiceAccountDir replaces /var/run/secrets/kubernetes.io/serviceaccount in rest.InClusterConfig.
	EnvServiceAccountDir = "TROMMEL_SERVICEACCOUNT_DIR"
)

// Point is a kind of place in a process at which it reports.
type Point string

// The points.
const (
	APIServerRecv   Point = "apiServerRecv"   // an API server's watch cache takes in an event from etcd
	ControllerRecv  Point = "controllerRecv"  // a controller's informer takes in an event
	ControllerRead  Point = "controllerRead"  // a read from an informer's cache, or live from the API server
	ControllerWrite Point = "controllerWrite" // a write to the API server
	Reconcile       Point = "reconcile"       // one call of a reconciler
	AnnotatedCall   Point = "annotatedCall"   // a function that the suite names
)

// Phase says on which side of the point the process stands.
type Phase string

// The phases.
const (
	Before Phase = "before"
	After  Phase = "after"
)

// Operation is what happens to the object.
type Operation string

// The operations. Recv points report Create, Update and Delete; read points Get, List and Watch; write points Create, Update,
// Patch, Apply, Delete and DeleteCollection.
const (
	Create           Operation = "create"
	Update           Operation = "update"
	Patch            Operation = "patch"
	Apply            Operation = "apply"
	Delete           Operation = "delete"
	DeleteCollection Operation = "deleteCollection"
	Get              Operation = "get"
	List             Operation = "list"
	Watch            Operation = "watch"
)

// Hello opens a session.
type Hello struct {
	ProtocolVersion int
	Token           string
	Identity        string
	PID             int
	Manifest        Manifest
}

// Welcome answers Hello. Reject, when not empty, says why the session is refused; the hook then stays inert and
// does not dial again.
type Welcome struct {
	Reject    string
	Session   uint64
	Interests Interests
	Limits    Limits
}

// Limits says how long a hook trusts its coordinator. Zero: as long as the session lasts.
type Limits struct {
	Hold    time.Duration // longest hold of one caller; longer than the coordinator's own deadline
	Silence time.Duration // how long the coordinator may leave pings unanswered until everybody is let go
}

// Manifest lists the points compiled into a binary.
type Manifest struct {
	Builder string // version of Trommel that built it
	Points  []CompiledPoint
}

// CompiledPoint is one hooked function.
type CompiledPoint struct {
	Point    Point
	Module   string // k8s.io/client-go
	Version  string // v0.36.3
	File     string // tools/cache/controller.go
	Line     int    // of the function in the unpatched file
	Receiver string // *Request, or empty
	Function string
	Name     string // an annotated function's name in the suite, otherwise empty
}

// Interests is what a process has to report; everything else passes without a message.
type Interests struct {
	Generation uint64
	Rules      []Rule
}

// Rule selects observations. An empty field selects all; Namespace and Name may hold '*' for any run of characters.
type Rule struct {
	Point      Point
	Phase      Phase
	Kind       string // singular, lower case: pod
	Resource   string // plural, lower case: pods; a process that knows only one of Kind and Resource compares that one
	Group      string // compared only where the process knows its object's group and AnyGroup is false
	AnyGroup   bool
	Namespace  string
	Name       string
	Operations []Operation
	// Items asks for the objects of a list whose namespace and name match ItemNamespace and ItemName (as Namespace and Name do).
	Items         bool
	ItemNamespace string
	ItemName      string
	Reconciler    string // a suffix of Observation.Reconciler or of Observation.ReconcilerType
	Call          string // annotated function's name in the suite
}

// Ack answers Configure: from its return on, new calls are judged by that generation of interests.
type Ack struct{ Generation uint64 }

// Observation is one report. The process that makes it waits until the monitor answers.
type Observation struct {
	Call        uint64 // pairs the before and the after of one call within a session; never 0
	Point       Point
	Phase       Phase
	Operation   Operation
	Group       string // empty also where unknown
	GroupKnown  bool
	Resource    string // plural, where known
	Kind        string // lower case, where known
	Namespace   string
	Name        string // empty for lists and collections; before a create with generateName: the prefix and GeneratedName
	Subresource string
	Object      []byte // JSON: the new state (after a write: as the API server answered); for a deletion the last state
	OldObject   []byte // JSON: the state before an update, where the process knows it
	// Version, Query, PatchType and Patch are what a request to the API server consists of beside the object.
	Version   string    // API version of the request
	Query     string    // its parameters, encoded: fieldManager, labelSelector, …
	PatchType PatchType // of a patch, of an apply
	Patch     []byte    // their body
	// Objects are, after a list, those of the listed objects that Rule.Items asks for, in JSON.
	Objects        [][]byte
	Partial        bool   // of a list: a page of it, or keys alone; what is not in it may be there
	Live           bool   // a read that went to the API server rather than to the cache
	Reconciler     string // the controller's name as controller-runtime knows it; empty where unknown
	ReconcilerType string // package.(*Type) of its reconciler
	ReconcileID    string
	Request        string // namespace/name of the reconcile request
	CallName       string // annotated function's name in the suite
	Error          string // after: the error that the call returned
	Code           int    // after a call to the API server: its HTTP status, 0 where unknown
}

// GeneratedName stands for the part of a name that the API server has yet to generate. No name can hold it.
const GeneratedName = "<generated>"

// PatchType is how a patch is to be understood.
type PatchType string

// The patch types.
const (
	MergePatch     PatchType = "merge"
	JSONPatch      PatchType = "json"
	StrategicPatch PatchType = "strategic"
	ApplyPatch     PatchType = "apply"
)

// Release answers Observe, Abandon, Miss and Trouble.
type Release struct{}

// Trouble says that a hook has failed inside the process that it is a guest of. The process goes on; what the hook should have reported
// is missing.
type Trouble struct {
	Text  string // what it panicked with
	Stack string
}

// Abandoned says that the caller of a held observation went on by itself: its context has ended, or the hook let it go
// at one of the Limits. It is of the session's observation with that call and phase.
type Abandoned struct {
	Call  uint64
	Phase Phase
	Error string // the context's error, or why the hook let go
	LetGo bool   // by the hook; nobody has asked for it
}

// Missed says that the process ran without being observed, although the session lasts.
type Missed struct {
	Why string
}
