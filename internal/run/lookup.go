package run

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/objects"
)

// lookupTimeout bounds one lookup; the controller's write waits for it.
const lookupTimeout = 5 * time.Second

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
