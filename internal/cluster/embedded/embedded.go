// Package embedded runs a whole Kubernetes control plane as child processes of this one: etcd, up to five API servers
// on it, kube-controller-manager, kube-scheduler, KWOK for simulated nodes, pods and volumes, and a process node whose
// pods are local processes. It needs neither Docker nor privileges. Everything listens on loopback or on unix sockets
// in a directory that only the user can enter, and ends when this process ends, even by SIGKILL.
//
// The infrastructure (everything but the API servers and the controllers under test) connects to the first API server
// that is up, so that it keeps working when one is killed.
package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/clock/keeper"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/egress"
	"github.com/trommel-dev/trommel/internal/cluster/passthrough"
	"github.com/trommel-dev/trommel/internal/privatedir"
	"github.com/trommel-dev/trommel/internal/processnode"
)

// Environment variables of the hook, as defined by package instrumentation/wire; a test compares them.
const (
	envCoordinator = "TROMMEL_COORDINATOR"
	envToken       = "TROMMEL_TOKEN"
	envIdentity    = "TROMMEL_IDENTITY"
)

// envRemovedAPIs makes an API server serve removed API versions; Trommel's patch of k8s.io/apiserver reads it.
const envRemovedAPIs = "TROMMEL_SERVE_REMOVED_APIS"

// envFirstRevision is the revision of an empty store; Trommel's patch of etcd reads it.
const envFirstRevision = "TROMMEL_FIRST_REVISION"

const (
	serviceCIDR = "10.96.0.0/16"
	serviceIP   = "10.96.0.1" // of the service kubernetes.default
	// pollInterval is the interval of readiness checks where nothing can be watched.
	pollInterval = 15 * time.Millisecond
)

// Cluster is a cluster that this process runs. It implements cluster.Cluster.
type Cluster struct {
	config Config
	dir    *privatedir.Dir
	logDir string
	token  string
	clock  *clock.Clock   // nil: this machine's
	keeper *keeper.Keeper // of its clock; nil: real time

	access    *access
	programs  *programs
	apis      []*apiServer
	others    []*component // etcd, kube-controller-manager, kube-scheduler, kwok
	infra     *passthrough.Proxy
	network   *network
	processes *processnode.Node

	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
	watches   sync.WaitGroup // of supervise
}

// Name is the name of this kind of cluster in suites.
const Name = "embedded"

func init() {
	cluster.Register(Name, cluster.Kind{
		ControlPlane: true,
		Start: func(ctx context.Context, config cluster.Config) (cluster.Cluster, error) {
			return orNil(Start(ctx, config))
		},
		Attach: func(ctx context.Context, name string) (cluster.Cluster, error) { return orNil(Attach(ctx, name)) },
	})
}

// orNil avoids a non-nil interface that contains a nil pointer.
func orNil[C cluster.Cluster](c C, err error) (cluster.Cluster, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// capabilities are the interfaces that every embedded cluster implements.
type capabilities interface {
	cluster.Cluster
	cluster.Instrumented
	cluster.Listener
	cluster.APIServerKiller
	cluster.ProcessRunner
	cluster.Dialer
	cluster.Logger
	cluster.Resettable
	cluster.PodSimulator
}

var (
	_ capabilities     = (*Cluster)(nil)
	_ cluster.OnDemand = (*Cluster)(nil)
)

// startTimeout bounds Start for callers whose context has no deadline.
const startTimeout = 3 * time.Minute

// Start starts a cluster and waits until all API servers are ready, service accounts work and the process node is
// registered. On error, or if ctx ends first, it leaves nothing behind. The cluster outlives ctx; it ends with Close.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	config, err := withDefaults(config)
	if err != nil {
		return nil, err
	}
	c := &Cluster{config: config, token: cluster.RandomHex(16), closing: make(chan struct{})}
	if config.Member.Beside != nil {
		other, ok := config.Member.Beside.(*Cluster)
		if !ok {
			return nil, fmt.Errorf("start cluster %q beside one of another kind: %w", config.Name,
				cluster.ErrNotSupported)
		}
		c.token = other.token
	}
	if c.dir, err = privatedir.New(config.Dir); err != nil {
		return nil, fmt.Errorf("create the cluster's directory: %w", err)
	}
	startCtx, cancel := clock.WithTimeoutCause(clock.With(ctx, c.clock), startTimeout,
		fmt.Errorf("not up after %s", startTimeout))
	defer cancel()
	if err := c.start(startCtx); err != nil {
		_ = c.Close(context.WithoutCancel(ctx))
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
		return nil, fmt.Errorf("start cluster %q: %w", config.Name, err)
	}
	for _, component := range c.others {
		c.watches.Go(func() { c.supervise(component) })
	}
	return c, nil
}

