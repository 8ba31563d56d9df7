// Package cluster defines what plans run on: a [Cluster] is access to a running control plane, and whatever else some
// clusters can do is an interface of its own. Kinds of clusters live below it and are registered by name.
package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// ErrNotSupported is returned (wrapped) by who needs something that this kind of cluster cannot do.
var ErrNotSupported = errors.New("not supported by this cluster")

// Labels and annotations by which the parts of Trommel find their objects.
const (
	// AnnotationController on a pod template: the name of the controller under test that the pod runs.
	// The process node gives such a pod an API server address of its own (a proxy) that Route and
	// CutConnections work on.
	AnnotationController = "trommel.dev/controller"
	// AnnotationAPIServer on a pod template: the API server its proxy leads to at first. Default: the first.
	AnnotationAPIServer = "trommel.dev/api-server"
	// AnnotationBinaryPrefix + container name on a pod template: the local executable that stands for the
	// container's image. Without it the process node runs the container's command as it is.
	AnnotationBinaryPrefix = "binary.trommel.dev/"
	// AnnotationWorkDirPrefix + container name: the working directory; default: a new directory.
	AnnotationWorkDirPrefix = "workdir.trommel.dev/"
	// LabelProcessNode marks the process node; a pod that selects it (and tolerates TaintProcessNode) runs as local processes.
	LabelProcessNode = "trommel.dev/process-node"
	TaintProcessNode = "trommel.dev/process-node" // effect NoSchedule
)

// Cluster is a running control plane. Its methods, and those of the interfaces below that it implements, may be called
// concurrently.
type Cluster interface {
	// Name identifies the cluster on this machine.
	Name() string
	// APIServers names the API servers, apiserver-1 first.
	APIServers() []string
	// RESTConfig gives cluster-admin access through the named API server ("" is the first). The caller owns the copy.
	RESTConfig(apiServer string) (*rest.Config, error)
	// Close ends the use of the cluster: one that was started for the caller is torn down completely, one that was there
	// before is left running.
	Close(ctx context.Context) error
}

// What follows some clusters can do and others cannot. Callers ask for it with a type assertion. What a plan or a suite
// needs and a type of cluster lacks is refused when the plan is validated: see plan.Capability.

// Instrumented is a cluster some of whose API servers have hooks.
type Instrumented interface {
	// InstrumentedAPIServers names the API servers that have hooks.
	InstrumentedAPIServers() []string
}

// Listener is a cluster whose instrumented processes, API servers and pods, know where to look for a coordinator.
type Listener interface {
	// Rendezvous is the address at which instrumented processes look for a coordinator and the token that they show. The
	// address is a wire.EnvCoordinator value. Whoever wants to coordinate listens there, one at a time.
	Rendezvous() (address, token string)
}

// APIServerKiller is a cluster whose API servers can be killed.
type APIServerKiller interface {
	// KillAPIServer sends SIGKILL and returns when the process is gone. A killed API server stays down until
	// StartAPIServer.
	KillAPIServer(ctx context.Context, name string) error
	// StartAPIServer starts a killed API server and returns when it is ready. On a running one it is a no-op.
	StartAPIServer(ctx context.Context, name string) error
}

// ProcessRunner is a cluster with a process node.
type ProcessRunner interface {
	Processes() ProcessNode
}

// Dialer is a cluster within which connections can be made from here.
type Dialer interface {
	// DialInside connects to what stands behind an address of the cluster, host:port with an IP or a name of its DNS, as
	// an API server does that calls a webhook. The error says why an address leads nowhere.
	DialInside(ctx context.Context, address string) (net.Conn, error)
}

// Logger is a cluster whose control plane's logs can be read.
type Logger interface {
	// Logs lists the logs as they are now.
	Logs(ctx context.Context) ([]Log, error)
}

