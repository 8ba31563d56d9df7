package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// RevisionSpan is how far apart the first revisions of the clusters of a [Group] are: a resource version shows its
// cluster. No run makes as many writes.
const RevisionSpan = 1_000_000_000_000

// Group is several clusters that a run takes for one, on one clock and with one coordinator. An API server is called
// MEMBER/apiserver-1. A controller belongs to the cluster that Home says. What is not about an API server or a
// controller is asked of the first member.
type Group struct {
	names   []string
	members map[string]Cluster
	home    map[string]string // by controller
}

// NewGroup groups clusters by name, in this order; home says in which of them each controller runs. The group owns the
// clusters. The first one is closed last.
func NewGroup(names []string, members map[string]Cluster, home map[string]string) *Group {
	return &Group{names: names, members: members, home: home}
}

// Members returns the names of the clusters, the first one first.
func (g *Group) Members() []string { return g.names }

// Member returns one of the clusters; an empty name is that of the first.
func (g *Group) Member(name string) Cluster {
	if name == "" {
		return g.first()
	}
	return g.members[name]
}

func (g *Group) first() Cluster { return g.members[g.names[0]] }

// capabilities returns what the group can do, which a run takes for one cluster. A run asks a member itself for what is
// nil here.
func (g *Group) capabilities() Capabilities {
	first := CapabilitiesOf(g.first())
	var keeper Timekeeper
	if first.Timekeeper != nil {
		keeper = groupTime{first.Timekeeper, g}
	}
	return Capabilities{
		g,              // Instrumented
		first.Listener, // of all
		g,              // Killer
		g,              // OnDemand
		g,              // Processes
		nil,            // Images
		nil,            // Deployer
		nil,            // Guarded
		g,              // Ailing
		nil,            // Equipped
		first.Timed,    // for all
		keeper,         // Timekeeper
		nil,            // Dialer
		g,              // Logger
		g,              // Resettable
		nil,            // Shared
		nil,            // Pods
	}
}

// find returns the cluster of an API server, and its name there.
func (g *Group) find(apiServer string) (Cluster, string, error) {
	if apiServer == "" {
		return g.first(), "", nil
	}
	member, name, _ := strings.Cut(apiServer, "/")
	if c := g.members[member]; c != nil && name != "" {
		return c, name, nil
	}
	return nil, "", fmt.Errorf("unknown API server %q (there are %s)", apiServer, strings.Join(g.APIServers(), ", "))
}

// Name identifies the first cluster on this machine.
func (g *Group) Name() string { return g.first().Name() }

// APIServers returns the names of all API servers, those of the first cluster first.
func (g *Group) APIServers() []string {
	return g.servers(func(c Cluster) []string { return c.APIServers() })
}

// InstrumentedAPIServers returns the names of those that have hooks.
func (g *Group) InstrumentedAPIServers() []string {
	return g.servers(func(c Cluster) []string {
		if with := CapabilitiesOf(c).Instrumented; with != nil {
			return with.InstrumentedAPIServers()
		}
		return nil
	})
}

func (g *Group) servers(of func(Cluster) []string) []string {
	var all []string
	for _, name := range g.names {
		for _, server := range of(g.members[name]) {
			all = append(all, name+"/"+server)
		}
	}
	return all
}

// RESTConfig returns a configuration for the named API server.
func (g *Group) RESTConfig(apiServer string) (*rest.Config, error) {
	c, name, err := g.find(apiServer)
	if err != nil {
		return nil, err
	}
	return c.RESTConfig(name)
}

// Dir is a directory that the process nodes' pods see, and that is deleted with the first cluster; empty: there is
// none.
func (g *Group) Dir() string {
	if c, ok := g.first().(interface{ PodDir() string }); ok {
		return c.PodDir()
	}
	return ""
}

// Close ends the use of all clusters.
func (g *Group) Close(ctx context.Context) error {
	var errs []error
	for _, name := range slices.Backward(g.names) {
		errs = append(errs, g.members[name].Close(ctx))
	}
	return errors.Join(errs...)
}

