package run

import (
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// traceRules returns the rules for what processes report beside what the plan needs. That is always what the
// controllers write: it shows judges who did what. A write without effect is recognized only by when it began, and from
// which state; so this is reported before it. In a traced run it is also the events that API servers and controllers
// receive, and the controllers' reconciles, reads, writes and annotated calls.
func traceRules(traced bool, apiServers []string, controllers []record.Controller) map[string][]wire.Rule {
	rules := map[string][]wire.Rule{}
	add := func(by string, phase wire.Phase, points ...wire.Point) {
		for _, point := range points {
			rules[by] = append(rules[by], wire.Rule{Point: point, Phase: phase, AnyGroup: true})
		}
	}
	if traced {
		for _, name := range apiServers {
			add(name, wire.After, wire.APIServerRecv)
		}
	}
	for _, c := range controllers {
		if !c.Hooks {
			continue
		}
		rules[c.Name] = append(rules[c.Name], wire.Rule{
			Point: wire.ControllerWrite, Phase: wire.Before, AnyGroup: true, Callers: true,
		})
		add(c.Name, wire.After, wire.ControllerWrite)
		if traced {
			// A process knows only after the call what it has received or read.
			add(c.Name, wire.Before, wire.Reconcile, wire.AnnotatedCall)
			add(c.Name, wire.After, wire.ControllerRecv, wire.Reconcile, wire.AnnotatedCall)
			rules[c.Name] = append(rules[c.Name], wire.Rule{
				Point: wire.ControllerRead, Phase: wire.After, AnyGroup: true, Callers: true,
			})
		}
	}
	return rules
}
