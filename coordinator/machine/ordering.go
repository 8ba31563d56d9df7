package machine

import (
	"slices"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// OrderRules are what every controller under test reports while a run is ordered: what reaches it, its writes with
// their answers, and what it reads from an API server.
var OrderRules = []wire.Rule{
	{Point: wire.ControllerRecv, Phase: wire.Before, AnyGroup: true},
	{Point: wire.ControllerRead, Phase: wire.Before, AnyGroup: true, Live: true,
		Operations: []wire.Operation{wire.Get, wire.List}},
	{Point: wire.ControllerWrite, Phase: wire.Before, AnyGroup: true},
	{Point: wire.ControllerWrite, Phase: wire.After, AnyGroup: true},
}

// ServerOrderRules are what every API server reports while a run is ordered.
var ServerOrderRules = []wire.Rule{{Point: wire.APIServerRecv, Phase: wire.Before, AnyGroup: true}}

// orders reports whether the plan's schedule decides when an observation goes on. Leader election and events stay
// free: a controller that could not renew its lease would exit.
func orders(controllers []record.Controller, o *record.Observation) bool {
	if isElection(o) || o.Kind == "lease" || o.Resource == "leases" || o.Kind == "event" || o.Resource == "events" {
		return false
	}
	call := wire.Observation{Point: o.Point, Phase: o.Phase, Operation: o.Op, Live: o.Live}
	isOf := func(r wire.Rule) bool { return r.Takes(&call) }
	return slices.ContainsFunc(ServerOrderRules, isOf) || slices.ContainsFunc(OrderRules, isOf) &&
		slices.ContainsFunc(controllers, func(c record.Controller) bool { return c.Name == o.By })
}

// chosen notes that the schedule lets an observation go on. It reports whether there is one.
func (all Holds) chosen(seq int) bool {
	i := slices.IndexFunc(all, func(h heldObservation) bool { return h.seq == seq && h.order })
	if i >= 0 {
		all[i].order = false
	}
	return i >= 0
}

// Ordered returns what the schedule alone holds, oldest first.
func (all Holds) Ordered() (ordered []record.Event) {
	for _, h := range all {
		if h.onlyOrdered() {
			ordered = append(ordered, record.Event{Seq: h.seq, Time: h.since, Observation: h.origin})
		}
	}
	return ordered
}

// free reports whether nothing holds an observation.
func (h heldObservation) free() bool { return h.action < 0 && h.pause < 0 && !h.order }

// onlyOrdered reports whether only the schedule holds an observation.
func (h heldObservation) onlyOrdered() bool { return h.action < 0 && h.pause < 0 && h.order }
