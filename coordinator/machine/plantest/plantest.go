// Package plantest builds triggers and actions for the tests of the coordinator and its state machine. They are about
// the controller db and the API server apiserver-1.
package plantest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/expr"
	"github.com/trommel-dev/trommel/plan"
)

// Trigger builds a compiled trigger. A definition is "name" (creation of pod/default/<name> after apiserver-1 has
// received it), "name@timeout", "name@none", or "name*n" for the n-th creation.
func Trigger(t testing.TB, expression string, names ...string) plan.Trigger {
	t.Helper()
	e, err := expr.Parse(expression)
	if err != nil {
		t.Fatal(err)
	}
	tr := plan.Trigger{Expression: expression, Graph: e.Graph()}
	for _, n := range names {
		name, kind, _ := strings.Cut(n, "@")
		name, repeat, _ := strings.Cut(name, "*")
		d := plan.Definition{Name: name}
		switch kind {
		case "timeout":
			d.Condition = plan.Condition{Type: plan.OnTimeout, Timeout: time.Second}
		case "none":
			d.Condition = plan.Condition{Type: plan.OnNone}
		default:
			d.Condition = plan.Condition{
				Type:        plan.OnObjectCreation,
				ResourceKey: plan.ResourceKey{Type: "pod", Namespace: "default", Name: name}, Repeat: 1,
			}
			if repeat != "" {
				if _, err := fmt.Sscan(repeat, &d.Condition.Repeat); err != nil {
					t.Fatalf("%s: %v", repeat, err)
				}
			}
			d.Observe = plan.ObservationPoint{Timing: plan.AfterAPIServerRecv, ObserveBy: "apiserver-1"}
		}
		tr.Definitions = append(tr.Definitions, d)
	}
	return tr
}

// Restart restarts the controller.
func Restart(tr plan.Trigger) plan.Action {
	return plan.Action{Type: plan.RestartController, Target: "db", Trigger: tr}
}

// Async makes an action asynchronous.
func Async(a plan.Action) plan.Action { a.Async = true; return a }

// PauseServer pauses the API server.
func PauseServer(tr plan.Trigger, scope string) plan.Action {
	return plan.Action{Type: plan.PauseAPIServer, Target: "apiserver-1",
		Pausing: plan.Pausing{PauseScope: plan.MustScope(scope)}, Trigger: tr}
}

// ResumeOneByOne ends pauses of apiserver-1, an event at a time.
func ResumeOneByOne(tr plan.Trigger, scope string) plan.Action {
	return plan.Action{Type: plan.ResumeAPIServer, Target: "apiserver-1",
		Pausing: plan.Pausing{PauseScope: plan.MustScope(scope), OneByOne: true}, Trigger: tr}
}

// Graph parses an expression.
func Graph(t testing.TB, text string) *expr.Graph {
	t.Helper()
	e, err := expr.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return e.Graph()
}

// Creates returns a trigger that waits for a create of a pod, before it is sent.
func Creates(t testing.TB, name string) plan.Trigger {
	return plan.Trigger{Expression: "creates", Graph: Graph(t, "creates"), Definitions: []plan.Definition{{
		Name: "creates", Condition: plan.Condition{Type: plan.OnObjectCreation,
			ResourceKey: plan.ResourceKey{Type: "pod", Namespace: "default", Name: name}, Repeat: 1},
		Observe: plan.ObservationPoint{Timing: plan.BeforeControllerWrite, ObserveBy: "db"},
	}}}
}
