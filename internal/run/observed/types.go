// Package observed decides of which types a run observes the objects, and of which it records their states.
package observed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/transport"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/clock/kube"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/mistake"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// Resolver looks up types; an objects.Client does.
type Resolver interface {
	Resolve(ctx context.Context, key plan.ResourceKey) (objects.Type, error)
}

// KeysOf lists every resource key in the plan, without duplicates.
func KeysOf(p *plan.Plan) []plan.ResourceKey {
	var keys []plan.ResourceKey
	add := func(k plan.ResourceKey) {
		if k.Type != "" && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	for _, a := range p.Actions {
		for _, d := range a.Trigger.Definitions {
			add(d.Condition.ResourceKey)
		}
		add(a.ResourceKey)
		add(a.Scope().Key)
	}
	return keys
}

// WatchedKeys lists the keys that the suite wants recorded, those that its invariants are about, and the plan's cycles.
func WatchedKeys(p *plan.Plan, suite *plan.Suite) []plan.ResourceKey {
	keys := slices.Clone(suite.History)
	for _, i := range suite.Invariants {
		if i.On != nil {
			keys = append(keys, *i.On)
		}
	}
	for i := range p.Actions {
		if c := p.Actions[i].Cycles(); c != nil {
			keys = append(keys, c.Key()) // reports show its phases
		}
	}
	return keys
}

// KeyTypes are the types of the resource keys of a plan. A type may begin to be served during the run.
type KeyTypes struct {
	file string // the plan's

	mu    sync.Mutex
	rules map[plan.ResourceKey]wire.Rule
	later map[plan.ResourceKey]bool // keys whose types were not served at the beginning; true: and are not yet
}

// Resolve completes a key. Of a type that is not served, only what the key says is known: processes report its objects
// where they know their kind, as API servers do, and controllers in what they create.
func (k *KeyTypes) Resolve(key plan.ResourceKey) wire.Rule {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.rules[key]
}

// Take takes over a type that is served now. It reports whether the plan names it and it was not served before. Several
// clusters may begin to serve the same type.
func (k *KeyTypes) Take(t objects.Type) (named bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for key, missing := range k.later {
		if _, err := objects.FindKey([]objects.Type{t}, key); err != nil {
			continue
		}
		if !missing {
			named = true
			continue
		}
		k.later[key] = false
		if err := objects.CheckKey(key, t); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", k.file, err))
			continue
		}
		k.rules[key], named = ruleOf(key, t), true
	}
	return named, errors.Join(errs...)
}

func ruleOf(key plan.ResourceKey, t objects.Type) wire.Rule {
	return wire.Rule{
		Kind: strings.ToLower(t.Kind.Kind), Resource: t.Resource.Resource, Group: t.Resource.Group,
		Namespace: key.Namespace, Name: key.Name,
	}
}

// ResolveTypes looks up every type in the plan. It reports at once all that the cluster does not serve and that nothing
// may bring, as mayCome says.
func ResolveTypes(
	ctx context.Context, c Resolver, p *plan.Plan, mayCome func(plan.ResourceKey) bool,
) (*KeyTypes, error) {
	types := &KeyTypes{file: p.File, rules: map[plan.ResourceKey]wire.Rule{}, later: map[plan.ResourceKey]bool{}}
	var errs []error
	for _, key := range KeysOf(p) {
		t, err := c.Resolve(ctx, key)
		if objects.MayCome(key, err) && mayCome(key) {
			types.later[key] = true
			types.rules[key] = wire.Rule{
				Kind: key.Type, Group: key.Group, AnyGroup: key.Group == "", Namespace: key.Namespace, Name: key.Name,
			}
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := objects.CheckKey(key, t); err != nil {
			errs = append(errs, err)
			continue
		}
		types.rules[key] = ruleOf(key, t)
	}
	if err := errors.Join(errs...); err != nil {
		var bad *objects.KeyError
		if errors.Is(err, objects.ErrNotServed) || errors.As(err, &bad) {
			return nil, &mistake.Error{Err: fmt.Errorf("%s: %w", p.File, err)}
		}
		return nil, err
	}
	return types, nil
}

// WarmWatchCaches lists every type that the plan or the suite names, on each of the API servers: a server creates the
// watch cache of a custom resource only at the first request for it, and without a cache nothing can be stale.
func WarmWatchCaches(
	ctx context.Context, on cluster.Cluster, servers []string, c Resolver, p *plan.Plan, suite *plan.Suite,
) error {
	types := map[schema.GroupVersionResource]bool{}
	for _, key := range KeysOf(p) {
		t, err := c.Resolve(ctx, key)
		if errors.Is(err, objects.ErrNotServed) {
			continue // another cluster serves it, or it is served later
		}
		if err != nil {
			return err
		}
		types[t.Resource] = true
	}
	for _, key := range WatchedKeys(p, suite) {
		// A pause of everything includes these. The recorder reports types that are not served.
		if t, err := c.Resolve(ctx, key); err == nil {
			types[t.Resource] = true
		}
	}
	return WarmAll(ctx, on, servers, types)
}

// WarmAll lists types on each of the API servers.
func WarmAll(
	ctx context.Context, on cluster.Cluster, servers []string, types map[schema.GroupVersionResource]bool,
) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range servers {
		config, err := on.RESTConfig(name)
		if err != nil {
			return err
		}
		config.QPS, config.Burst = -1, 0
		config.WrapTransport = transport.Wrappers(kube.AtOnce, config.WrapTransport) // before what repeats requests
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return err
		}
		for gvr := range types {
			group.Go(func() error { return warm(ctx, client, gvr, name) })
		}
	}
	return group.Wait()
}

// warm lists until the watch cache responds. Each server serves a new custom resource only once it has seen its
// definition.
func warm(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, server string) error {
	ctx, cancel := clock.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		_, err := client.Resource(gvr).List(ctx, metav1.ListOptions{ResourceVersion: "0", Limit: 1})
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || !(apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) ||
			apierrors.IsServiceUnavailable(err)) {
			return fmt.Errorf("fill the watch cache of %s on %s: %w", gvr.Resource, server, err)
		}
		_ = clock.Sleep(ctx, 50*time.Millisecond) // the next round looks at ctx
	}
}
