package plan

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/trommel-dev/trommel/internal/wording"
)

// The types of actions that kill, start and reconnect controllers.
const (
	RestartController   ActionType = "restartController"
	KillController      ActionType = "killController"
	StartController     ActionType = "startController"
	ReconnectController ActionType = "reconnectController"
)

// Reconnecting has the fields of reconnectController.
type Reconnecting struct {
	ReconnectAPIServer string    `yaml:"reconnectAPIServer"` // where to
	ReconnectBy        Reconnect `yaml:"reconnectBy" default:"restart"`
}

// Reconnect is a way to move a controller to another API server.
type Reconnect string

// The ways to reconnect.
const (
	ReconnectRestart Reconnect = "restart" // SIGKILL, start again at the other API server
	ReconnectCut     Reconnect = "cut"     // the process keeps running; its connections are redirected
)

var restartController = ActionKind{
	Type: RestartController, Target: TargetController,
	Summary: "Kill the controller (SIGKILL) and start it again.",
	Doc:     "SIGKILL, then a new process",
	Explain: func(a *Action) string { return "kill " + controllerName(a.Target) + " and start it again" },
	Effects: func(a *Action) Effects { return Effects{Stops: a.Target, Starts: a.Target} },
}

var killController = ActionKind{
	Type: KillController, Target: TargetController,
	Summary: "Kill the controller; it stays down.",
	Doc:     "SIGKILL; the controller stays down until `startController`",
	Explain: func(a *Action) string { return "kill " + controllerName(a.Target) + "; it stays down" },
	Effects: func(a *Action) Effects { return Effects{Stops: a.Target} },
}

var startController = ActionKind{
	Type: StartController, Target: TargetController,
	Summary: "Start a killed controller.",
	Doc:     "starts a killed controller",
	Explain: func(a *Action) string { return "start " + controllerName(a.Target) },
	Effects: func(a *Action) Effects { return Effects{Starts: a.Target} },
}

var reconnectController = ActionKind{
	Type: ReconnectController, Target: TargetController,
	Summary: "Move the controller to another API server.",
	Doc:     "moves the controller to another API server",
	Fields:  []string{"reconnectAPIServer", "reconnectBy"},
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