// supervise restarts an infrastructure component when it exits, as a kubelet restarts a static pod. API servers are not
// supervised: the user decides whether they run.
func (c *Cluster) supervise(component *component) {
	delay := 100 * time.Millisecond
	for {
		select {
		case <-component.ended():
		case <-c.closing:
			return
		}
		c.config.Logger.Warn("restarting a control plane component that exited", "error", component.died())
		timer := c.clock.NewTimer(delay)
		select {
		case <-timer.C:
		case <-c.closing:
			timer.Stop()
			return
		}
		delay = min(2*delay, 10*time.Second)
		if _, err := component.start(); err != nil {
			c.config.Logger.Error("start component", "error", err)
		}
	}
}

func (c *Cluster) start(ctx context.Context) error {
	c.logDir = c.config.LogDir
	if c.logDir == "" {
		c.logDir = c.dir.File("logs")
	}
	var err error
	if c.logDir, err = filepath.Abs(c.logDir); err != nil {
		return err
	}
	if err := os.MkdirAll(c.logDir, 0o700); err != nil {
		return err
	}

	if err := c.startClock(); err != nil {
		return err
	}
	first := c.config.APIServers
	if c.config.OnDemand {
		first = len(c.config.Needed)
	}
	servers := fmt.Sprintf("%d API servers", first)
	if first == 1 {
		servers = "an API server"
	}
	c.config.Progress("starting etcd and " + servers)
	c.access = &access{cluster: c.config.Name, dir: c.dir}
	c.programs = &programs{config: c.config, dir: c.dir, logDir: c.logDir, keeper: c.keeper, access: c.access}
	c.programs.coordinator, c.programs.token = c.Rendezvous()
	etcd := c.programs.etcd()
	c.others = append(c.others, etcd)
	if _, err := etcd.start(); err != nil {
		return err
	}
	// While etcd starts.
	if err := c.prepare(); err != nil {
		return err
	}
	err = etcd.whileRunning(ctx, func(ctx context.Context) error { return awaitSocket(ctx, etcdSocket(c.dir.Path())) })
	if err != nil {
		return err
	}

	// Without etcd, say because the disk is full, API servers exit too, later and with another reason.
	if err := etcd.whileRunning(ctx, c.startAPIServers); err != nil {
		return err
	}
	return c.startInfrastructure(ctx)
}

// startAPIServers starts the API servers that are not left out, and waits until they are ready.
func (c *Cluster) startAPIServers(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, a := range c.apis {
		if c.config.OnDemand && !slices.Contains(c.config.Needed, a.name) {
			continue
		}
		if _, err := a.start(); err != nil {
			return err
		}
		group.Go(func() error { return a.awaitReady(ctx) })
	}
	return group.Wait()
}

// prepare creates keys, ports, files and the components.
func (c *Cluster) prepare() error {
	var err error
	if err := c.access.create(); err != nil {
		return fmt.Errorf("create the cluster's keys: %w", err)
	}
	if err := c.dir.Write("kwok.yaml", []byte(stagesFor(c.config))); err != nil {
		return err
	}
	for i := range c.config.APIServers {
		a, err := c.programs.newAPIServer(fmt.Sprintf("apiserver-%d", i+1))
		if err != nil {
			return err
		}
		c.apis = append(c.apis, a)
	}
	if c.infra, err = passthrough.New(c.clock, c.dialAnyAPIServer); err != nil {
		return fmt.Errorf("listen for the infrastructure: %w", err)
	}
	if err := c.access.writeKubeconfigs(c.infra.Addr(), c.apis); err != nil {
		return err
	}
	c.network, err = c.newNetwork()
	return err
}

