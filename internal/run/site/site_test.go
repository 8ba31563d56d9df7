package site

import (
	"slices"
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

// A run uses each API server that its plan or a controller names. An API server that does not run shows nothing stale.
func TestUsed(t *testing.T) {
	action := func(a plan.Action) *plan.Plan { return &plan.Plan{Actions: []plan.Action{a}} }
	observed := plan.Action{Type: plan.KillController, Target: "db"}
	observed.Trigger.Definitions = []plan.Definition{{Observe: plan.ObservationPoint{ObserveBy: "apiserver-3"}}}
	moved := plan.Action{Type: plan.ReconnectController, Target: "db"}
	moved.ReconnectAPIServer = "apiserver-3"
	servers := []string{"apiserver-1", "apiserver-2", "apiserver-3"}
	at := func(server string) *plan.Suite {
		return &plan.Suite{Controllers: []plan.Controller{{Name: "db", APIServer: server}}}
	}
	for _, test := range []struct {
		name   string
		plan   *plan.Plan
		all    []string
		suites []*plan.Suite
		want   []string
	}{
		{"no plan", new(plan.Plan), servers, []*plan.Suite{at("apiserver-1")}, servers[:1]},
		{"a target", action(plan.Action{Type: plan.PauseAPIServer, Target: "apiserver-2"}), servers, nil, servers[:2]},
		{"the first is disturbed", action(plan.Action{Type: plan.KillAPIServer, Target: "apiserver-1"}), servers, nil,
			servers[:2]},
		{"an observer", action(observed), servers, nil, []string{"apiserver-1", "apiserver-3"}},
		{"where a controller goes", action(moved), servers, nil, []string{"apiserver-1", "apiserver-3"}},
		{"where a controller begins, in another build", new(plan.Plan), servers,
			[]*plan.Suite{at("apiserver-1"), at("apiserver-2")}, servers[:2]},
		{"several clusters", action(plan.Action{Type: plan.PauseAPIServer, Target: "west/apiserver-1"}),
			[]string{"east/apiserver-1", "east/apiserver-2", "west/apiserver-1", "west/apiserver-2"}, nil,
			[]string{"east/apiserver-1", "west/apiserver-1", "west/apiserver-2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Used(test.plan, test.all, test.suites); !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
