// Package cluster defines what plans run on: a [Cluster] is access to a running control plane, and what only some
// clusters can do are separate interfaces. Kinds of clusters are packages below this one, registered by name.
package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/clock"
)

// ErrNotSupported is returned (wrapped) if a kind of cluster lacks a required capability.
var ErrNotSupported = errors.New("not supported by this cluster")

// Domain ends the full names of a cluster's Services: NAME.NAMESPACE.svc.cluster.local.
const Domain = ".cluster.local"

// Labels and annotations by which Trommel's components find their objects.
const (
	// AnnotationController on a pod template: the name of the controller under test that the pod runs. The process node
	// gives such a pod its own API server address, a proxy, which Route and CutConnections control.
	AnnotationController = "trommel.dev/controller"
	// AnnotationAPIServer on a pod template: the API server to which its proxy first connects. Default: the first.
	AnnotationAPIServer = "trommel.dev/api-server"
	// AnnotationBinaryPrefix + container name on a pod template: the local executable that replaces the container's
	// image. Without it the process node runs the container's command unchanged.
	AnnotationBinaryPrefix = "binary.trommel.dev/"
	// AnnotationFilesPrefix + container name on a pod template: the files that the image has and this machine does not,
	// as JSON: an object with paths in the image, and what is there on this machine. Each start of the container gets a
	// copy of its own. Volumes hide them.
	AnnotationFilesPrefix = "files.trommel.dev/"
	// AnnotationWorkDirPrefix + container name: the working directory; default: a new directory.
	AnnotationWorkDirPrefix = "workdir.trommel.dev/"
	// AnnotationTimeless on a pod: "true" says that nothing its processes do depends on the time, as with `sleep
	// infinity`. Then they do not keep a run in real time although they do not have its clock.
	AnnotationTimeless = "trommel.dev/timeless"
	// LabelProcessNode marks the process node; a pod that selects it (and tolerates TaintProcessNode) runs as local
	// processes.
	LabelProcessNode = "trommel.dev/process-node"
	TaintProcessNode = "trommel.dev/process-node" // effect NoSchedule
)

// Cluster is a running control plane. Its methods, and those of the interfaces below that it implements, may be called
// concurrently.
type Cluster interface {
	// Name identifies the cluster on this machine.
	Name() string
	// APIServers returns the names of the API servers, apiserver-1 first.
	APIServers() []string
	// RESTConfig returns a configuration for cluster-admin access through the named API server ("" is the first). The
	// caller owns it.
	RESTConfig(apiServer string) (*rest.Config, error)
	// Close ends the use of the cluster: a cluster that was started for the caller is torn down completely, one that
	// was already running keeps running.
	Close(ctx context.Context) error
}

// The following capabilities are optional: see [Capabilities]. If a plan or a suite needs a capability that a type of
// cluster lacks, validation refuses it: see plan.Capability.

// Instrumented is a cluster some of whose API servers have hooks.
type Instrumented interface {
	// InstrumentedAPIServers returns the names of the API servers that have hooks.
	InstrumentedAPIServers() []string
}

// Listener is a cluster whose instrumented processes, API servers and pods, know an address for the coordinator.
type Listener interface {
	// Rendezvous returns the address at which instrumented processes look for a coordinator and the token with which
	// they authenticate. The address is a wire.EnvCoordinator value. The coordinator listens there; only one can at a
	// time.
	Rendezvous() (address, token string)
}

// APIServerKiller is a cluster whose API servers can be killed.
type APIServerKiller interface {
	// KillAPIServer sends SIGKILL and waits until the process has exited. A killed API server stays down until
	// StartAPIServer.
	KillAPIServer(ctx context.Context, name string) error
	// StartAPIServer starts a killed API server and waits until it is ready. On a running one it is a no-op.
	StartAPIServer(ctx context.Context, name string) error
}

// OnDemand is a cluster some of whose API servers do not run until they are needed.
type OnDemand interface {
	// NeedAPIServers starts those of the API servers that do not run, and waits until they are ready.
	NeedAPIServers(ctx context.Context, names []string) error
}

// ProcessRunner is a cluster with a process node.
type ProcessRunner interface {
	Processes() ProcessNode
}

// ImageLoader is a cluster whose pods are containers of images.
type ImageLoader interface {
	// LoadImage puts an image of the local container engine onto every node. An error says that the engine lacks it.
	LoadImage(ctx context.Context, name string) error
}

