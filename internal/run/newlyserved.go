package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/run/observed"
	"github.com/trommel-dev/trommel/plan"
)

// newlyServed makes types observable that begin to be served during the run.
type newlyServed struct {
	types       *observed.KeyTypes // of the plan
	cluster     cluster.Cluster
	servers     []string // the API servers that the run uses
	coordinator *coordinator.Coordinator
	mayCome     func(plan.ResourceKey) bool

	mu       sync.Mutex
	troubles []error // so far
}

func (n *newlyServed) trouble(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.troubles = append(n.troubles, err)
}

// add takes over a type of a cluster. It returns when the processes report the objects of the plan's keys, and each API
// server has a watch cache of them.
func (n *newlyServed) add(ctx context.Context, in string, t objects.Type) {
	named, err := n.types.Take(t)
	n.trouble(ctx, err)
	if !named {
		return
	}
	n.trouble(ctx, n.coordinator.TypesChanged(ctx))
	if cluster.CapabilitiesOf(n.cluster).Instrumented == nil {
		return
	}
	err = observed.WarmAll(ctx, n.cluster, plan.ServersOf(n.servers, in),
		map[schema.GroupVersionResource]bool{t.Resource: true})
	if !apierrors.IsNotFound(err) { // the type may have gone again
		n.trouble(ctx, err)
	}
}

// mayCome returns what says whether something may define the type of a key that is not served: the suite's controllers,
// its manifests, its workload or the plan. What other runs of the workload have seen may come in any case.
func (r *runner) mayCome(set *preparation) func(plan.ResourceKey) bool {
	known := sync.OnceValue(func() *manifests.Known {
		var all []*unstructured.Unstructured
		for _, m := range set.manifests {
			list, err := m.read()
			if err != nil {
				return nil // the run has read them before
			}
			all = append(all, list...)
		}
		k := manifests.NewKnown(r.suite, all, r.journal.Meta.Kubernetes)
		k.Plan(r.suite, r.plan)
		if len(r.suite.Builds) > 0 {
			k.Doubt("another build of the suite may define types")
		}
		return k
	})
	return func(key plan.ResourceKey) bool {
		if slices.ContainsFunc(r.options.History, func(o plan.ResourceKey) bool {
			return o.Type == key.Type && (o.Group == key.Group || key.Group == "")
		}) {
			return true
		}
		k := known()
		if k == nil {
			return true
		}
		_, err := k.Check(func(resolve func(plan.ResourceKey) error) error { return resolve(key) })
		return !errors.Is(err, objects.ErrNotServed)
	}
}

// reportServed reports what could not be done for types that began to be served. It also reports the types that the
// suite or the plan names and that were never served, so that nothing is known of them. If the workload's baseline
// knows such a type, it is enough that its objects are missing.
func (r *runner) reportServed(ctx context.Context, p *parts, never []plan.ResourceKey) {
	p.served.mu.Lock()
	troubles := p.served.troubles
	p.served.mu.Unlock()
	for _, err := range troubles {
		r.journal.Trouble(err)
	}
	named := observed.AllOf(observed.WatchedKeys(r.plan, r.suite), observed.KeysOf(r.plan))
	for _, key := range never {
		if !slices.Contains(named, key) {
			continue
		}
		if ref := r.options.Baseline; ref != nil && slices.ContainsFunc(ref.Types, func(k plan.ResourceKey) bool {
			return k.Type == key.Type && (k.Group == key.Group || key.Group == "")
		}) {
			continue
		}
		_, err := p.states.Types.Resolve(ctx, key)
		if err == nil {
			err = errors.New("it was not served when the workload began, and no CustomResourceDefinition defines it")
		}
		r.journal.Trouble(fmt.Errorf("no state of %s was recorded: %w", key, err))
	}
}
