package run

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/privatedir"
	"github.com/trommel-dev/trommel/internal/run/clusters"
	"github.com/trommel-dev/trommel/plan"
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

// newSite returns the site of a run that has leased a cluster.
func newSite(l *clusters.Lease) *site {
	can := cluster.CapabilitiesOf(l.Cluster)
	return &site{lease: l, cluster: l.Cluster, can: can, node: can.ProcessNode(), clock: can.Clock()}
}

// listen listens for the cluster's instrumented processes.
func (s *site) listen(
	timeouts plan.Timeouts, logger *slog.Logger, later func(undo func(context.Context) error),
) error {
	address, token, err := rendezvous(s.cluster, later)
	if err != nil {
		return err
	}
	s.token = token
	s.monitor, err = monitor.Listen(monitor.Config{
		Address: address, Token: token, Logger: logger, Limits: monitor.LimitsFor(timeouts.Hold),
		AckTimeout: timeouts.Acknowledge,
	})
	if err != nil {
		return err
	}
	later(func(context.Context) error { return s.monitor.Close() })
	return nil
}

// connect sets up the run's own access to the cluster, and to each one of several. It uses API servers that the plan
// does not disturb. First is the name of the first of several clusters.
func (s *site) connect(p *plan.Plan, first string) (err error) {
	s.steady = steadyAPIServer(p, plan.ServersOf(s.cluster.APIServers(), first))
	if s.config, err = s.cluster.RESTConfig(s.steady); err != nil {
		return err
	}
	unthrottle(s.config)
	if s.objects, err = objects.New(s.config); err != nil {
		return err
	}
	return s.connectMembers(p)
}

// rendezvous returns the address at which instrumented processes look for the coordinator, and their token. A cluster
// without such an address gets a new one that no process knows.
func rendezvous(c cluster.Cluster, later func(undo func(context.Context) error)) (address, token string, err error) {
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
func (s *site) awaitAPIServers(ctx context.Context, ready time.Duration, sessions interface {
	WaitConnected(ctx context.Context, identity string, after, n int) error
}) error {
	ctx, cancel := clock.WithTimeout(ctx, ready)
	defer cancel()
	if s.can.Instrumented == nil {
		return nil
	}
	for _, name := range s.can.Instrumented.InstrumentedAPIServers() {
		if err := sessions.WaitConnected(ctx, name, 0, 1); err != nil {
			return fmt.Errorf("%s did not connect to the coordinator within %s: is its binary instrumented?",
				name, ready)
		}
	}
	return nil
}

// writeKubeconfig writes a kubeconfig file for the workload's commands; the teardown deletes it.
func (s *site) writeKubeconfig(
	apiServer string, later func(undo func(context.Context) error),
) (file string, err error) {
	config, err := s.cluster.RESTConfig(apiServer)
	if err != nil {
		return "", err
	}
	dir, err := privatedir.New("")
	if err != nil {
		return "", fmt.Errorf("write a kubeconfig for the workload: %w", err)
	}
	later(func(context.Context) error { return dir.Remove() })
	file = dir.File("kubeconfig")
	return file, cluster.WriteKubeconfig(file, s.cluster.Name(), config)
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
