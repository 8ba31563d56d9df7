package moment

import (
	"maps"
	"slices"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/effect"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// seen reports whether a change passes an observation point.
func seen(c *facts.Change, at plan.ObservationPoint) bool {
	switch at.Timing {
	case plan.BeforeControllerWrite, plan.AfterControllerWrite:
		return c.By == at.ObserveBy
	case plan.BeforeControllerRecv, plan.AfterControllerRecv:
		return slices.Contains(c.Taken, at.ObserveBy)
	}
	return true
}

// shown returns what a change looks like at a point. At the controller's own write, a delete call is a deletion even if
// it only marks the object, and an update that removes the last finalizer is an update.
func shown(c *facts.Change, timing plan.Timing) (kind plan.EventKind, prev, cur map[string]any) {
	kind, _ = effect.Of(observation(c, timing))
	switch {
	case kind == plan.Deleted:
		return kind, nil, c.Prev
	case c.Cur != nil:
		return kind, c.Prev, c.Cur
	}
	meta := map[string]any{}
	if m, ok := c.Prev["metadata"].(map[string]any); ok {
		meta = maps.Clone(m)
	}
	delete(meta, "finalizers")
	cur = maps.Clone(c.Prev)
	cur["metadata"] = meta
	return kind, c.Prev, cur
}

// observation returns what is observed of a change at a point, except for the object.
func observation(c *facts.Change, timing plan.Timing) *record.Observation {
	if !atWrite(timing) || c.Op == "" {
		received := map[string]wire.Operation{
			record.Created: wire.Create, record.Updated: wire.Update, record.Deleted: wire.Delete,
		}
		return &record.Observation{Point: wire.APIServerRecv, Op: received[c.Event]}
	}
	o := &record.Observation{Point: wire.ControllerWrite, Phase: wire.After, Op: c.Op, Subresource: c.Subresource}
	if timing == plan.BeforeControllerWrite {
		o.Phase = wire.Before
	}
	if c.Prev == nil {
		o.OldObject = effect.Nothing
	}
	return o
}
