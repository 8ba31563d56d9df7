package machine

import (
	"slices"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// OrderRules are what every controller under test reports while a run is ordered: what reaches it, and its writes with
// their answers.
var OrderRules = []wire.Rule{
	{Point: wire.ControllerRecv, Phase: wire.Before, AnyGroup: true},
	{Point: wire.ControllerWrite, Phase: wire.Before, AnyGroup: true},
	{Point: wire.ControllerWrite, Phase: wire.After, AnyGroup: true},
}

// orders reports whether the plan's schedule decides when an observation goes on. Leader election and events stay
// free: a controller that could not renew its lease would exit.
func (m *Machine) orders(o *record.Observation) bool {
	if !m.ordered || m.ended || isElection(o) || o.Kind == "lease" || o.Resource == "leases" ||
		o.Kind == "event" || o.Resource == "events" {
		return false
	}
	return slices.ContainsFunc(m.controllers, func(c record.Controller) bool { return c.Name == o.By }) &&
		slices.ContainsFunc(OrderRules, func(r wire.Rule) bool { return r.Point == o.Point && r.Phase == o.Phase })
}

// chosen lets an observation go on, as far as the schedule is concerned.
func (m *Machine) chosen(seq int) []Effect {
	for i := range m.held {
		if h := &m.held[i]; h.seq == seq && h.order {
			h.order = false
			return m.repause()
		}
	}
	return nil
}

// WaitingForOrder is what waits for the schedule alone, oldest first.
func (m *Machine) WaitingForOrder() (all []record.Event) {
	for _, h := range m.held {
		if h.onlyOrdered() {
			all = append(all, record.Event{Seq: h.seq, Time: h.since, Observation: h.origin})
		}
	}
	return all
}

// free reports whether nothing holds an observation.
func (h heldObservation) free() bool { return h.action < 0 && h.pause < 0 && !h.order }

// onlyOrdered reports whether only the schedule holds an observation.
func (h heldObservation) onlyOrdered() bool { return h.action < 0 && h.pause < 0 && h.order }
