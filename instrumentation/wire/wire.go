// Package wire defines the messages between the hook, which is linked into API servers and controllers, and the
// coordinator's monitor.
//
// Both sides speak net/rpc (gob) over yamux on one connection. The hook dials. On the first stream, which the hook
// opens, the monitor serves [MonitorService]: Hello once, then Observe for every observation, Abandon, Miss and
// Trouble. On the second stream, which the monitor opens after Hello, the hook serves [HookService]: Configure.
//
// Observe is answered when the coordinator releases the observation, so a held caller is an unanswered call. When the
// session ends, all its unanswered calls end too. A caller whose context ends does not wait for the answer: the hook
// releases it and reports that with Abandon. Observations of one session are sent in the order in which their callers
// arrived; observations of different sessions are ordered only by their arrival at the monitor.
//
// The answer to Observe can make the call fail that was about to happen, see [Failure]. A caller that is released
// without an answer goes on as if it had never been observed.
//
// Each side pings the other, see [Heartbeat]. A monitor that hangs (stopped, in a debugger, swapped out) must not hold
// processes forever: the hook releases all callers when the monitor has not answered for [Limits].Silence, and a single
// one that was held for [Limits].Hold. It reports that with Abandon and Miss, which wait in the connection until the
// monitor reads them. The session lasts, and the hook reports again as soon as the monitor answers.
//
// The package is compiled into controllers of any age: it uses only the standard library and no language feature newer
// than Go 1.16.
package wire

import "time"

// ProtocolVersion is raised whenever a message changes its meaning. Hook and monitor must agree on it exactly.
const ProtocolVersion = 4

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

// The operations. Recv points report Create, Update and Delete; read points Get, List and Watch; write points Create,
// Update, Patch, Apply, Delete and DeleteCollection.
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

// Welcome answers Hello. Reject says why the session is refused, if it is; the hook then stays inert and does not dial
// again.
type Welcome struct {
	Reject    string
	Session   uint64
	Interests Interests
	Limits    Limits
}

// Limits says how long a hook trusts its coordinator. Zero: as long as the session lasts.
type Limits struct {
	Hold    time.Duration // longest hold of one caller; longer than the coordinator's own deadline
	Silence time.Duration // how long the coordinator may leave pings unanswered until all callers are released
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
	Fails    bool   // an annotated function that can be made to fail: its last result is an error
}

// Interests says what a process must report; nothing else sends a message.
type Interests struct {
	Generation uint64
	Rules      []Rule
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
	Name        string // empty for lists and collections; before a create with generateName: prefix and GeneratedName
	Subresource string
	Object      []byte // JSON: the new state (after a write: as the API server answered); for a deletion the last state
	OldObject   []byte // JSON: the state before an update, where the process knows it
	// Version, Query, PatchType and Patch are what a request to the API server consists of besides the object.
	Version   string    // API version of the request
	Query     string    // its parameters, encoded: fieldManager, labelSelector, …
	PatchType PatchType // of a patch, of an apply
	Patch     []byte    // their body
	// Objects are, after a list, those of the listed objects that Rule.Items asks for, in JSON.
	Objects [][]byte
	Partial bool // of a list: a page of it, or keys only; an object that is not in it may exist
	Live    bool // a read that went to the API server rather than to the cache
	// Server is the API server that a request goes to, as host:port, or OwnServer; empty: it is no request.
	Server         string
	Reconciler     string // the controller's name as controller-runtime knows it; empty where unknown
	ReconcilerType string // package.(*Type) of its reconciler
	ReconcileID    string
	Request        string // namespace/name of the reconcile request
	CallName       string // annotated function's name in the suite
	Error          string // after: the error that the call returned
	Code           int    // after a call to the API server: its HTTP status, 0 where unknown
	// Failed says that the call was made to fail, and how. Error is what its caller got. Object and Code are of the
	// answer that the API server gave if that was lost; if the call was refused, Code is what the caller got.
	Failed Answer
	// Callers are the places in the controller's own source that made the call, the innermost first, at most four. Nil:
	// no rule asks for them, or there are none.
	Callers []Frame
}

// Frame is a place in a program's source.
type Frame struct {
	Function string // with the path of its package: example.com/op/controller.(*Reconciler).Reconcile
	File     string // of the main module: relative to its root; otherwise module@version/file
	Line     int
}

// OwnServer is the API server that the environment of the process names, as for each pod of its cluster.
const OwnServer = "own"

// GeneratedName stands for the part of a name that the API server has yet to generate. No name can hold it.
const GeneratedName = "<generated>"

// PatchType is the format of a patch.
type PatchType string

// The patch types.
const (
	MergePatch     PatchType = "merge"
	JSONPatch      PatchType = "json"
	StrategicPatch PatchType = "strategic"
	ApplyPatch     PatchType = "apply"
)

// Release answers Observe, Abandon, Miss and Trouble.
type Release struct {
	// Failure makes the call fail that is about to happen, a request to the API server or an annotated call; nil: it
	// happens. It is ignored after a call and at other points.
	Failure *Failure
}

// Answer is what becomes of a call that is made to fail: of a request to the API server, or of an annotated function.
type Answer string

// The answers.
const (
	// Lost: the API server gets the request and answers it, or the function runs; the caller gets the failure instead.
	Lost Answer = "lost"
	// Refused: the API server does not get the request, or the function does not run.
	Refused Answer = "refused"
)

// Failure makes one call fail.
//
// client-go takes it for the answer of a server: it repeats the request if the answer says so (Retry-After). The
// repeated request is reported before it is made, like the first one. The caller of an annotated function gets an
// error, and of the other fields only Answer means something.
type Failure struct {
	Answer Answer
	Code   int               // HTTP status of the answer that the caller gets; 0: none, the client's timeout expires
	Header map[string]string // of that answer
	Body   []byte            // of that answer
}

// Trouble says that a hook has failed inside the process that it is linked into. The process goes on; what the hook
// should have reported is missing.
type Trouble struct {
	Text  string // what it panicked with
	Stack string
}

// Abandoned says that the caller of a held observation went on without a release: its context has ended, or the hook
// released it at one of the Limits. It is about the session's observation with that call and phase.
type Abandoned struct {
	Call  uint64
	Phase Phase
	Error string // the context's error, or why the hook released it
	LetGo bool   // the hook released it; neither the coordinator nor the caller asked for that
}

// Missed says that the process ran without being observed, although the session lasts.
type Missed struct {
	Why string
}
