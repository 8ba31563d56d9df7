package confirm

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// The plan that only restarts a controller does so at the moment of the plan that shows it the past.
func TestRestartedPlan(t *testing.T) {
	created := func(name string, at plan.Timing, by string) *build.Condition {
		return build.Created("configmap/default/"+name).Named("written").At(at, by)
	}
	const recv, write = plan.BeforeControllerRecv, plan.BeforeControllerWrite
	pause := build.PauseAPIServer("apiserver-2").When(created("a", plan.AfterAPIServerRecv, "apiserver-2"))
	resume := build.ResumeAPIServer("apiserver-2").When(build.Timeout(5e9).Named("later"))
	for _, tt := range []struct {
		name    string
		actions []*build.Action
		want    []string // the action, its trigger, and where the last definition of this is observed; nil: no plan
	}{
		{"stale", []*build.Action{
			pause, build.ReconnectController("op", "apiserver-2").When(created("b", plan.AfterAPIServerRecv,
				"apiserver-1")), resume,
		}, []string{"restartController op a-written;b-written afterAPIServerRecv"}},
		{"its own write is not seen", []*build.Action{
			build.PauseController("op", recv).When(created("a", write, "op")),
			build.ResumeController("op", recv).When(build.Timeout(3e9).Named("later")),
		}, []string{"restartController op written afterControllerWrite"}},
		{"a delivery is held", []*build.Action{
			build.PauseController("op", recv).When(created("a", recv, "op")),
			build.ResumeController("op", recv).When(build.Timeout(3e9).Named("later")),
		}, []string{"restartController op written beforeControllerRecv"}},
		{"it is paused twice", []*build.Action{
			build.PauseController("op", recv).When(created("a", recv, "op")),
			build.ResumeController("op", recv).When(build.Timeout(3e9).Named("later")),
			build.PauseController("op", recv).When(created("b", recv, "op")),
		}, []string{"restartController op written beforeControllerRecv"}},
		{"another client writes meanwhile", []*build.Action{
			pause, build.Delete("pod/default/a").When(build.Timeout(1e9).Named("later")),
			build.ReconnectController("op", "apiserver-2").When(created("b", plan.AfterAPIServerRecv, "apiserver-1")),
		}, []string{"delete pod/default/a a-written;b-later ", "restartController op written afterAPIServerRecv"}},
		{"nobody is shown the past", []*build.Action{pause, resume}, nil},
		{"a restart", []*build.Action{build.RestartController("op").When(created("a", write, "op"))}, nil},
		{"a frozen process", []*build.Action{
			build.FreezeController("op").When(created("a", write, "op")),
			build.ThawController("op").When(build.AtOnce()),
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := build.Plan("p").Then(tt.actions...).Build()
			if err != nil {
				t.Fatal(err)
			}
			before, err := plan.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			suite := &plan.Suite{Controllers: []plan.Controller{{Name: "op"}}}
			with, err := Restarted(p, suite)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			if with != nil {
				for _, a := range with.Plan.Actions {
					last := a.Trigger.Definitions[len(a.Trigger.Definitions)-1]
					got = append(got, strings.Join([]string{a.String(), a.Trigger.Expression,
						string(last.Observe.Timing)}, " "))
					if a.Trigger.Graph == nil {
						t.Error("no graph")
					}
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if after, err := plan.Marshal(p); err != nil || string(after) != string(before) {
				t.Errorf("the plan itself has changed: %s, %v", after, err)
			}
		})
	}
}

// A plan that only kills a controller is tried with a kill that comes later.
func TestLaterKill(t *testing.T) {
	created := build.Created("configmap/default/a").Named("written").At(plan.AfterControllerWrite, "op")
	pause := build.PauseController("op", plan.BeforeControllerRecv).When(created)
	for _, tt := range []struct {
		actions []*build.Action
		want    string // its trigger; empty: no plan
	}{
		{[]*build.Action{build.RestartController("op").When(created)}, "a-written;b-later"},
		{[]*build.Action{build.KillController("op").When(created)}, "a-written;b-later"},
		{[]*build.Action{build.RestartController("op").When(created), build.RestartController("op").When(created)}, ""},
		{[]*build.Action{build.RestartAPIServer("apiserver-1").When(created)}, ""},
		{[]*build.Action{build.ReconnectController("op", "apiserver-2").When(created)}, ""},
		{[]*build.Action{pause, build.ResumeController("op", plan.BeforeControllerRecv).When(build.AtOnce())}, ""},
	} {
		p, err := build.Plan("p").Then(tt.actions...).Build()
		if err != nil {
			t.Fatal(err)
		}
		with, err := Later(p, &plan.Suite{Controllers: []plan.Controller{{Name: "op"}}})
		switch {
		case err != nil:
			t.Error(err)
		case with == nil:
			if tt.want != "" {
				t.Errorf("no plan, want %s", tt.want)
			}
		default:
			got := with.Plan.Actions[0].Trigger
			if got.Expression != tt.want || got.Definitions[1].Condition.Timeout != later {
				t.Errorf("%s: %+v", got.Expression, got.Definitions)
			}
			if _, err := plan.Marshal(with.Plan); err != nil {
				t.Error(err)
			}
		}
	}
}
