package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"

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
	// Dir is the folder in which the cluster makes a folder of its own for keys, data and sockets. It must be short:
	// the path of a unix socket has about 100 characters. Default: one of the user's own below the folder for
	// temporary files.
	Dir string
	// LogDir is where the logs of all processes go; default: within the cluster's own folder, which goes with it.
	LogDir string
	// Progress, when set, is called with a line for people now and then.
	Progress func(string)
	// Logger is for what nobody asked about; default: none.
	Logger *slog.Logger
}

// MaxAPIServers is the largest Config.APIServers.
const MaxAPIServers = 5

var nameRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// withDefaults returns a copy with defaults set and checked.
func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		c.Name = "c-" + randomHex(4)
	}
	if c.APIServers == 0 {
		c.APIServers = 3
	}
	switch {
	case c.Nodes == 0:
		c.Nodes = 3
	case c.Nodes < 0:
		c.Nodes = 0
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	var errs []error
	if !nameRE.MatchString(c.Name) {
		errs = append(errs, nameError(c.Name))
	}
	if c.APIServers < 1 || c.APIServers > MaxAPIServers {
		errs = append(errs, fmt.Errorf("%d API servers: want 1 to %d", c.APIServers, MaxAPIServers))
	}
	if info, err := os.Stat(c.Binary); err != nil {
		errs = append(errs, fmt.Errorf("control plane executable: %w", err))
	} else if info.IsDir() || info.Mode()&0o111 == 0 {
		errs = append(errs, fmt.Errorf("control plane executable: %s is not executable", c.Binary))
	}
	var err error
	if c.Binary, err = filepath.Abs(c.Binary); err != nil {
		errs = append(errs, err)
	}
	return c, errors.Join(errs...)
}

func nameError(name string) error {
	return fmt.Errorf("cluster name %q: want up to 40 lower case letters, digits and dashes", name)
}