// startInfrastructure starts the components that need API servers, and creates the objects that users of a cluster
// expect.
func (c *Cluster) startInfrastructure(ctx context.Context) error {
	c.config.Progress("starting controller manager, scheduler, simulated nodes and the process node")
	infra := []*component{c.programs.controllerManager()}
	if !c.config.Member.Small {
		infra = append(infra, c.programs.scheduler(), c.programs.kwok())
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, component := range infra {
		c.others = append(c.others, component)
		if _, err := component.start(); err != nil {
			return err
		}
	}
	ready := make(chan struct{})
	for _, component := range infra {
		// A component exits at once if it does not know a flag.
		group.Go(func() error {
			return component.whileRunning(groupCtx, func(ctx context.Context) error {
				select {
				case <-ready:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		})
	}
	group.Go(func() error {
		defer close(ready)
		inner, innerCtx := errgroup.WithContext(groupCtx)
		inner.Go(func() error { return c.createObjects(innerCtx) })
		inner.Go(func() error { return c.startProcessNode(innerCtx) })
		return inner.Wait()
	})
	return group.Wait()
}

func (c *Cluster) startProcessNode(ctx context.Context) error {
	user, err := issueClient(c.access.ca, "trommel:process-node", "system:masters")
	if err != nil {
		return err
	}
	pair, err := issueServer(c.access.ca)
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return err
	}
	servers := map[string]string{}
	for _, a := range c.apis {
		servers[a.name] = a.port.addr()
	}
	c.processes, err = processnode.Start(ctx, processnode.Config{
		RESTConfig:  c.access.restConfig(c.infra.Addr(), user),
		APIServers:  servers,
		First:       c.apis[0].name,
		CA:          c.access.ca.PEM(),
		Certificate: &certificate,
		ServiceCIDR: netip.MustParsePrefix(serviceCIDR), PodCIDR: netip.MustParsePrefix(podCIDR),
		Route:  c.network.Resolve,
		Dir:    c.dir.File("pods"),
		LogDir: filepath.Join(c.logDir, "pods"),
		Logger: c.config.Logger,
		Clock:  c.clock,
		Keeper: c.keeper,
	})
	if err == nil {
		c.network.processes.Store(c.processes)
	}
	return err
}

// dialAnyAPIServer connects to the first API server that is up.
func (c *Cluster) dialAnyAPIServer(ctx context.Context) (net.Conn, error) {
	err := errors.New("no API server is up")
	for _, a := range c.apis {
		if a.running() == nil {
			continue
		}
		var conn net.Conn
		if conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", a.port.addr()); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// Name identifies the cluster on this machine.
func (c *Cluster) Name() string { return c.config.Name }

// Clock is the clock of the cluster's processes; nil is this machine's.
func (c *Cluster) Clock() *clock.Clock { return c.clock }

// APIServers returns the names of the API servers, apiserver-1 first.
func (c *Cluster) APIServers() []string {
	var names []string
	for _, a := range c.apis {
		names = append(names, a.name)
	}
	return names
}

// InstrumentedAPIServers returns the names of the API servers that have hooks: all.
func (c *Cluster) InstrumentedAPIServers() []string { return c.APIServers() }

// RESTConfig returns a configuration for cluster-admin access through the named API server.
func (c *Cluster) RESTConfig(apiServer string) (*rest.Config, error) {
	a, err := c.apiServer(apiServer)
	if err != nil {
		return nil, err
	}
	return c.access.restConfig(a.port.addr(), a.admin), nil
}

// Kubeconfig returns the path of a kubeconfig file for the same access.
func (c *Cluster) Kubeconfig(apiServer string) (string, error) {
	a, err := c.apiServer(apiServer)
	if err != nil {
		return "", err
	}
	return a.kubeconfig, nil
}

// Rendezvous returns the address at which the API servers, and other instrumented processes that are given it, look for
// a coordinator, and their token.
func (c *Cluster) Rendezvous() (address, token string) {
	if other, ok := c.config.Member.Beside.(*Cluster); ok {
		return other.Rendezvous()
	}
	return "unix://" + c.dir.File("coordinator.sock"), c.token
}

// Running reports for each API server whether it is running.
func (c *Cluster) Running(context.Context) (map[string]bool, error) {
	running := map[string]bool{}
	for _, a := range c.apis {
		running[a.name] = a.running() != nil
	}
	return running, nil
}

// DialInside connects to an address of the cluster.
func (c *Cluster) DialInside(ctx context.Context, address string) (net.Conn, error) {
	return egress.Dial(ctx, c.dir.File(egressSocket), address)
}

// Processes returns the process node.
func (c *Cluster) Processes() cluster.ProcessNode { return c.processes }

// LogDir is the directory with the logs of the control plane's processes; its directory pods/ contains those of the
// process node.
func (c *Cluster) LogDir() string { return c.logDir }

// Logs lists the logs of the control plane's processes.
func (c *Cluster) Logs(context.Context) ([]cluster.Log, error) { return logsIn(c.logDir) }

// PodDir is the directory of the pods of the process node, which they see as it is.
func (c *Cluster) PodDir() string { return c.dir.File("pods") }

// Dir is the cluster's own directory, which Close deletes.
func (c *Cluster) Dir() string { return c.dir.Path() }

// KillAPIServer sends SIGKILL and waits until the process has exited.
func (c *Cluster) KillAPIServer(_ context.Context, name string) error {
	a, err := c.apiServer(name)
	if err != nil {
		return err
	}
	a.shutDown()
	return nil
}

// StartAPIServer starts a killed API server and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context, name string) error {
	a, err := c.apiServer(name)
	if err != nil {
		return err
	}
	a.lifecycle.Lock()
	defer a.lifecycle.Unlock()
	select {
	case <-c.closing:
		return fmt.Errorf("start %s: the cluster is closed", name)
	default:
	}
	if a.running() != nil {
		return nil
	}
	if _, err := a.start(); err != nil {
		return err
	}
	return a.awaitReady(clock.With(ctx, c.clock))
}

// NeedAPIServers starts those of the API servers that do not run.
func (c *Cluster) NeedAPIServers(ctx context.Context, names []string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		group.Go(func() error { return c.StartAPIServer(ctx, name) })
	}
	return group.Wait()
}

// Close kills every process, waits until they have exited and deletes the cluster's directory. Further calls do
// nothing.
func (c *Cluster) Close(ctx context.Context) error {
	c.closeOnce.Do(func() {
		close(c.closing)
		c.watches.Wait()
		if c.processes != nil {
			c.closeErr = c.processes.Close(ctx)
		}
		var wg sync.WaitGroup
		for _, component := range c.others {
			wg.Go(component.kill)
		}
		for _, a := range c.apis {
			wg.Go(a.shutDown)
		}
		wg.Wait()
		if c.network != nil {
			c.network.close()
		}
		if c.infra != nil {
			c.infra.Close()
		}
		for _, a := range c.apis {
			a.port.release()
		}
		c.closeClock()
		c.closeErr = errors.Join(c.closeErr, c.dir.Remove())
	})
	return c.closeErr
}

func (c *Cluster) apiServer(name string) (*apiServer, error) {
	if name == "" {
		return c.apis[0], nil
	}
	i := slices.IndexFunc(c.apis, func(a *apiServer) bool { return a.name == name })
	if i < 0 {
		return nil, noAPIServer(name, c.APIServers())
	}
	return c.apis[i], nil
}

func awaitSocket(ctx context.Context, path string) error {
	var dialer net.Dialer
	return cluster.Poll(ctx, pollInterval, func(ctx context.Context) error {
		conn, err := dialer.DialContext(ctx, "unix", path)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
