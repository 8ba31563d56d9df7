package run

import (
	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// trace returns the rules for a traced run: events that API servers and controllers receive, and the controllers'
// reconciles, reads, writes and annotated calls. It returns nil if tracing is off.
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
		// What is received or read is known only after the call; the start of a write is when it was decided.
		add(c.Name, wire.Before, wire.ControllerWrite, wire.Reconcile, wire.AnnotatedCall)
		add(c.Name, wire.After, wire.ControllerRecv, wire.ControllerRead, wire.ControllerWrite, wire.Reconcile,
			wire.AnnotatedCall)
	}
	return rules
}