// Log is the log of a process of the control plane.
type Log struct {
	Name string // unique in the cluster; a file name such as apiserver-1.log
	Size int64  // in bytes, when the log was listed
	// Open opens the log at an offset in bytes. The caller closes it.
	Open func(offset int64) (io.ReadCloser, error)
}

// Resettable is a cluster that can be taken back to a state that it had.
type Resettable interface {
	// TakeBaseline notes the cluster's state as soon as it has come to rest. An error says what does not come to rest.
	TakeBaseline(ctx context.Context) (Baseline, error)
	// Reset takes the cluster back to the baseline: it ends the process node's pods that the baseline does not have,
	// starts API servers that ran, and puts every object back as it was, whoever has changed it. It returns when nothing
	// differs and does so for a moment; an error says what does. It may be called again, also after an error.
	Reset(ctx context.Context, to Baseline) error
}

// Baseline is the state of a cluster at one moment: all of its objects, but for events and for what the control plane
// itself writes all the time. Only the cluster that took it can read it.
type Baseline any

// Shared is a cluster that goes on after its user has ended. Its user locks it, keeps a baseline with it, and drops the
// baseline when the cluster has been put back. The next user finds the baseline of one that was killed.
type Shared interface {
	Resettable
	// Lock gives the caller sole use of the cluster; a second caller gets an error that names the holder's pid. A holder
	// that died holds nothing.
	Lock() (unlock func(), err error)
	// KeepBaseline keeps a baseline with the cluster, in place of the one before, wholly or not at all. It is readable by
	// its user alone: it holds Secrets.
	KeepBaseline(b Baseline) error
	// KeptBaseline reads the baseline that is kept; the error is fs.ErrNotExist if there is none.
	KeptBaseline() (Baseline, error)
	// DropBaseline deletes the baseline that is kept.
	DropBaseline() error
}

// ProcessNode is the node whose pods run as local processes. Controllers are addressed by the value of their pods'
// AnnotationController.
type ProcessNode interface {
	// NodeName is the Node object's name.
	NodeName() string
	// Kill sends SIGKILL to every process of the controller and returns when they are gone. The controller stays down
	// (its pods stay, their containers wait) until Start. The exits count as planned.
	Kill(ctx context.Context, controller string) error
	// Start lets a killed controller start again, at once and without back-off; it returns when the process runs.
	Start(ctx context.Context, controller string) error
	// Route makes new connections of the controller go to the API server; open ones stay where they are.
	Route(ctx context.Context, controller, apiServer string) error
	// CutConnections closes every open connection of the controller to the API server.
	CutConnections(ctx context.Context, controller string) error
	// Status lists the controller's processes, running and ended, oldest first.
	Status(ctx context.Context, controller string) ([]Process, error)
	// OpenLog opens the log of a process, with all starts of its container that the log holds. The caller closes it. The
	// error is fs.ErrNotExist if the process has none.
	OpenLog(p Process) (io.ReadCloser, error)
	// Stop ends all pods but those with the given UIDs and returns when their processes are gone. Nothing of it is told
	// to the API server, and the pods do not start again: the caller deletes their objects.
	Stop(ctx context.Context, keep []types.UID) error
	// Reset forgets held controllers and their ended processes: what a run that died left behind.
	Reset(ctx context.Context) error
}

// Process is one start of one container.
type Process struct {
	Controller string
	Namespace  string
	Pod        string
	Container  string
	PID        int // on the machine of the process node
	Started    time.Time
	Ended      time.Time // zero while it runs
	ExitCode   int       // 128+n for a signal n
	Planned    bool      // ended by Kill or because its pod was deleted
	Log        string    // names what ProcessNode.OpenLog opens; the same for all starts of a container
	LogStart   int64     // where this start begins in the log, in bytes
	// MetMachine tells, of a process that exited by itself, what it looked for in its pod and found on this machine
	// instead, as far as its log says so, and the way out. With few exceptions it is a process without hooks.
	MetMachine string
}

// Running reports whether the process has not ended.
func (p Process) Running() bool { return p.Ended.IsZero() }
