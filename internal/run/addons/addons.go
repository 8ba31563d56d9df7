// Package addons runs Trommel's own controllers on the clusters of a run: those of disruptions (package chaos) and of
// node cycling (package nodes). The packages below cmd know these two products only through this package.
package addons

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/actions"
	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/apply"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Addon is one kind of Trommel's own controllers on one cluster. A run calls its methods in the order below.
type Addon interface {
	// Install applies what the controllers need, before the suite's manifests: those may contain objects of its types.
	Install(ctx context.Context) error
	// Start starts the controllers, before those under test. They end with the run.
	Start(ctx context.Context) error
	// Populate creates the objects that the plan needs before the workload begins.
	Populate(ctx context.Context) error
}

// Config describes a run to its addons.
type Config struct {
	Plan  *plan.Plan
	Suite *plan.Suite
	Sites []Site              // at least one; the first is that of an empty name
	Node  cluster.ProcessNode // on which the controllers under test run; nil: none
	Clock *clock.Clock        // of the clusters; nil: this machine's
	Later func(undo undo)     // tears down at the end of the run
	// Injector and Controllers are the commands of chaos pods and of the controllers of disruptions, each an executable
	// with arguments.
	Injector, Controllers []string
	Logger                *slog.Logger
}

// undo tears down what an addon has set up.
type undo = func(ctx context.Context) error

// Site is a cluster of a run.
type Site struct {
	Name      string // among several; empty: it is the only one
	Cluster   cluster.Cluster
	REST      *rest.Config
	Objects   *objects.Client
	Manifests func() ([]*unstructured.Unstructured, error) // of the suite, for this cluster
}

// site returns the cluster of that name; an empty name is that of the first.
func (c *Config) site(name string) *Site {
	for i := range c.Sites {
		if c.Sites[i].Name == name {
			return &c.Sites[i]
		}
	}
	return &c.Sites[0]
}

// applier returns what applies manifests to a cluster.
func (c *Config) applier(to *Site) *apply.Applier {
	return &apply.Applier{Apply: to.Objects.Apply, Timeout: c.Suite.Timeouts.Step}
}

// Set are the addons of a run, and what its plan does with them.
type Set struct {
	addons      []Addon
	disruptions *disruptions
	cycles      *cycles
}

// New returns the addons that a plan needs.
func New(c Config) *Set {
	s := &Set{
		disruptions: &disruptions{
			in: followedIn[chaos.Disruption](&c), clusterOf: c.Suite.DisruptedCluster, node: c.Node,
			step: c.Suite.Timeouts.Step,
		},
		cycles: &cycles{in: followedIn[nodes.CycleNodeRequest](&c), step: c.Suite.Timeouts.Step, clock: c.Clock},
	}
	for _, under := range c.Suite.Controllers {
		s.disruptions.controllers = append(s.disruptions.controllers, under.Name)
	}
	s.disruptions.expecter, _ = c.Node.(cluster.ContainerKillExpecter)
	for _, one := range newCycleControllers(&c) {
		s.addons = append(s.addons, one)
	}
	for _, one := range newDisruptionControllers(&c) {
		s.addons = append(s.addons, one)
	}
	return s
}

// Disruptions carries out the plan's disruptions.
func (s *Set) Disruptions() actions.Disruptions { return s.disruptions }

// Cycles carries out the plan's cycles of nodes.
func (s *Set) Cycles() actions.Cycles { return s.cycles }

// Install calls Install of each addon.
func (s *Set) Install(ctx context.Context) error { return s.each(ctx, Addon.Install) }

// Start calls Start of each addon.
func (s *Set) Start(ctx context.Context) error { return s.each(ctx, Addon.Start) }

// Populate calls Populate of each addon.
func (s *Set) Populate(ctx context.Context) error { return s.each(ctx, Addon.Populate) }

func (s *Set) each(ctx context.Context, do func(Addon, context.Context) error) error {
	for _, a := range s.addons {
		if err := do(a, ctx); err != nil {
			return err
		}
	}
	return nil
}

// Conclude waits for what the plan has left behind, ends what stands still, and reports what did not end as the plan
// says.
func (s *Set) Conclude(ctx context.Context) []record.Finding { return s.cycles.conclude(ctx) }

// Blocked says what goes on that a workload may have to wait for; empty: nothing.
func (s *Set) Blocked() string { return s.cycles.blocked() }

// Disturbed returns when an addon last did something to a cluster; zero: never.
func (s *Set) Disturbed() time.Time { return s.cycles.disturbed() }

// Close ends what follows the addons' objects.
func (s *Set) Close(ctx context.Context) error { return s.cycles.close(ctx) }
