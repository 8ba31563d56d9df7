package run

import (
	"context"
	"errors"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/actions"
	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/objects/apply"
	"github.com/trommel-dev/trommel/internal/run/addons"
	"github.com/trommel-dev/trommel/internal/run/journal"
	"github.com/trommel-dev/trommel/internal/run/logs"
	"github.com/trommel-dev/trommel/internal/run/observed"
	"github.com/trommel-dev/trommel/internal/run/settle"
	"github.com/trommel-dev/trommel/internal/run/site"
	"github.com/trommel-dev/trommel/internal/run/tools"
	"github.com/trommel-dev/trommel/internal/run/webhooks"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// parts are the parts of a run that need the coordinator, or that it needs. They do not know each other: this file says
// who gets what of whom.
type parts struct {
	*site.Site
	coordinator *late
	logs        *logs.Set
	fleet       *fleet
	webhooks    *webhooks.Set
	upgrades    *upgrades
	access      *site.Access
	tools       actions.Tools
	course      *course
	settling    *settle.Controllers
	work        *settle.Queues
	states      *observed.States
	served      *newlyServed
	evidence    *journal.Evidence
}

// late is the coordinator for those parts of a run that the coordinator itself needs: it is set when there is one,
// before it carries anything out.
type late struct{ *coordinator.Coordinator }

// preparation are the parts that prepare a cluster for the workload.
type preparation struct {
	applyIn   func(cluster string) *apply.Applier
	access    *site.Access
	manifests []*suiteManifests // by cluster, the first one first
	addons    *addons.Set
}

// newLogs returns the part that keeps the logs.
func (r *runner) newLogs(at *site.Site) *logs.Set {
	return &logs.Set{
		Dir: r.recordDir, ControlPlane: at.Can.Logger, Node: at.Node, Controllers: r.controllers(),
		Logger: r.session.Logger,
	}
}

// controllers names the controllers under test.
func (r *runner) controllers() (names []string) {
	for _, c := range r.suite.Controllers {
		names = append(names, c.Name)
	}
	return names
}

// newPreparation puts together what prepares a cluster.
func (r *runner) newPreparation(at *site.Site) (*preparation, error) {
	applyIn := func(cluster string) *apply.Applier {
		return &apply.Applier{Apply: at.In(cluster).Apply, Timeout: r.suite.Timeouts.Step}
	}
	access, err := site.NewAccess(at, r.suite, r.teardown.later)
	if err != nil {
		return nil, err
	}
	manifests := suiteManifests{
		suite: r.suite, plan: r.plan, binaries: r.binaries, build: r.plan.Build, access: access,
		kubernetes: r.journal.Meta.Kubernetes, kept: at.Lease.Manifests,
		address: at.Monitor.Addr(), token: at.Token, info: r.journal.Console.Info,
		clock: at.Clock,
	}
	if at.Can.Guarded != nil {
		manifests.allow = at.Can.Guarded.Allow
	}
	set := &preparation{applyIn: applyIn, access: access}
	config := addons.Config{
		Plan: r.plan, Suite: r.suite, Node: at.Node, Clock: at.Clock, Later: r.teardown.later,
		Injector: r.session.Injector, Controllers: r.session.DisruptionControllers, Logger: r.session.Logger,
	}
	for _, m := range at.All() {
		one := manifests
		one.cluster = m.Name
		set.manifests = append(set.manifests, &one)
		config.Sites = append(config.Sites, addons.Site{
			Name: m.Name, Cluster: at.ClusterOf(m.Name), REST: m.Config, Objects: m.Objects, Manifests: one.read,
		})
	}
	set.addons = addons.New(config)
	return set, nil
}

// installAll applies these manifests of all clusters, except the controllers' own objects. Prepared: the clusters have
// them already.
func (p *preparation) installAll(ctx context.Context, manifests []*suiteManifests, prepared bool) (*installed, error) {
	var all *installed
	for _, m := range manifests {
		applyAll := p.applyIn(m.cluster).All
		if prepared {
			applyAll = nil
		}
		found, err := m.install(ctx, applyAll)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = found
			continue
		}
		maps.Copy(all.own, found.own)
		maps.Copy(all.containers, found.containers)
		maps.Copy(all.given, found.given)
		all.webhooks = append(all.webhooks, found.webhooks...)
		all.runsPods = all.runsPods || found.runsPods
	}
	return all, nil
}

// manifestsOf are the manifests of another build that the run needs, by cluster.
func (r *runner) manifestsOf(set *preparation, build string) (all []*suiteManifests) {
	for _, m := range set.manifests {
		one := *m
		one.suite, one.binaries, one.build = r.builds[build].Suite, r.builds[build].Binaries, build
		all = append(all, &one)
	}
	return all
}

