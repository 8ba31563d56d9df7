package cluster

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/trommel-dev/trommel/cluster/kubelet"
)

// Config says what a cluster is made of. Only Binary is required.
type Config struct {
	// Name identifies the cluster on this machine; default: a random one. Letters, digits and dashes, at most 40.
	Name string
	// Binary is the control plane executable (module controlplane).
	Binary string
	// APIServers is the number of API servers, 1 to 5; default 3.
	APIServers int
	// Nodes is the number of simulated nodes; default 3, negative: none.
	Nodes int
	// DisableControllers names controllers that kube-controller-manager leaves out.
	DisableControllers []string
	// FeatureGates are set in kube-apiserver, kube-controller-manager and kube-scheduler.
	FeatureGates map[string]bool
	// Further command line arguments of the components.
	APIServerArgs         []string
	ControllerManagerArgs []string
	SchedulerArgs         []string
	// RemovedAPIs makes the API servers serve API versions that Kubernetes has removed and still has the types of.
	RemovedAPIs bool
	// Answers are what containers of simulated pods answer; without one: success and no output.
	Answers []kubelet.Answer
	// Dir is the directory in which the cluster makes a directory of its own for keys, data and sockets. It must be
	// short: the path of a unix socket has about 100 characters. Default: one of the user's own below the directory for
	// temporary files.
	Dir string
	// LogDir is where the logs of all processes go; default: within the cluster's own directory, which goes with it.
	LogDir string
	// Progress, when set, is called with a line for people now and then.
	Progress func(string)
	// Logger is for what nobody asked about; default: none.
	Logger *slog.Logger
}

// Kind is how clusters of one kind come to be.
type Kind struct {
	// Start starts a cluster. It outlives ctx; the caller closes it. When Start fails, nothing is left.
	Start func(ctx context.Context, config Config) (Cluster, error)
	// Attach finds a running cluster by its name. Closing it leaves it running.
	Attach func(ctx context.Context, name string) (Cluster, error)
}

// kinds by name.
var kinds = map[string]Kind{}

// Register adds a kind of cluster under the name that suites call it by. It panics if there is one of that name. It is
// meant for initialization.
func Register(name string, k Kind) {
	if _, ok := kinds[name]; ok {
		panic(fmt.Sprintf("cluster: duplicate kind %q", name))
	}
	kinds[name] = k
}

// Lookup finds a kind of cluster.
func Lookup(name string) (Kind, error) {
	k, ok := kinds[name]
	if !ok {
		return Kind{}, fmt.Errorf("clusters of type %q: %w", name, ErrNotSupported)
	}
	return k, nil
}
