package site

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/record"
)

// lookupTimeout bounds one lookup; the controller's write waits for it.
const lookupTimeout = 5 * time.Second

// Lookup returns what asks the clusters about writes.
func (s *Site) Lookup(o *Origins) coordinator.Lookup {
	if s.Members == nil {
		return lookup{s.Objects}
	}
	return lookups{o, s.In}
}

// lookup implements coordinator.Lookup.
type lookup struct{ objects *objects.Client }

func writeOf(o *wire.Observation) objects.Write {
	return objects.Write{
		Resource:  schema.GroupVersionResource{Group: o.Group, Version: o.Version, Resource: o.Resource},
		Namespace: o.Namespace, Name: o.Name, Subresource: o.Subresource,
		Operation: o.Operation, PatchType: o.PatchType, Patch: o.Patch, Body: o.Object, Query: o.Query,
	}
}

func (l lookup) Foresee(ctx context.Context, _ string, o *wire.Observation) (coordinator.Foresight, error) {
	ctx, cancel := clock.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if o.Operation == wire.DeleteCollection {
		list, err := l.objects.Collection(ctx, writeOf(o))
		return coordinator.Foresight{Objects: list}, err
	}
	old, new, err := l.objects.Foresee(ctx, writeOf(o))
	return coordinator.Foresight{Absent: old == nil && err == nil, Old: old, New: new}, err
}

func (l lookup) State(ctx context.Context, _ string, o *wire.Observation) ([]byte, error) {
	ctx, cancel := clock.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return l.objects.State(ctx, writeOf(o))
}

// lookups implements coordinator.Lookup for several clusters.
type lookups struct {
	origins *Origins
	in      func(cluster string) *objects.Client
}

// of returns the lookup for a write, and an error if its cluster is unknown.
func (l lookups) of(controller string, o *wire.Observation) (lookup, error) {
	name := l.origins.Of(controller, o)
	if name == record.UnknownCluster {
		return lookup{}, fmt.Errorf("the request to %s does not tell which cluster it is for",
			cmp.Or(o.Server, "an unknown server"))
	}
	return lookup{l.in(name)}, nil
}

// Foresee implements coordinator.Lookup.
func (l lookups) Foresee(
	ctx context.Context, controller string, o *wire.Observation,
) (coordinator.Foresight, error) {
	in, err := l.of(controller, o)
	if err != nil {
		return coordinator.Foresight{}, err
	}
	return in.Foresee(ctx, controller, o)
}

// State implements coordinator.Lookup.
func (l lookups) State(ctx context.Context, controller string, o *wire.Observation) ([]byte, error) {
	in, err := l.of(controller, o)
	if err != nil {
		return nil, err
	}
	return in.State(ctx, controller, o)
}
