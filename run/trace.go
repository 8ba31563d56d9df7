package run

import (
	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// trace is what is recorded of all processes where the whole run is traced: what API servers and controllers take in,
// and what controllers reconcile, read, write and call.
func (r *runner) trace() map[string][]wire.Rule {
	if !r.Trace {
		return nil
	}
	rules := map[string][]wire.Rule{}
	add := func(by string, phase wire.Phase, points ...wire.Point) {
		for _, point := range points {
			rules[by] = append(rules[by], wire.Rule{Point: point, Phase: phase, AnyGroup: true})
		}
	}
	for _, name := range r.cluster.APIServers() {
		add(name, wire.After, wire.APIServerRecv)
	}
	for _, c := range r.meta.Controllers {
		if !c.Hooks {
			continue
		}
		// What is taken in and read is known after; a write's beginning tells what it was decided on.
		add(c.Name, wire.Before, wire.ControllerWrite, wire.Reconcile, wire.AnnotatedCall)
		add(c.Name, wire.After, wire.ControllerRecv, wire.ControllerRead, wire.ControllerWrite, wire.Reconcile, wire.AnnotatedCall)
	}
	return rules
}
