package run

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/privatedir"
	"github.com/trommel-dev/trommel/internal/run/clusters"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// site is the cluster of a run, and how the run reaches it.
type site struct {
	lease   *clusters.Lease
	cluster cluster.Cluster
	can     cluster.Capabilities // of cluster
	node    cluster.ProcessNode  // nil: it has none
	clock   *clock.Clock         // of its processes
	steady  string               // the API server for the run's own requests
	config  *rest.Config         // of steady
	objects *objects.Client      // through steady
	members []memberSite         // if there are several clusters; the first is steady's
	monitor *monitor.Monitor     // to which instrumented processes connect
	token   string               // with which they authenticate
}

// connect sets up the run's own access to the cluster, through an API server.
func (s *site) connect(apiServer string) (err error) {
	s.steady = apiServer
	if s.config, err = s.cluster.RESTConfig(apiServer); err != nil {
		return err
	}
	unthrottle(s.config)
	s.objects, err = objects.New(s.config)
	return err
}

// rendezvous returns the address at which instrumented processes look for the coordinator, and their token. A cluster
// without such an address gets a new one that no process knows.
func rendezvous(c cluster.Cluster, later later) (address, token string, err error) {
	if c := cluster.CapabilitiesOf(c).Listener; c != nil {
		address, token = c.Rendezvous()
		return address, token, nil
	}
	dir, err := privatedir.New("")
	if err != nil {
		return "", "", fmt.Errorf("listen for instrumented processes: %w", err)
	}
	later(func(context.Context) error { return dir.Remove() })
	return "unix://" + dir.File("coordinator.sock"), rand.Text(), nil
}

// awaitAPIServers waits until every instrumented API server has connected; a running one tries to connect several times
// a second.
func awaitAPIServers(ctx context.Context, c cluster.Cluster, ready time.Duration, sessions interface {
	WaitConnected(ctx context.Context, identity string, after, n int) error
}) error {
	ctx, cancel := clock.WithTimeout(ctx, ready)
	defer cancel()
	with := cluster.CapabilitiesOf(c).Instrumented
	if with == nil {
		return nil
	}
	for _, name := range with.InstrumentedAPIServers() {
		if err := sessions.WaitConnected(ctx, name, 0, 1); err != nil {
			return fmt.Errorf("%s did not connect to the coordinator within %s: is its binary instrumented?",
				name, ready)
		}
	}
	return nil
}

// writeKubeconfig writes a kubeconfig file for the workload's commands; the teardown deletes it.
func writeKubeconfig(c cluster.Cluster, apiServer string, later later) (file string, err error) {
	config, err := c.RESTConfig(apiServer)
	if err != nil {
		return "", err
	}
	dir, err := privatedir.New("")
	if err != nil {
		return "", fmt.Errorf("write a kubeconfig for the workload: %w", err)
	}
	later(func(context.Context) error { return dir.Remove() })
	file = dir.File("kubeconfig")
	return file, cluster.WriteKubeconfig(file, c.Name(), config)
}

// workloadLog is the log for the output of the workload's commands.
func workloadLog(recordDir string, later later, logger *slog.Logger) io.Writer {
	f, err := record.CreateFile(filepath.Join(recordDir, record.LogsDir, "workload.log"))
	if err != nil {
		logger.Warn("create the workload's log", "error", err)
		return io.Discard
	}
	later(func(context.Context) error { return f.Close() })
	return f
}

// steadyAPIServer returns an API server that the plan does not disturb, for the run's own requests; the first one if
// there is none.
func steadyAPIServer(p *plan.Plan, apiServers []string) string {
	disturbed := map[string]bool{}
	for _, a := range p.Actions {
		disturbed[a.Disturbs()] = true
	}
	for _, name := range apiServers {
		if !disturbed[name] {
			return name
		}
	}
	return apiServers[0]
}

func unthrottle(config *rest.Config) {
	config.QPS, config.Burst = -1, 0
}