// ContainerKillExpecter is a process node that does not see who ends a container.
type ContainerKillExpecter interface {
	// ExpectKills counts exits by SIGKILL and SIGTERM as planned from now on, until done is called.
	ExpectKills() (done func())
}

// Deployer is a cluster that starts controllers under test in a way of its own. Others get the controllers' objects,
// and what runs pods there does the rest.
type Deployer interface {
	// Deploy starts a controller. Own are its objects: its Deployment, with the annotations above, and what was
	// generated with it. It does not wait until the controller runs.
	Deploy(ctx context.Context, controller string, own []*unstructured.Unstructured) error
}

// Guarded is a cluster in which only some things may be written.
type Guarded interface {
	// Allow refuses manifests that must not be applied, and lets the others be. It is called before they are. Own are
	// the controllers' own objects, which are not applied.
	Allow(ctx context.Context, manifests, own []*unstructured.Unstructured) error
}

// Ailing is a cluster that knows what may be wrong with the machine that it is on.
type Ailing interface {
	// Ails says why what happens in the cluster may not be the controllers' doing, such as that the disk is full.
	// Empty: nothing is known to be wrong.
	Ails(ctx context.Context) string
}

// Equipped is a cluster on which some of Trommel's own controllers run for as long as it does.
type Equipped interface {
	// Equipment names them: Disruptions, Cycling.
	Equipment() []string
}

// Names of controllers of which a cluster may be equipped.
const (
	Disruptions = "disruptions"
	Cycling     = "cycling"
)

// Timed is a cluster whose processes may run by a clock of their own.
type Timed interface {
	// Clock returns the clock that the cluster's processes run by, always the same; nil is the machine's. All times
	// that the cluster returns, such as those of a Process, are of this clock.
	Clock() *clock.Clock
}

// Dialer is a cluster whose internal addresses this process can connect to.
type Dialer interface {
	// DialInside connects to an address of the cluster, host:port with an IP or a name of the cluster's DNS, as an API
	// server does when it calls a webhook. The error says why the address cannot be reached.
	DialInside(ctx context.Context, address string) (net.Conn, error)
}

// Logger is a cluster whose control plane's logs can be read.
type Logger interface {
	// Logs lists the current logs.
	Logs(ctx context.Context) ([]Log, error)
}

// Log is the log of a process of the control plane.
type Log struct {
	Name string // unique in the cluster; a file name such as apiserver-1.log
	Size int64  // in bytes, when the log was listed
	// Open opens the log at an offset in bytes. The caller closes it.
	Open func(offset int64) (io.ReadCloser, error)
}

// Resettable is a cluster that can be reset to an earlier state.
type Resettable interface {
	// TakeSnapshot waits until the cluster has settled and records its state. An error says what does not settle.
	TakeSnapshot(ctx context.Context) (Snapshot, error)
	// WithCertificates returns the snapshot with the certificates that the cluster has now: with the Secrets, and the
	// webhook configurations, definitions and API services, which contain CA bundles. It does not change the snapshot.
	WithCertificates(ctx context.Context, b Snapshot) (Snapshot, error)
	// Reset resets the cluster to the snapshot: it ends the process node's pods that are not in the snapshot, starts
	// API servers that were running, and restores every object, whoever has changed it. It returns when nothing has
	// differed for a moment; an error says what does. It may be called again, also after an error.
	Reset(ctx context.Context, to Snapshot) error
}

// Snapshot is the state of a cluster at one moment: all of its objects except events and those that the control plane
// itself constantly updates. Only the cluster that took it can read it.
type Snapshot any

// Shared is a cluster that keeps running after its user has ended. The user locks it, stores a snapshot in it, and
// deletes the snapshot when the cluster has been reset. If the user is killed, the next one finds the snapshot.
type Shared interface {
	Resettable
	// Lock takes exclusive use of the cluster; if it is in use, the error contains the user's process ID. The lock is
	// released when its holder dies.
	Lock() (unlock func(), err error)
	// KeepSnapshot atomically stores a snapshot in the cluster, replacing an earlier one. Only its owner can read it,
	// because it contains Secrets.
	KeepSnapshot(b Snapshot) error
	// KeptSnapshot reads the stored snapshot; the error is fs.ErrNotExist if there is none.
	KeptSnapshot() (Snapshot, error)
	// DropSnapshot deletes the stored snapshot.
	DropSnapshot() error
}