// KillAPIServer kills an API server.
func (g *Group) KillAPIServer(ctx context.Context, name string) error {
	killer, server, err := g.killer(name)
	if err != nil {
		return err
	}
	return killer.KillAPIServer(ctx, server)
}

// StartAPIServer starts a killed API server.
func (g *Group) StartAPIServer(ctx context.Context, name string) error {
	killer, server, err := g.killer(name)
	if err != nil {
		return err
	}
	return killer.StartAPIServer(ctx, server)
}

// NeedAPIServers starts API servers that do not run.
func (g *Group) NeedAPIServers(ctx context.Context, names []string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		c, server, err := g.find(name)
		if err != nil {
			return err
		}
		if of := CapabilitiesOf(c).OnDemand; of != nil {
			group.Go(func() error { return of.NeedAPIServers(ctx, []string{server}) })
		}
	}
	return group.Wait()
}

func (g *Group) killer(name string) (APIServerKiller, string, error) {
	c, server, err := g.find(name)
	if err != nil {
		return nil, "", err
	}
	killer := CapabilitiesOf(c).Killer
	if killer == nil {
		return nil, "", fmt.Errorf("kill or start %s: %w", name, ErrNotSupported)
	}
	return killer, server, nil
}

// groupTime is the time of a group. The first cluster keeps it for all.
type groupTime struct {
	Timekeeper
	group *Group
}

// Skew moves the wall clock of a controller's processes.
func (t groupTime) Skew(controller string, by time.Duration) (before time.Duration, err error) {
	of := CapabilitiesOf(t.group.of(controller)).Timekeeper
	if of == nil {
		return 0, fmt.Errorf("skew the clock of %q: %w", controller, ErrNotSupported)
	}
	return of.Skew(controller, by)
}

// Ails asks all clusters.
func (g *Group) Ails(ctx context.Context) string {
	for _, name := range g.names {
		if of := CapabilitiesOf(g.members[name]).Ailing; of != nil {
			if why := of.Ails(ctx); why != "" {
				return why
			}
		}
	}
	return ""
}

// of returns the cluster in which a controller runs.
func (g *Group) of(controller string) Cluster { return g.Member(g.home[controller]) }

// Logs lists the logs of all control planes; their names begin with that of the cluster.
func (g *Group) Logs(ctx context.Context) ([]Log, error) {
	var all []Log
	var errs []error
	for _, name := range g.names {
		c := CapabilitiesOf(g.members[name]).Logger
		if c == nil {
			continue
		}
		list, err := c.Logs(ctx)
		errs = append(errs, err)
		for _, l := range list {
			l.Name = name + "-" + l.Name
			all = append(all, l)
		}
	}
	return all, errors.Join(errs...)
}

// groupSnapshot has the snapshots of all clusters.
type groupSnapshot map[string]Snapshot

