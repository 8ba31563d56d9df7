// Package site has the clusters of a run, and how the run and the controllers under test reach them.
package site

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
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

// Site is the cluster of a run, and how the run reaches it.
type Site struct {
	Lease   *clusters.Lease
	Cluster cluster.Cluster
	Can     cluster.Capabilities // of cluster
	Node    cluster.ProcessNode  // nil: it has none
	Clock   *clock.Clock         // of its processes
	Servers []string             // the API servers that the run uses; others may not run
	Steady  string               // the API server for the run's own requests
	Config  *rest.Config         // of steady
	Objects *objects.Client      // through steady
	Members []Member             // if there are several clusters; the first is steady's
	Monitor *monitor.Monitor     // to which instrumented processes connect
	Token   string               // with which they authenticate
}

// New returns the site of a run that has leased a cluster.
func New(l *clusters.Lease) *Site {
	can := cluster.CapabilitiesOf(l.Cluster)
	return &Site{Lease: l, Cluster: l.Cluster, Can: can, Node: can.ProcessNode(), Clock: can.Clock()}
}

// Listen listens for the cluster's instrumented processes.
func (s *Site) Listen(
	timeouts plan.Timeouts, logger *slog.Logger, later func(undo func(context.Context) error),
) error {
	address, token, err := rendezvous(s.Cluster, later)
	if err != nil {
		return err
	}
	s.Token = token
	s.Monitor, err = monitor.Listen(monitor.Config{
		Address: address, Token: token, Logger: logger, Limits: monitor.LimitsFor(timeouts.Hold),
		AckTimeout: timeouts.Acknowledge,
	})
	if err != nil {
		return err
	}
	later(func(context.Context) error { return s.Monitor.Close() })
	return nil
}

// Connect sets up the run's own access to the cluster, and to each one of several. It uses API servers that the plan
// does not disturb. First is the name of the first of several clusters.
func (s *Site) Connect(p *plan.Plan, first string) (err error) {
	s.Steady = steadyAPIServer(p, plan.ServersOf(s.Cluster.APIServers(), first))
	if s.Config, err = s.Cluster.RESTConfig(s.Steady); err != nil {
		return err
	}
	unthrottle(s.Config)
	if s.Objects, err = objects.New(s.Config); err != nil {
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

// AwaitAPIServers waits until every instrumented API server that the run uses has connected; a running one tries to
// connect several times a second.
func (s *Site) AwaitAPIServers(ctx context.Context, ready time.Duration, sessions interface {
	WaitConnected(ctx context.Context, identity string, after, n int) error
}) error {
	ctx, cancel := clock.WithTimeout(ctx, ready)
	defer cancel()
	if s.Can.Instrumented == nil {
		return nil
	}
	for _, name := range s.Can.Instrumented.InstrumentedAPIServers() {
		if !slices.Contains(s.Servers, name) {
			continue
		}
		if err := sessions.WaitConnected(ctx, name, 0, 1); err != nil {
			return fmt.Errorf("%s did not connect to the coordinator within %s: is its binary instrumented?",
				name, ready)
		}
	}
	return nil
}

// WriteKubeconfig writes a kubeconfig file for the workload's commands; the teardown deletes it.
func (s *Site) WriteKubeconfig(
	apiServer string, later func(undo func(context.Context) error),
) (file string, err error) {
	config, err := s.Cluster.RESTConfig(apiServer)
	if err != nil {
		return "", err
	}
	dir, err := privatedir.New("")
	if err != nil {
		return "", fmt.Errorf("write a kubeconfig for the workload: %w", err)
	}
	later(func(context.Context) error { return dir.Remove() })
	file = dir.File("kubeconfig")
	return file, cluster.WriteKubeconfig(file, s.Cluster.Name(), config)
}

// Used returns those of the API servers that a run uses: the plan or a controller of one of the suites names them, or
// they are for the run's own requests. Controllers reach other clusters through the first API server, which always
// runs.
func Used(p *plan.Plan, all []string, suites []*plan.Suite) []string {
	named := map[string]bool{}
	for i := range p.Actions {
		a := &p.Actions[i]
		named[a.Target], named[a.ReconnectAPIServer] = true, true
		for _, d := range a.Trigger.Definitions {
			named[d.Observe.ObserveBy] = true
		}
	}
	for _, s := range suites {
		for _, c := range s.Controllers {
			named[c.APIServer] = true
		}
	}
	seen := map[string]bool{}
	for _, server := range all {
		if in, _ := plan.SplitServer(server); !seen[in] {
			seen[in] = true
			named[server], named[steadyAPIServer(p, plan.ServersOf(all, in))] = true, true
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(server string) bool { return !named[server] })
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
