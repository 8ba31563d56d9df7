package site

import (
	"testing"

	"github.com/trommel-dev/trommel/plan"
)

func TestSteadyAPIServer(t *testing.T) {
	pauses := func(targets ...string) *plan.Plan {
		p := new(plan.Plan)
		for _, target := range targets {
			p.Actions = append(p.Actions, plan.Action{Type: plan.PauseAPIServer, Target: target})
		}
		return p
	}
	servers := []string{"apiserver-1", "apiserver-2"}
	for _, test := range []struct {
		plan *plan.Plan
		want string
	}{
		{pauses(), "apiserver-1"}, {pauses("apiserver-2"), "apiserver-1"}, {pauses("apiserver-1"), "apiserver-2"},
		{pauses(servers...), "apiserver-1"},
	} {
		if got := steadyAPIServer(test.plan, servers); got != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}
