package run

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/discovery"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/run/certificates"
	"github.com/trommel-dev/trommel/internal/run/clientgo"
	"github.com/trommel-dev/trommel/internal/run/clusters"
	"github.com/trommel-dev/trommel/internal/run/logs"
	"github.com/trommel-dev/trommel/internal/run/observed"
	"github.com/trommel-dev/trommel/internal/run/site"
	"github.com/trommel-dev/trommel/plan"
)

// prepare sets up everything that the workload needs. Kept are the manifests of the plan's apply actions: path in the
// plan to path in the record.
func (r *runner) prepare(ctx context.Context, at *site.Site, logs *logs.Set, kept map[string]string) (*parts, error) {
	if err := at.Connect(r.plan, r.suite.FirstCluster()); err != nil {
		return nil, err
	}
	if err := r.check(at); err != nil {
		return nil, err
	}
	r.teardown.later(logs.Keep)
	r.journal.Enter("manifests")
	set, err := r.newPreparation(at)
	if err != nil {
		return nil, err
	}
	if err := set.addons.Install(ctx); err != nil {
		return nil, err
	}
	found, err := set.installAll(ctx, set.manifests, at.Lease.Prepared)
	if err != nil {
		return nil, err
	}
	if found.runsPods {
		at.Lease.KeepPrepared = nil // the pods would be part of the snapshot, and run on after the run
	}
	mayCome := r.mayCome(set)
	types, err := observed.ResolveTypes(ctx, at.Served(), r.plan, mayCome)
	if err != nil {
		return nil, err
	}
	r.journal.Meta.Controllers = describeControllers(r.suite, r.binaries, found)
	p := r.newParts(at, set, logs, found.webhooks, kept)
	p.served = &newlyServed{types: types, cluster: at.Cluster, servers: at.Servers, mayCome: mayCome}
	r.teardown.later(set.addons.Close)
	for _, line := range clientgo.WithoutStreamingLists(r.plan) {
		r.journal.Note(line)
	}
	for _, line := range clientgo.StalenessWarnings(r.plan, r.suite, r.journal.Meta.Controllers) {
		r.journal.Console.Info(line)
	}
	if err := r.startCoordinator(ctx, p, types.Resolve); err != nil {
		return nil, err
	}
	if err := at.AwaitAPIServers(ctx, r.suite.Timeouts.Ready, p.coordinator); err != nil {
		return nil, err
	}
	for _, m := range at.All() {
		if at.Can.Instrumented == nil {
			break // nothing can be stale there, and not everybody may list everything
		}
		servers := plan.ServersOf(at.Servers, m.Name)
		if err := observed.WarmWatchCaches(ctx, at.Cluster, servers, m.Objects, r.plan, r.suite); err != nil {
			return nil, err
		}
	}
	if keep := at.Lease.KeepPrepared; keep != nil {
		keep(ctx)
	}
	r.journal.Enter("controllers")
	return p, r.startControllers(ctx, p, set, found)
}

// check refuses a cluster that is not what the plan and the suite need.
func (r *runner) check(at *site.Site) error {
	s := &served{cluster: at.Cluster.Name(), apiServers: at.Cluster.APIServers(), clock: at.Clock}
	if err := s.checkServers(r.plan); err != nil {
		return err
	}
	if err := s.checkClock(r.plan, r.suite.Workloads[r.workload].Steps); err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(at.Config)
	if err != nil {
		return err
	}
	if err := s.askVersion(client); err != nil {
		return err
	}
	r.journal.Meta.Kubernetes = s.kubernetes
	if err := s.checkVersion(r.suite); err != nil {
		return err
	}
	if err := s.askRemovedAPIs(client); err != nil {
		return err
	}
	note, err := s.checkRemovedAPIs(r.suite, r.binaries)
	if note != "" {
		r.journal.Note(note)
	}
	return err
}

// startCoordinator starts the coordinator of the plan.
func (r *runner) startCoordinator(
	ctx context.Context, p *parts, resolve func(plan.ResourceKey) wire.Rule,
) error {
	under := r.journal.Meta.Controllers
	origins, err := site.NewOrigins(p.Site, r.suite, p.access.Addresses())
	if err != nil {
		return err
	}
	c, err := coordinator.New(coordinator.Config{
		ClusterOf: origins.Of,
		Plan:      r.plan, Monitor: p.Monitor, Controllers: under, Tools: p.tools, APIServers: p.Servers,
		Trace:   traceRules(r.options.Trace, p.Servers, under),
		Resolve: resolve, Lookup: p.Lookup(origins), Hold: r.suite.Timeouts.Hold,
		Busy:     func(ctx context.Context) bool { return p.work.Look(ctx).Busy },
		Recorder: r.events, Watcher: r.journal.Console, Logger: r.session.Logger,
	})
	if err != nil {
		return &UserError{Err: err}
	}
	p.coordinator.Coordinator, r.course = c, p.course
	// The coordinator outlives ctx: the teardown needs it.
	serve, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- c.Run(serve) }()
	r.teardown.later(func(context.Context) error { stop(); return <-served })
	return nil
}

// startControllers starts all controllers, those under test last, and waits until they and their webhooks work.
func (r *runner) startControllers(ctx context.Context, p *parts, set *preparation, found *installed) error {
	if err := set.addons.Start(ctx); err != nil {
		return err
	}
	if err := r.startInjectors(ctx, p.Site); err != nil {
		return err
	}
	if p.Node == nil && len(r.suite.Controllers) > 0 {
		return fmt.Errorf("run controllers: %w", cluster.ErrNotSupported)
	}
	if err := give(ctx, p.Node, found); err != nil {
		return err
	}
	deployer := p.Can.Deployer
	for _, c := range r.suite.Controllers {
		if deployer != nil {
			if err := deployer.Deploy(ctx, c.Name, found.own[c.Name]); err != nil {
				return clusters.Refused(r.suite.File, err)
			}
			continue
		}
		for _, u := range found.own[c.Name] {
			if err := set.applyIn(c.Cluster).One(ctx, u); err != nil {
				return err
			}
		}
	}
	if err := p.fleet.await(ctx); err != nil {
		return err
	}
	if err := p.webhooks.Await(ctx); err != nil {
		return err
	}
	if err := set.addons.Populate(ctx); err != nil {
		return err
	}
	if keep := p.Lease.KeepCertificates; keep != nil && p.webhooks.Any() {
		keep(ctx)
	}
	return nil
}

// startInjectors does the work of cert-manager's CA injector in all clusters, if the manifests need cert-manager: the
// controllers may write further configurations of webhooks.
func (r *runner) startInjectors(ctx context.Context, at *site.Site) error {
	issuer := &at.Lease.Manifests.Issuer
	if !issuer.Issues() {
		return nil
	}
	for _, m := range at.All() {
		injector := certificates.Injector{Issuer: issuer, Objects: m.Objects, Logger: r.session.Logger}
		stop, err := injector.Start(ctx)
		if err != nil {
			return fmt.Errorf("inject the certificate authority: %w", err)
		}
		r.teardown.later(func(context.Context) error { stop(); return nil })
	}
	return nil
}

// give gives the controllers' processes what differs between runs, before their pods are there.
func give(ctx context.Context, node cluster.ProcessNode, found *installed) error {
	for _, name := range slices.Sorted(maps.Keys(found.given)) {
		if err := node.Give(ctx, name, found.given[name]); err != nil {
			return fmt.Errorf("prepare controller %q: %w", name, err)
		}
	}
	return nil
}