// ProcessNode is the node whose pods run as local processes. Controllers are addressed by the value of their pods'
// AnnotationController.
type ProcessNode interface {
	// NodeName returns the Node object's name.
	NodeName() string
	// Kill sends SIGKILL to every process of the controller and waits until they have exited. The controller stays down
	// (its pods remain, their containers wait) until Start. The exits count as planned.
	Kill(ctx context.Context, controller string) error
	// Freeze stops a process of the controller (SIGSTOP), with its children, and returns when it is stopped. A process
	// ID of 0 means the controller's only process.
	Freeze(ctx context.Context, controller string, pid int) error
	// Thaw lets the controller's frozen processes go on and reports how many there were. With kill it kills them and
	// waits until they have exited; they start again, and their exits count as planned.
	Thaw(ctx context.Context, controller string, kill bool) (frozen int, err error)
	// Start lets a killed controller start again, without back-off; it waits until the process is running.
	Start(ctx context.Context, controller string) error
	// Give sets what the controller's processes get besides what their pods say, from their next start on. It replaces
	// what was given before.
	Give(ctx context.Context, controller string, given Given) error
	// Route makes new connections of the controller go to the API server; existing connections do not move.
	Route(ctx context.Context, controller, apiServer string) error
	// CutConnections closes every open connection of the controller to the API server.
	CutConnections(ctx context.Context, controller string) error
	// Status returns the controller's processes, running and exited, oldest first.
	Status(ctx context.Context, controller string) ([]Process, error)
	// OpenLog opens the log of a process; it may contain several starts of the container. The caller closes it. The
	// error is fs.ErrNotExist if the process has none.
	OpenLog(p Process) (io.ReadCloser, error)
	// Stop ends all pods except those with the given UIDs, waits until their processes have exited, and ends all
	// faults. It does not report this to the API server, and the pods do not start again: the caller deletes their
	// objects.
	Stop(ctx context.Context, keep []types.UID) error
	// Faults lists the faults that injectors of disruptions have begun here.
	Faults(ctx context.Context) ([]Fault, error)
	// EndFaults ends them and returns when nothing of them is left. Injectors that still run do not begin them again.
	EndFaults(ctx context.Context) error
	// Reset ends all faults, lets held controllers start and frozen processes go on, undoes every Route and Give and
	// forgets exited processes, which a killed run may have left.
	Reset(ctx context.Context) error
}

// Given is what the processes of one container of a controller's pods get. No object shows it: a controller's
// Deployment, and so the hash of its pod template, is the same in a run without faults and in every plan.
type Given struct {
	Container string
	Env       map[string]string // instead of the container's own variables of these names
	Args      []string          // after the container's own
}

// To returns the variables, sorted, and the arguments that a container's processes get.
func (g Given) To(container string) (env, args []string) {
	if container != g.Container {
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(g.Env)) {
		env = append(env, name+"="+g.Env[name])
	}
	return env, g.Args
}

// Fault is one kind of fault of a disruption at one pod.
type Fault struct {
	ID             string
	Disruption     string // its namespace and name, with a slash
	Kind           string // as in a disruption's spec
	Namespace, Pod string // the target
	Began          time.Time
}

// Process is one start of one container.
type Process struct {
	Controller string
	Namespace  string
	Pod        string
	Container  string
	PID        int // on the machine of the process node
	Started    time.Time
	Ended      time.Time // zero while it is running
	ExitCode   int       // 128+n for a signal n
	// Planned: it was ended by Kill, or because its pod was deleted, or is an init container's that has done its work.
	Planned  bool
	Log      string // identifies the log for ProcessNode.OpenLog; the same for all starts of a container
	LogStart int64  // offset at which this start begins in the log, in bytes
	Unready  string // the error of the readiness probe, while it fails and the container is not ready
	// MetMachine explains, for a process that exited unplanned, what it looked for in its pod and found, or missed, on
	// this machine instead, or missed of its image, as far as its log shows it, and how to solve that. With few
	// exceptions such a process has no hooks.
	MetMachine string
}

// Running reports whether the process has not exited.
func (p Process) Running() bool { return p.Ended.IsZero() }

// RandomHex returns a random name of 2n hexadecimal digits, of n random bytes: for names, and from 16 bytes on for
// secrets.
func RandomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
