package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/plan"
)

// newlyServed makes types observable that begin to be served during the run.
type newlyServed struct {
	types       *keyTypes // of the plan
	cluster     cluster.Cluster
	coordinator *coordinator.Coordinator
	mayCome     func(plan.ResourceKey) bool
	trouble     func(error)
}

// add takes over a type of a cluster. It returns when the processes report the objects of the plan's keys, and each API
// server has a watch cache of them.
func (n *newlyServed) add(ctx context.Context, in string, t objects.Type) {
	named, err := n.types.take(t)
	if err != nil {
		n.trouble(err)
	}
	if !named {
		return
	}
	if err := n.coordinator.TypesChanged(ctx); err != nil && ctx.Err() == nil {
		n.trouble(err)
	}
	if _, instrumented := n.cluster.(cluster.Instrumented); !instrumented {
		return
	}
	err = warmAll(ctx, n.cluster, plan.ServersOf(n.cluster.APIServers(), in),
		map[schema.GroupVersionResource]bool{t.Resource: true})
	if err != nil && ctx.Err() == nil {
		n.trouble(err)
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
		k := manifests.NewKnown(r.suite, all, r.journal.meta.Kubernetes)
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

// reportNeverServed reports the types that the suite or the plan names and that were never served, so that nothing is
// known of them. If the workload's reference knows the type, it is enough that its objects are missing.
func (r *runner) reportNeverServed(ctx context.Context, p *parts, never []plan.ResourceKey) {
	named := allOf(watchedKeys(r.plan, r.suite), keysOf(r.plan))
	for _, key := range never {
		if !slices.Contains(named, key) {
			continue
		}
		if ref := r.options.Reference; ref != nil && slices.ContainsFunc(ref.Types, func(k plan.ResourceKey) bool {
			return k.Type == key.Type && (k.Group == key.Group || key.Group == "")
		}) {
			continue
		}
		_, err := p.states.types.Resolve(ctx, key)
		if err == nil {
			err = errors.New("it was not served when the workload began, and no CustomResourceDefinition defines it")
		}
		r.journal.trouble(fmt.Errorf("no state of %s was recorded: %w", key, err))
	}
}