// newParts puts together what runs and judges a plan on a prepared cluster. Kept are the manifests of the plan's apply
// actions: path in the plan to path in the record.
func (r *runner) newParts(
	at *site.Site, set *preparation, logs *logs.Set, declared []webhooks.Declaration, kept map[string]string,
) *parts {
	p := &parts{Site: at, coordinator: new(late), logs: logs, access: set.access}
	timeouts, under := r.suite.Timeouts, r.journal.Meta.Controllers
	p.fleet = &fleet{
		members: membersOf(under, r.binaries), ready: timeouts.Ready, alive: timeouts.Alive, node: at.Node,
		sessions: p.coordinator, tail: logs.Tail,
		list: func(ctx context.Context, kind string) ([]*unstructured.Unstructured, error) {
			var all []*unstructured.Unstructured
			for _, m := range at.All() {
				list, err := m.Objects.List(ctx, plan.ResourceKey{Type: kind, Namespace: "*", Name: "*"})
				if err != nil {
					return nil, err
				}
				all = append(all, list...)
			}
			return all, nil
		},
	}
	p.webhooks = &webhooks.Set{
		Declared: declared, Ready: timeouts.Ready, Step: timeouts.Step,
		In: func(name string) webhooks.Cluster {
			return webhooks.Cluster{
				Objects: at.In(name), Inside: cluster.CapabilitiesOf(at.ClusterOf(name)).Dialer,
			}
		},
		Clock: at.Clock, Plan: p.coordinator, Tails: logs.Tails, Info: r.journal.Console.Info,
	}
	p.tools = r.newTools(p, set, kept)
	p.course = &course{
		plan: p.coordinator, addons: set.addons, actions: r.plan.Actions,
		lastAction: r.events.LastAction, stuckAfter: timeouts.Stuck, add: r.journal.Add,
		postponed: func() time.Time { return p.coordinator.Ordering().Postponed() }, // the coordinator comes later
	}
	p.settling = &settle.Controllers{
		Plan: p.coordinator, Node: at.Node, Names: r.controllers(), Timeouts: timeouts,
		Away: func(controller string, at time.Time) string {
			return judge.ServerAway(r.plan, under, r.events.CarriedOut(), timeouts.Away, controller, at)
		},
		Pods: settle.NewPods(r.suite, at, r.session.Logger),
		Note: r.journal.Note, Logger: r.session.Logger,
	}
	p.work = &settle.Queues{
		Controllers: r.controllers(), Rest: timeouts.Rest, Polls: r.options.Polls, Pods: p.settling.Pods,
		Logger: r.session.Logger,
	}
	p.work.Reader, _ = at.Node.(cluster.QueueReader)
	if ref := r.options.Baseline; ref != nil {
		p.work.Polls = ref.Polls
	}
	p.settling.Busy = p.work.Busy
	served := at.Served()
	p.states = &observed.States{
		Types: served, List: served.List, Find: r.options.FindTypes, Logger: r.session.Logger,
	}
	p.evidence = &journal.Evidence{
		Needed: func(ctx context.Context, all []record.HistoryEntry) ([]record.HistoryEntry, error) {
			return p.states.Needed(ctx, all, r.events.TypesSeen())
		},
		ListProcesses: logs.Processes,
		Locks: func(ctx context.Context, controller string) ([]plan.ResourceKey, time.Duration, error) {
			all, err := p.coordinator.Locks(ctx, controller)
			lasts, lastsErr := p.coordinator.LeaseLasts(ctx, controller)
			return all, lasts, errors.Join(err, lastsErr)
		},
		Record: r.writer, Trouble: r.journal.Trouble,
	}
	return p
}

// newTools gives each kind of action what it needs of the cluster.
func (r *runner) newTools(p *parts, set *preparation, kept map[string]string) actions.Tools {
	keepLeases, home := map[string]bool{}, map[string]string{}
	for _, c := range r.suite.Controllers {
		keepLeases[c.Name], home[c.Name] = c.KeepLeases, c.Cluster
	}
	objectsIn := map[string]actions.Objects{}
	for _, m := range p.Members {
		objectsIn[m.Name] = &tools.Writes{Objects: m.Objects, Dir: r.recordDir, Manifests: kept}
	}
	processes := &tools.Controllers{
		Node: p.Node, Sessions: p.coordinator, KeepLeases: keepLeases,
		Objects: func(controller string) tools.LockWriter { return p.In(home[controller]) }, Home: home,
		Access: p.access, Await: p.fleet.awaitStart, Down: p.webhooks.Killed, Up: p.webhooks.Started,
	}
	p.upgrades = &upgrades{
		install: func(ctx context.Context, build string) (*installed, error) {
			return set.installAll(ctx, r.manifestsOf(set, build), false)
		},
		takeAway: func(ctx context.Context, from, to string) (bool, error) {
			return set.takeAway(ctx, r.manifestsOf(set, from), r.manifestsOf(set, to), p.In)
		},
		build: r.plan.Build,
		in: func(controller string) upgradedCluster {
			in := home[controller]
			return upgradedCluster{p.In(in), set.applyIn(in).One}
		},
		controllers: processes, sessions: p.coordinator,
		await: p.fleet.awaitStart, pods: p.fleet.podsOf, names: r.controllers(), ready: r.suite.Timeouts.Ready,
		become: func(ctx context.Context, build string, found *installed) error {
			b := r.builds[build]
			p.fleet.become(membersOf(describeControllers(b.Suite, b.Binaries, found), b.Binaries))
			p.webhooks.Declare(found.webhooks)
			return give(ctx, p.Node, found)
		},
		info: r.journal.Console.Info,
	}
	return actions.Tools{
		Controllers: processes,
		Upgrades:    p.upgrades,
		APIServers: &tools.APIServers{
			Cluster: p.Cluster.Name(), Killer: p.Can.Killer, Ready: r.suite.Timeouts.Ready, Sessions: p.coordinator,
		},
		Objects:     &tools.Writes{Objects: p.Objects, Dir: r.recordDir, Manifests: kept},
		ObjectsIn:   objectsIn,
		Disruptions: set.addons.Disruptions(), Cycles: set.addons.Cycles(),
		Clocks: tools.Clocks{Cluster: p.Cluster}, Connections: p.access,
	}
}
