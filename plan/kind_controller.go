package plan

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/trommel-dev/trommel/plan/internal/wording"
)

var restartController = ActionKind{
	Type: RestartController, Target: TargetController,
	Explain: func(a *Action) string { return "kill " + controllerName(a.Target) + " and start it again" },
	Effects: func(a *Action) Effects { return Effects{Stops: a.Target, Starts: a.Target} },
}

var killController = ActionKind{
	Type: KillController, Target: TargetController,
	Explain: func(a *Action) string { return "kill " + controllerName(a.Target) + "; it stays down" },
	Effects: func(a *Action) Effects { return Effects{Stops: a.Target} },
}

var startController = ActionKind{
	Type: StartController, Target: TargetController,
	Explain: func(a *Action) string { return "start " + controllerName(a.Target) },
	Effects: func(a *Action) Effects { return Effects{Starts: a.Target} },
}

var reconnectController = ActionKind{
	Type: ReconnectController, Target: TargetController,
	Fields: []string{"reconnectAPIServer", "reconnectBy"},
	Check: func(c *ActionCheck) {
		c.APIServer("reconnectAPIServer", c.Action.ReconnectAPIServer)
		by, known := string(c.Action.ReconnectBy), layout.Words[reflect.TypeFor[Reconnect]()]
		if !slices.Contains(known, by) {
			c.Errorf("reconnectBy", "unknown reconnectBy %q%s", by, wording.Suggest(by, known))
		}
	},
	Explain: func(a *Action) string {
		if a.ReconnectBy == ReconnectCut {
			return fmt.Sprintf("cut the connections of %s and redirect them to %s; the process keeps running",
				controllerName(a.Target), a.ReconnectAPIServer)
		}
		return fmt.Sprintf("kill %s and start it again, connected to %s", controllerName(a.Target),
			a.ReconnectAPIServer)
	},
	Effects: func(a *Action) Effects {
		e := Effects{Moves: &Move{Controller: a.Target, APIServer: a.ReconnectAPIServer, By: a.ReconnectBy}}
		if a.ReconnectBy != ReconnectCut {
			e.Stops, e.Starts = a.Target, a.Target
		}
		return e
	},
}