// each calls f for all clusters at the same time.
func (g *Group) each(ctx context.Context, f func(ctx context.Context, name string, c Resettable) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range g.names {
		c := CapabilitiesOf(g.members[name]).Resettable
		if c == nil {
			return fmt.Errorf("reset cluster %s: %w", name, ErrNotSupported)
		}
		group.Go(func() error {
			if err := f(ctx, name, c); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// collect collects a snapshot of each cluster.
func (g *Group) collect(
	ctx context.Context, f func(ctx context.Context, name string, c Resettable) (Snapshot, error),
) (Snapshot, error) {
	found := make([]Snapshot, len(g.names))
	err := g.each(ctx, func(ctx context.Context, name string, c Resettable) (err error) {
		found[slices.Index(g.names, name)], err = f(ctx, name, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	all := groupSnapshot{}
	for i, name := range g.names {
		all[name] = found[i]
	}
	return all, nil
}

// TakeSnapshot records the state of all clusters.
func (g *Group) TakeSnapshot(ctx context.Context) (Snapshot, error) {
	return g.collect(ctx, func(ctx context.Context, _ string, c Resettable) (Snapshot, error) {
		return c.TakeSnapshot(ctx)
	})
}

// WithCertificates returns the snapshot with the certificates that the clusters have now.
func (g *Group) WithCertificates(ctx context.Context, b Snapshot) (Snapshot, error) {
	all, ok := b.(groupSnapshot)
	if !ok {
		return nil, errors.New("this snapshot is not one of several clusters")
	}
	return g.collect(ctx, func(ctx context.Context, name string, c Resettable) (Snapshot, error) {
		return c.WithCertificates(ctx, all[name])
	})
}

// Reset resets all clusters. No controller of one may go on while another is reset, or it would write there: all pods
// are stopped first.
func (g *Group) Reset(ctx context.Context, to Snapshot) error {
	all, ok := to.(groupSnapshot)
	if !ok {
		return errors.New("this snapshot is not one of several clusters")
	}
	if err := g.Processes().Stop(ctx, nil); err != nil {
		return err
	}
	return g.each(ctx, func(ctx context.Context, name string, c Resettable) error { return c.Reset(ctx, all[name]) })
}

// Processes returns the process nodes of all clusters as one.
func (g *Group) Processes() ProcessNode { return groupNode{g} }

// groupNode is the process nodes of a group.
type groupNode struct{ *Group }

func (g groupNode) node(controller string) ProcessNode {
	return CapabilitiesOf(g.of(controller)).ProcessNode()
}

func (g groupNode) all(f func(name string, n ProcessNode) error) error {
	var errs []error
	for _, name := range g.names {
		if n := CapabilitiesOf(g.members[name]).ProcessNode(); n != nil {
			errs = append(errs, f(name, n))
		}
	}
	return errors.Join(errs...)
}

func (g groupNode) NodeName() string { return CapabilitiesOf(g.first()).ProcessNode().NodeName() }

func (g groupNode) Kill(ctx context.Context, controller string) error {
	return g.node(controller).Kill(ctx, controller)
}

func (g groupNode) Freeze(ctx context.Context, controller string, pid int) error {
	return g.node(controller).Freeze(ctx, controller, pid)
}

func (g groupNode) Thaw(ctx context.Context, controller string, kill bool) (frozen int, err error) {
	return g.node(controller).Thaw(ctx, controller, kill)
}

func (g groupNode) Start(ctx context.Context, controller string) error {
	return g.node(controller).Start(ctx, controller)
}

func (g groupNode) Give(ctx context.Context, controller string, given Given) error {
	return g.node(controller).Give(ctx, controller, given)
}

func (g groupNode) Route(ctx context.Context, controller, apiServer string) error {
	c, server, err := g.find(apiServer)
	if err != nil {
		return err
	}
	if c != g.of(controller) {
		return fmt.Errorf("connect %q to %s, which is in another cluster: %w", controller, apiServer, ErrNotSupported)
	}
	return g.node(controller).Route(ctx, controller, server)
}

func (g groupNode) CutConnections(ctx context.Context, controller string) error {
	return g.node(controller).CutConnections(ctx, controller)
}

func (g groupNode) Status(ctx context.Context, controller string) ([]Process, error) {
	return g.node(controller).Status(ctx, controller)
}

func (g groupNode) OpenLog(p Process) (io.ReadCloser, error) {
	return g.node(p.Controller).OpenLog(p)
}

func (g groupNode) Stop(ctx context.Context, keep []types.UID) error {
	return g.all(func(_ string, n ProcessNode) error { return n.Stop(ctx, keep) })
}

func (g groupNode) Faults(ctx context.Context) (all []Fault, err error) {
	err = g.all(func(_ string, n ProcessNode) error {
		list, err := n.Faults(ctx)
		all = append(all, list...)
		return err
	})
	return all, err
}

func (g groupNode) EndFaults(ctx context.Context) error {
	return g.all(func(_ string, n ProcessNode) error { return n.EndFaults(ctx) })
}

func (g groupNode) Reset(ctx context.Context) error {
	return g.all(func(_ string, n ProcessNode) error { return n.Reset(ctx) })
}

// Queues returns the work queues of a controller's processes.
func (g groupNode) Queues(ctx context.Context, controller string) (queues []wire.Queue, known bool, err error) {
	if n, ok := g.node(controller).(QueueReader); ok {
		return n.Queues(ctx, controller)
	}
	return nil, false, nil
}
