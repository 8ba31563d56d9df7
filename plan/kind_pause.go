package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/wording"
)

// The types of actions that pause processes.
const (
	PauseController  ActionType = "pauseController"
	ResumeController ActionType = "resumeController"
	PauseAPIServer   ActionType = "pauseAPIServer"
	ResumeAPIServer  ActionType = "resumeAPIServer"
)

// Pausing has the fields of actions that pause and resume; API servers have only PauseScope.
type Pausing struct {
	PauseAt          Timing `yaml:"pauseAt"`          // where the controller stops
	PauseScope       Scope  `yaml:"pauseScope"`       // a resource key; "*" or empty: everything
	AvoidOngoingRead bool   `yaml:"avoidOngoingRead"` // pauseController: wait until no read is in progress
	OneByOne         bool   `yaml:"oneByOne"`         // resumeAPIServer: each event when the controllers are idle again
}

var pauseController = ActionKind{
	Type: PauseController, Target: TargetController,
	Summary: "Stop the controller at pauseAt, for pauseScope.",
	Doc:     "from then on, holds what the controller does at that point",
	Fields:  []string{"cluster", "pauseAt", "pauseScope", "avoidOngoingRead"},
	Check: func(c *ActionCheck) {
		a := c.Action
		if a.PauseAt == "" {
			c.Missing("pauseAt", "pauseController has no pauseAt (known: %s)", strings.Join(controllerTimings(), ", "))
		}
		checkPauseOfController(c)
		if controller := c.controller(); a.PauseAt.point() == "AnnotatedCall" && controller != nil &&
			len(controller.AnnotatedCalls) == 0 {
			c.Errorf("pauseAt", "controller %q has no annotatedCalls in the suite, so nothing is held at %s",
				a.Target, a.PauseAt)
		}
		if a.AvoidOngoingRead && a.PauseAt != "" && a.PauseAt.point() != "ControllerRead" {
			c.Errorf("avoidOngoingRead",
				"avoidOngoingRead is for a pause at beforeControllerRead or afterControllerRead, not %s", a.PauseAt)
		}
	},
	Explain: func(a *Action) string {
		s := fmt.Sprintf("stop %s %s, for %s, until it is resumed", controllerName(a.Target),
			sideOf(a.PauseAt), scopeOf(a.PauseScope))
		if a.AvoidOngoingRead {
			s += " (but not in the middle of a reconcile that has begun to read)"
		}
		return s
	},
	Effects: func(a *Action) []Effect {
		return []Effect{&Pause{
			By: a.Target, At: a.PauseAt, Scope: a.PauseScope, Cluster: a.Cluster, AvoidOngoingRead: a.AvoidOngoingRead,
		}}
	},
}

var resumeController = ActionKind{
	Type: ResumeController, Target: TargetController,
	Summary: "Release what pauseController holds.",
	Doc:     "ends such pauses, [see below](#pauses)",
	Fields:  []string{"cluster", "pauseAt", "pauseScope"},
	Check:   checkPauseOfController,
	Explain: func(a *Action) string {
		if a.PauseAt == "" {
			return "let " + controllerName(a.Target) + " continue"
		}
		return fmt.Sprintf("let %s continue where it was stopped %s, for %s", controllerName(a.Target),
			sideOf(a.PauseAt), scopeOf(a.PauseScope))
	},
	Effects: func(a *Action) []Effect {
		return []Effect{&Resume{By: a.Target, At: a.PauseAt, Scope: a.PauseScope, Cluster: a.Cluster}}
	},
}

// An API server is paused before it receives an event: its watch cache stays as it is.
var pauseAPIServer = ActionKind{
	Type: PauseAPIServer, Target: TargetAPIServer,
	Summary: "Keep an API server from seeing changes of pauseScope.",
	Doc:     "the API server's watch cache stops receiving events",
	Fields:  []string{"cluster", "pauseScope"},
	Explain: func(a *Action) string {
		return fmt.Sprintf("stop %s from seeing changes of %s: reads from its cache return the old state",
			controllerName(a.Target), scopeOf(a.PauseScope))
	},
	Needs: []Capability{ObserveAPIServers},
	Effects: func(a *Action) []Effect {
		return []Effect{&Pause{By: a.Target, At: BeforeAPIServerRecv, Scope: a.PauseScope, Cluster: a.Cluster}}
	},
}

var resumeAPIServer = ActionKind{
	Type: ResumeAPIServer, Target: TargetAPIServer,
	Summary: "Let the API server see changes again.",
	Doc:     "ends such a pause, with `oneByOne` an event at a time, [see below](#pauses)",
	Fields:  []string{"cluster", "pauseScope", "oneByOne"},
	Explain: func(a *Action) string {
		s := fmt.Sprintf("let %s see the changes of %s again", controllerName(a.Target), scopeOf(a.PauseScope))
		if a.OneByOne {
			s += ", one at a time, each when the controllers have dealt with the one before"
		}
		return s
	},
	Needs: []Capability{ObserveAPIServers},
	Effects: func(a *Action) []Effect {
		return []Effect{&Resume{
			By: a.Target, At: BeforeAPIServerRecv, Scope: a.PauseScope, Cluster: a.Cluster, OneByOne: a.OneByOne,
		}}
	},
}

// checkPauseOfController checks what pauseController and resumeController have in common.
func checkPauseOfController(c *ActionCheck) {
	c.checker.hooked(c.at.Field("actionTarget"), c.Action.Target,
		"so it cannot be paused: pause its API server (pauseAPIServer)")
	switch at := c.Action.PauseAt; {
	case at.ofAPIServer():
		c.Errorf("pauseAt", "a controller has no timing %s; to pause an API server use pauseAPIServer", at)
	case at != "" && !slices.Contains(timings, at):
		c.Errorf("pauseAt", "unknown pauseAt %q%s", at, wording.Suggest(string(at), controllerTimings()))
	}
}

func controllerTimings() []string {
	return stringsOf(slices.DeleteFunc(slices.Clone(timings), Timing.ofAPIServer))
}
