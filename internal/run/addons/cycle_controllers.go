package addons

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/clock/kube"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/mistake"
	"github.com/trommel-dev/trommel/internal/objects"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	nodesconfig "github.com/trommel-dev/trommel/nodes/config"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/controller/checks"
	nodesmanager "github.com/trommel-dev/trommel/nodes/controller/manager"
	"github.com/trommel-dev/trommel/nodes/simulated"
	"github.com/trommel-dev/trommel/plan"
)

// cycleControllers are the controllers of node cycling and the simulated cloud of a cluster in which a plan cycles
// nodes. They run in this process.
type cycleControllers struct {
	plan      *plan.Plan
	member    string // the cluster among several; empty: there is only one
	cluster   string // its name
	to        *rest.Config
	supported bool                                         // it has simulated nodes
	manifests func() ([]*unstructured.Unstructured, error) // the suite's for it
	step      time.Duration                                // that a group may take to have its nodes
	follow    follows[nodes.SimulatedNodeGroup]
	apply     interface {
		One(ctx context.Context, u *unstructured.Unstructured) error
		Files(ctx context.Context, files fs.FS, names []string) error
	}
	later  func(undo)
	logger *slog.Logger

	present bool // the cluster is equipped with them
	own     bool // they are needed, and the suite does not bring them along
}

// cycleDefinitions are the types of node cycling.
var cycleDefinitions = []string{
	nodesconfig.RequestDefinition, nodesconfig.StatusDefinition, nodesconfig.GroupDefinition,
	nodesconfig.CallDefinition,
}

// newCycleControllers returns those of each cluster in which the plan cycles nodes.
func newCycleControllers(c *Config) (all []*cycleControllers) {
	for i := range c.Sites {
		in := &c.Sites[i]
		if !slices.ContainsFunc(c.Plan.Actions, func(a plan.Action) bool {
			return a.Cycles() != nil && a.Cluster == in.Name
		}) {
			continue
		}
		all = append(all, &cycleControllers{
			plan: c.Plan, member: in.Name, cluster: in.Cluster.Name(), to: in.REST,
			supported: cluster.CapabilitiesOf(in.Cluster).Processes != nil, manifests: in.Manifests,
			step: c.Suite.Timeouts.Step, follow: followOn[nodes.SimulatedNodeGroup](in.Objects), apply: c.applier(in),
			later: c.Later, logger: c.Logger, present: equippedWith(in.Cluster, cluster.Cycling),
		})
	}
	return all
}

// cyclesItself reports whether a suite brings the controllers of node cycling along: its manifests define the
// resources. The run then has none of its own, which would do the same work.
func cyclesItself(manifests []*unstructured.Unstructured) bool {
	return slices.ContainsFunc(manifests, func(u *unstructured.Unstructured) bool {
		return u.GetKind() == "CustomResourceDefinition" && u.GetName() == "cyclenoderequests."+nodes.GroupVersion.Group
	})
}

// Install applies the definitions of node cycling. The suite's manifests may contain simulated node groups, so it comes
// first.
func (c *cycleControllers) Install(ctx context.Context) error {
	if !c.supported {
		return &mistake.Error{Err: fmt.Errorf("%s: cycleNodes: cluster %q has no simulated nodes: %w",
			c.plan.File, c.cluster, cluster.ErrNotSupported)}
	}
	manifests, err := c.manifests()
	if err != nil || cyclesItself(manifests) || c.present {
		return err
	}
	c.own = true
	return c.apply.Files(ctx, nodesconfig.Files, cycleDefinitions)
}

// Start starts the controllers of node cycling and the simulated cloud. They end with the run.
func (c *cycleControllers) Start(ctx context.Context) error {
	if !c.own {
		return nil
	}
	mgr, err := newCycling(c.to, clock.Of(ctx), c.logger)
	if err != nil {
		return fmt.Errorf("controllers of node cycling: %w", err)
	}
	return serve(ctx, "controllers of node cycling", mgr, c.later)
}

// newCycling makes the controllers of node cycling of a cluster for tests, with the simulated cloud, to run in this
// process.
func newCycling(to *rest.Config, by *clock.Clock, logger *slog.Logger) (ctrl.Manager, error) {
	to = rest.CopyConfig(to)
	to.UserAgent = "trommel-nodes"
	return nodesmanager.New(to, nodesmanager.Options{
		Provider: simulated.For, Clock: by,
		Add: func(mgr ctrl.Manager) error {
			c := kube.Clock(by)
			return simulated.Add(mgr, simulated.Options{Clock: c, NewQueue: kube.Queue(c)})
		},
		CheckEndpoints: []string{checks.Any}, // the plan and the machine are the same person's
		Limits:         controller.Limits{Poll: 200 * time.Millisecond},
		Logger:         logr.FromSlogHandler(logger.Handler()),
	})
}

// groups returns the simulated node groups of the plan's cycles.
func (c *cycleControllers) groups() (all []*unstructured.Unstructured, err error) {
	for i := range c.plan.Actions {
		cycle := c.plan.Actions[i].Cycles()
		if cycle.SimulatedGroup() == nil || c.plan.Actions[i].Cluster != c.member {
			continue
		}
		group, err := objects.FromMap(map[string]any{
			"apiVersion": nodes.GroupVersion.String(), "kind": "SimulatedNodeGroup",
			"metadata": map[string]any{"name": cycle.Group()}, "spec": cycle.SimulatedGroup(),
		})
		if err != nil {
			return nil, err
		}
		all = append(all, group)
	}
	return all, nil
}

// Populate creates the simulated node groups of the plan's cycles, and returns when they have their nodes: a
// workload may need them at once.
func (c *cycleControllers) Populate(ctx context.Context) error {
	ctx, cancel := clock.WithTimeout(ctx, c.step)
	defer cancel()
	groups, err := c.groups()
	if err != nil {
		return err
	}
	for _, group := range groups {
		if err := c.apply.One(ctx, group); err != nil {
			return err
		}
		if err := c.awaitGroup(ctx, group.GetName()); err != nil {
			return fmt.Errorf("simulated node group %s: %w", group.GetName(), err)
		}
	}
	return nil
}

// awaitGroup returns when all nodes of a simulated group are Ready.
func (c *cycleControllers) awaitGroup(ctx context.Context, name string) error {
	last := "not known to the simulated cloud"
	key := plan.ResourceKey{Type: "simulatednodegroup", Group: nodes.GroupVersion.Group, Name: name}
	err := c.follow(ctx, key, func(g *nodes.SimulatedNodeGroup) (bool, error) {
		if g == nil {
			return true, errors.New("another client has deleted it")
		}
		last = fmt.Sprintf("%d of %d nodes are Ready. %s", g.Status.Ready, g.Spec.DesiredCapacity, g.Status.Message)
		return g.Status.Ready >= g.Spec.DesiredCapacity, nil
	})
	return why(err, last)
}
