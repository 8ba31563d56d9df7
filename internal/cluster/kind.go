package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/internal/cluster/kubelet"
)

// Config configures a cluster. Each kind takes what its type takes in suites.
type Config struct {
	// Name identifies the cluster on this machine; default: a random one. Letters, digits and dashes, at most 40.
	Name string
	// Binary is the control plane executable (module controlplane), for kinds that need one.
	Binary string
	// APIServers is the number of API servers, 1 to 5; default 3.
	APIServers int
	// OnDemand starts only the first API server and those in Needed, if the kind can do that; see the interface
	// OnDemand. An API server without requests still follows every change, which costs CPU time and memory.
	OnDemand bool
	Needed   []string
	// Nodes is the number of simulated nodes; default 3, negative: none.
	Nodes int
	// DisableControllers are the controllers that kube-controller-manager does not run.
	DisableControllers []string
	// FeatureGates are set in kube-apiserver, kube-controller-manager and kube-scheduler.
	FeatureGates map[string]bool
	// Further command line arguments of the components.
	APIServerArgs         []string
	ControllerManagerArgs []string
	SchedulerArgs         []string
	// RemovedAPIs makes the API servers serve API versions that Kubernetes has removed, if its code still contains
	// their types.
	RemovedAPIs bool
	// OwnTime gives the cluster a clock of its own, which moves ahead while nothing happens (see Timekeeper), if this
	// system can do that.
	OwnTime bool
	// Member makes the cluster one of several in a run. The zero value: it stands alone.
	Member Membership
	// Pods says what simulated pods do.
	Pods SimulatedPods
	// Equip, if set, is called when a cluster that other processes attach to has started, and stop before it ends.
	Equip func(ctx context.Context, c Cluster) (stop func() error, err error)
	// Equipment names what Equip gives the cluster; see Equipped.
	Equipment []string
	// Images are images of the local container engine that pods find on the cluster's node.
	Images []string
	// Dir is the directory in which the cluster creates its own directory for keys, data and sockets. Its path must be
	// short: the path of a unix socket is limited to about 100 characters. Default: a directory of the user below the
	// directory for temporary files.
	Dir string
	// LogDir is the directory for the logs of all processes; default: in the cluster's own directory, with which it is
	// deleted.
	LogDir string
	// Progress, if set, is called with progress messages.
	Progress func(string)
	// Logger receives diagnostics; default: none.
	Logger *slog.Logger
}

// Membership is the place of a cluster among several of a run.
type Membership struct {
	// Name is the name of the cluster in the run. Its API servers report to the coordinator as NAME/apiserver-1 and so
	// on.
	Name string
	// Beside is another cluster of the same kind. This cluster goes by the clock of that one, and its instrumented
	// processes look for the coordinator where that one's do. Nil: it is the first. The other one must be closed later.
	Beside Cluster
	// FirstRevision is the revision of etcd at which the cluster begins, so that its resource versions are above it;
	// 0: 1.
	FirstRevision int64
	// Small leaves out the scheduler and KWOK: pods are not scheduled, and nodes not simulated.
	Small bool
}

// JoinConfig leads to a cluster that another process runs.
type JoinConfig struct {
	// Kubeconfig is a file; empty: the one that kubectl would take.
	Kubeconfig, Context string
	// Namespaces are the only ones in which a run writes.
	Namespaces []string
	// DryRun: the cluster is only looked at.
	DryRun bool
	// Confirmed says that the user named the context for this very run, not only in a file.
	Confirmed bool
	// Progress, if set, is called with progress messages.
	Progress func(string)
	// Logger receives diagnostics; default: none.
	Logger *slog.Logger
}

// SimulatedPods says what simulated pods do.
type SimulatedPods struct {
	PodTimes
	// Answers are the responses of their containers; the default is success and no output.
	Answers []kubelet.Answer
	// StandIns answer for simulated pods. The first one that matches is used.
	StandIns []StandIn
	// JobKinds are kinds of objects, beside Job, whose pods run for a while and then succeed.
	JobKinds []string
}

// StandIn is a Service whose processes answer connections to simulated pods. Namespace and Pod are patterns of
// path.Match; an empty one matches all.
type StandIn struct {
	Namespace, Pod string
	Service        types.NamespacedName
}

// StandIn returns the Service that answers for a simulated pod; ok is false if there is none.
func (s *SimulatedPods) StandIn(namespace, pod string) (service types.NamespacedName, ok bool) {
	for _, in := range s.StandIns {
		if kubelet.Matches(in.Namespace, namespace) && kubelet.Matches(in.Pod, pod) {
			return in.Service, true
		}
	}
	return types.NamespacedName{}, false
}

// PodTimes says how long simulated pods take, in the cluster's time. The zero value is as fast as the API allows.
type PodTimes struct {
	// Ready is the time from when a pod is scheduled to when it is Ready, End that from its deletion, or from when a
	// pod of a Job runs, to its end. Each pod takes up to a quarter more, which follows from its namespace, its name
	// and Seed.
	Ready, End time.Duration
	Seed       int64
}

// DefaultPodTimes are those of a suite that does not set them.
func DefaultPodTimes() PodTimes { return PodTimes{Ready: 2 * time.Second, End: time.Second} }

// Longest is longer than any simulated pod takes, with what it takes the cluster to notice.
func (t PodTimes) Longest() time.Duration { return max(t.Ready, t.End)*5/4 + 2*time.Second }

// PodSimulator is a cluster with simulated pods.
type PodSimulator interface {
	// PodsUnderWay returns the simulated pods that are scheduled and not Ready yet, or marked for deletion and not gone
	// yet.
	PodsUnderWay(ctx context.Context) ([]types.UID, error)
}

// Kind starts and finds clusters of one kind.
type Kind struct {
	// ControlPlane says that clusters of the kind run the control plane executable that Trommel builds.
	ControlPlane bool
	// Check refuses a configuration without a look at the cluster; nil: it has nothing to refuse. Its error is a
	// *Refusal.
	Check func(config JoinConfig) error
	// Join begins to use a cluster that another process runs, for one run. It is a Shared. Nil: clusters of this kind
	// are started.
	Join func(ctx context.Context, config JoinConfig) (Cluster, error)
	// Start starts a cluster. It outlives ctx; the caller closes it. If Start fails, it leaves nothing behind.
	Start func(ctx context.Context, config Config) (Cluster, error)
	// FindImages refuses images that a cluster's LoadImage would not find, before there is a cluster. Nil: it has
	// nothing to refuse.
	FindImages func(ctx context.Context, names []string) error
	// Attach finds a running cluster by its name. Closing it leaves it running.
	Attach func(ctx context.Context, name string) (Cluster, error)
}

// Refusal is an error that the user has to solve: in a suite, in a kubeconfig, or in what he may do on a cluster.
type Refusal struct{ Err error }

func (r *Refusal) Error() string { return r.Err.Error() }
func (r *Refusal) Unwrap() error { return r.Err }

// kinds are the registered kinds by name.
var kinds = map[string]Kind{}

// Register adds a kind of cluster under its name in suites. It panics if the name is already registered. It is meant
// for init functions.
func Register(name string, k Kind) {
	if _, ok := kinds[name]; ok {
		panic(fmt.Sprintf("cluster: duplicate kind %q", name))
	}
	kinds[name] = k
}

// Lookup returns a kind of cluster, or ErrNotSupported (wrapped).
func Lookup(name string) (Kind, error) {
	k, ok := kinds[name]
	if !ok {
		return Kind{}, fmt.Errorf("this version of trommel cannot run plans on clusters of type %q yet: %w", name,
			ErrNotSupported)
	}
	return k, nil
}
