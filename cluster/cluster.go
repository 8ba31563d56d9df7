// Package cluster defines what a plan runs on. Implementations live below it: embedded, later kind and existing.
package cluster

import (
	"context"
	"errors"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// ErrNotSupported is returned (wrapped) by a method that this kind of cluster cannot carry out.
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
	// AnnotationWorkDirPrefix + container name: the working directory; default: a fresh folder.
	AnnotationWorkDirPrefix = "workdir.trommel.dev/"
	// LabelProcessNode marks the process node; a pod that selects it (and tolerates TaintProcessNode) runs as local processes.
	LabelProcessNode = "trommel.dev/process-node"
	TaintProcessNode = "trommel.dev/process-node" // effect NoSchedule
)

// Cluster is a running control plane. All methods may be called concurrently.
type Cluster interface {
	// Name identifies the cluster on this machine.
	Name() string
	// APIServers names the API servers, apiserver-1 first.
	APIServers() []string
	// RESTConfig gives cluster-admin access through the named API server ("" is the first). The caller owns the copy.
	RESTConfig(apiServer string) (*rest.Config, error)
	// Kubeconfig is the path of a kubeconfig file for the same access.
	Kubeconfig(apiServer string) (string, error)
	// Rendezvous is the address at which instrumented processes look for a coordinator and the token they show.
	// The address is a wire.EnvCoordinator value; whoever wants to coordinate listens there.
	Rendezvous() (address, token string)
	// Lock gives the caller sole use of the cluster for a run; a second caller gets an error that names the holder's pid.
	// A holder that died holds nothing.
	Lock() (unlock func(), err error)
	// KillAPIServer sends SIGKILL and returns when the process is gone. A killed API server stays down until StartAPIServer.
	KillAPIServer(ctx context.Context, name string) error
	// StartAPIServer starts a killed API server and returns when it is ready. On a running one it is a no-op.
	StartAPIServer(ctx context.Context, name string) error
	// DialInside connects to what stands behind an address of the cluster, host:port with an IP or a name of its DNS, as
	// an API server does that calls a webhook. The error says why an address leads nowhere.
	DialInside(ctx context.Context, address string) (net.Conn, error)
	// Processes is the process node, or nil where the cluster has none.
	Processes() ProcessNode
	// LogDir holds the logs of the control plane's processes.
	LogDir() string
	// StateDir is a folder that lives as long as the cluster, where a run keeps what the next one has to know if it is
	// killed. It is empty where the cluster is one run's alone.
	StateDir() string
	// Close ends the use of the cluster: one that was started for this run is torn down completely, one that was there
	// before is left running.
	Close(ctx context.Context) error
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
	// Stop ends all pods but those with the given UIDs and returns when their processes are gone. Nothing of it is told
	// to the API server, and the pods do not start again: whoever calls it takes their objects away.
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
	PID        int
	Started    time.Time
	Ended      time.Time // zero while it runs
	ExitCode   int       // 128+n for a signal n
	Planned    bool      // ended by Kill or because its pod was deleted
	LogFile    string    // stdout and stderr; may hold further starts of the same container
	LogStart   int64     // where this start begins in LogFile
	// MetMachine tells, of a process that ended by itself, what it looked for in its pod and met on this machine instead, as far as its log says so,
	// and the way out. With few exceptions it is one without hooks.
	MetMachine string
}

// Running reports whether the process has not ended.
func (p Process) Running() bool { return p.Ended.IsZero() }

// Resettable is a cluster that can be taken back to a state that it had.
type Resettable interface {
	// TakeBaseline notes the cluster's state as soon as it has come to rest. An error says what does not come to rest.
	TakeBaseline(ctx context.Context) (Baseline, error)
	// ReadBaseline reads one that WriteFile has written.
	ReadBaseline(file string) (Baseline, error)
	// Reset takes the cluster back to the baseline: it ends the process node's pods that the baseline does not have,
	// starts API servers that ran, and puts every object back as it was, whoever has changed it. It returns when nothing
	// differs and does so for a moment; an error says what does. It may be called again, also after an error.
	Reset(ctx context.Context, to Baseline) error
}

// Baseline is the state of a cluster at one moment: all of its objects, but for events and for what the control plane
// itself writes all the time.
type Baseline interface {
	// WriteFile keeps the baseline in a file, which is its user's alone: it holds Secrets. The file is there wholly or
	// not at all.
	WriteFile(file string) error
}
