package judge

import (
	"testing"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Regression: a controller that exited because the plan had killed its API server was counted as crashed.
func TestServerAway(t *testing.T) {
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	action := func(i int, typ plan.ActionType, target string, began, done int) record.Action {
		return record.Action{Index: i, Type: string(typ), Target: target, Began: at(began), Done: at(done)}
	}
	kill := action(0, plan.KillAPIServer, "apiserver-1", 10, 11)
	back := action(1, plan.StartAPIServer, "apiserver-1", 30, 33)
	move := action(2, plan.ReconnectController, "db", 20, 21)
	west := []record.Action{
		action(0, plan.KillAPIServer, "west/apiserver-1", 10, 11),
		action(1, plan.StartAPIServer, "west/apiserver-1", 30, 33),
	}
	for _, test := range []struct {
		name    string
		actions []record.Action
		exit    int
		want    string
	}{
		{"one of another cluster", west, 25, "west/apiserver-1"},
		{"just after one of another cluster came back", west, 36, "west/apiserver-1"},
		{"long after one of another cluster came back", west, 60, ""},
		{"of another cluster to which it is not connected",
			[]record.Action{action(0, plan.KillAPIServer, "north/apiserver-1", 10, 11)}, 25, ""},

		{"before it was killed", []record.Action{kill, back}, 9, ""},
		{"while it was down", []record.Action{kill, back}, 25, "apiserver-1"},
		{"just after it came back", []record.Action{kill, back}, 36, "apiserver-1"},
		{"long after it came back", []record.Action{kill, back}, 60, ""},
		{"it never came back", []record.Action{kill}, 60, "apiserver-1"},
		{"another server was killed", []record.Action{action(0, plan.KillAPIServer, "apiserver-2", 10, 11)}, 25, ""},
		{"it was moved away before", []record.Action{kill, move}, 25, ""},
		{"it was moved away later", []record.Action{kill, move}, 15, "apiserver-1"},
		{
			"it was moved to one that is killed later",
			[]record.Action{move, action(3, plan.KillAPIServer, "apiserver-3", 40, 41)}, 45, "apiserver-3",
		},
	} {
		controllers := []record.Controller{
			{Name: "db", APIServer: "apiserver-1", Remotes: []string{"west/apiserver-1"}},
		}
		got := ServerAway(planOf(test.actions), controllers, test.actions, 10*time.Second, "db", at(test.exit))
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestDisconnected(t *testing.T) {
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	p := &plan.Plan{Actions: []plan.Action{
		{Type: plan.DisturbConnection, Target: "op", Cluster: "west"},
		{Type: plan.RestoreConnection, Target: "op", Cluster: "north"},
		{Type: plan.RestoreConnection, Target: "op", Cluster: "west"},
	}}
	actions := []record.Action{
		{Index: 0, Began: at(10), Done: at(10)}, {Index: 1, Began: at(20), Done: at(20)},
		{Index: 2, Began: at(30), Done: at(31)},
	}
	for _, test := range []struct {
		controller string
		exit       int
		want       string
	}{
		{"op", 9, ""}, {"op", 10, "west"}, {"other", 10, ""}, {"op", 29, "west"}, {"op", 41, "west"}, {"op", 42, ""},
	} {
		if got := disconnected(p, actions, 10*time.Second, test.controller, at(test.exit)); got != test.want {
			t.Errorf("%s at %d s: %q, want %q", test.controller, test.exit, got, test.want)
		}
	}
	if got := disconnected(p, actions[:2], 10*time.Second, "op", at(100)); got != "west" {
		t.Errorf("without an end: %q", got)
	}
	actions[2].Done = time.Time{} // the plan ended meanwhile
	if got := disconnected(p, actions, 10*time.Second, "op", at(100)); got != "west" {
		t.Errorf("with an end that did not come to its own: %q", got)
	}
}

// planOf returns a plan with these actions; those that reconnect use apiserver-3.
func planOf(actions []record.Action) *plan.Plan {
	p := &plan.Plan{Actions: make([]plan.Action, 4)}
	for _, a := range actions {
		p.Actions[a.Index] = plan.Action{Type: plan.ActionType(a.Type), Target: a.Target}
		if p.Actions[a.Index].Type == plan.ReconnectController {
			p.Actions[a.Index].ReconnectAPIServer = "apiserver-3"
		}
	}
	return p
}
