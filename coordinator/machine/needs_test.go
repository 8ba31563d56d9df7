package machine

import (
	"testing"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
)

func TestNeeds(t *testing.T) {
	calls := wire.Manifest{Points: []wire.CompiledPoint{
		{Point: wire.AnnotatedCall, Name: "resize"}, {Point: wire.AnnotatedCall, Name: "grow", Fails: true},
	}}
	call := func(name string) plan.Action {
		return restart(plan.Trigger{Definitions: []plan.Definition{{
			Name: "a", Condition: plan.Condition{Type: plan.OnAnnotatedCall, Call: name},
			Observe: plan.ObservationPoint{Timing: plan.BeforeAnnotatedCall, ObserveBy: "db"},
		}}})
	}
	pause := func(at plan.Timing) plan.Action {
		return plan.Action{Type: plan.PauseController, Target: "db", Pausing: plan.Pausing{PauseAt: at}}
	}
	fail := func(name string) plan.Action {
		return plan.Action{Type: plan.FailCall, Target: "db", Failing: plan.Failing{Call: name}}
	}
	for _, test := range []struct {
		name     string
		action   plan.Action
		manifest wire.Manifest
		missing  bool
	}{
		{"a call that is compiled in", call("resize"), calls, false},
		{"another call", call("shrink"), calls, true},
		{"a call that can fail", fail("grow"), calls, false},
		{"a call that returns no error", fail("resize"), calls, true},
		{"a pause at annotated calls", pause(plan.BeforeAnnotatedCall), calls, false},
		{"a pause at annotated calls without any", pause(plan.AfterAnnotatedCall), wire.Manifest{}, true},
		{"a pause at a missing point", pause(plan.BeforeReconcile), calls, true},
	} {
		needs := Needs(&plan.Plan{Actions: []plan.Action{test.action}}, "db")
		if len(needs) != 1 {
			t.Fatalf("%s: needs %+v", test.name, needs)
		}
		if got := !needs[0].In(test.manifest); got != test.missing {
			t.Errorf("%s: missing %t, want %t", test.name, got, test.missing)
		}
	}
}
