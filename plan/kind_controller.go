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

// Reconnecting has the fields of the actions that start and reconnect controllers.
type Reconnecting struct {
	ReconnectAPIServer string    `yaml:"reconnectAPIServer"` // where to
	ReconnectBy        Reconnect `yaml:"reconnectBy" default:"restart"`
	// WatchList may be false: in the whole run, the controller fills its caches without streaming lists, so that a
	// paused API server can show it the past. Nil: as the suite says.
	WatchList *bool `yaml:"watchList"`
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
	Fields:  []string{"watchList"},
	Check:   checkWatchList,
	Explain: func(a *Action) string { return "kill " + controllerName(a.Target) + " and start it again" + a.lists() },
	Effects: func(a *Action) []Effect {
		return append(a.noStreaming(), &Stop{a.Target}, &Start{a.Target})
	},
}

var killController = ActionKind{
	Type: KillController, Target: TargetController,
	Summary: "Kill the controller; it stays down.",
	Doc:     "SIGKILL; the controller stays down until `startController`",
	Explain: func(a *Action) string { return "kill " + controllerName(a.Target) + "; it stays down" },
	Effects: func(a *Action) []Effect { return []Effect{&Stop{a.Target}} },
}

var startController = ActionKind{
	Type: StartController, Target: TargetController,
	Summary: "Start a killed controller.",
	Doc:     "starts a killed controller",
	Fields:  []string{"watchList"},
	Check:   checkWatchList,
	Explain: func(a *Action) string { return "start " + controllerName(a.Target) + a.lists() },
	Effects: func(a *Action) []Effect { return append(a.noStreaming(), &Start{a.Target}) },
}

// checkWatchList checks that an action contradicts neither itself nor the suite.
func checkWatchList(c *ActionCheck) {
	switch set := c.Action.WatchList; {
	case set == nil:
	case *set:
		c.Errorf("watchList", "watchList of an action can only be false: with streaming lists a controller is shown "+
			"nothing stale")
	default:
		if under := c.controller(); under != nil && under.WatchList != nil && *under.WatchList {
			c.Errorf("watchList", "the suite says watchList: true for the controller %q", under.Name)
		}
	}
}

// noStreaming is the effect that the action's controller must not use streaming lists; nil: it may.
func (a *Action) noStreaming() []Effect {
	if a.WatchList != nil && !*a.WatchList {
		return []Effect{&NoStreaming{a.Target}}
	}
	return nil
}

// lists says that the action's controller must not use streaming lists; empty: it may.
func (a *Action) lists() string {
	if a.WatchList != nil && !*a.WatchList {
		return "; its streaming lists are off in the whole run"
	}
	return ""
}

var reconnectController = ActionKind{
	Type: ReconnectController, Target: TargetController,
	Summary: "Move the controller to another API server.",
	Doc:     "moves the controller to another API server",
	Fields:  []string{"reconnectAPIServer", "reconnectBy", "watchList"},
	Check: func(c *ActionCheck) {
		checkWatchList(c)
		c.APIServer("reconnectAPIServer", c.Action.ReconnectAPIServer)
		in, _ := SplitServer(c.Action.ReconnectAPIServer)
		c.connected("reconnectAPIServer", in)
		by, known := string(c.Action.ReconnectBy), layout.Words[reflect.TypeFor[Reconnect]()]
		if !slices.Contains(known, by) {
			c.Errorf("reconnectBy", "unknown reconnectBy %q%s", by, wording.Suggest(by, known))
		}
	},
	Explain: func(a *Action) string {
		if a.ReconnectBy == ReconnectCut {
			return fmt.Sprintf("cut the connections of %s and redirect them to %s; the process keeps running",
				controllerName(a.Target), a.ReconnectAPIServer) + a.lists()
		}
		return fmt.Sprintf("kill %s and start it again, connected to %s", controllerName(a.Target),
			a.ReconnectAPIServer) + a.lists()
	},
	Effects: func(a *Action) []Effect {
		e := append(a.noStreaming(),
			&Move{Controller: a.Target, APIServer: a.ReconnectAPIServer, By: a.ReconnectBy})
		if a.ReconnectBy != ReconnectCut {
			e = append(e, &Stop{a.Target}, &Start{a.Target})
		}
		return e
	},
}
