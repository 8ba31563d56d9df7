package shrink

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A late delivery becomes a pause that begins with the same event of the same object; a late event at an API server one
// of that server.
func TestLateStepsBecomePauses(t *testing.T) {
	r := &record.Run{}
	add := func(o record.Observation, stream string, step int) {
		o.Namespace = "default"
		r.Events = append(r.Events, record.Event{Seq: len(r.Events) + 1, Observation: &o})
		seq := len(r.Events)
		r.Events = append(r.Events, record.Event{Seq: seq + 1, Choice: &record.Choice{
			Stream: stream, Step: step, Event: seq,
		}})
	}
	received := func(by string, point wire.Point, op wire.Operation, name string) record.Observation {
		return record.Observation{By: by, Point: point, Phase: wire.Before, Op: op, Kind: "pod", Name: name}
	}
	add(received("op", wire.ControllerRecv, wire.Create, "a"), "op receives pod", 1)
	add(received("op", wire.ControllerRecv, wire.Update, "a"), "op receives pod", 2)
	add(received("op", wire.ControllerRecv, wire.Update, "b"), "op receives pod", 3)
	add(received("op", wire.ControllerRecv, wire.Update, "a"), "op receives pod", 4)
	add(received("apiserver-1", wire.APIServerRecv, wire.Delete, "a"), "apiserver-1 receives pod", 1)
	add(record.Observation{By: "op", Point: wire.ControllerWrite, Phase: wire.Before, Op: wire.DeleteCollection,
		Kind: "pod"}, "op reconciles a", 1)
	for _, tt := range []struct {
		name  string
		late  []plan.LateStep
		whole bool
		want  []string
	}{
		{"a delivery", []plan.LateStep{{Stream: "op receives pod", Step: 4}}, false, []string{
			"pauseController op beforeControllerRecv pod/default/a, at onObjectUpdate 2 of pod/default/a",
			"resumeController op beforeControllerRecv pod/default/a",
		}},
		{"all of its type", []plan.LateStep{{Stream: "op receives pod", Step: 1}}, true, []string{
			"pauseController op beforeControllerRecv pod/default/*, at onObjectCreation 1 of pod/default/a",
			"resumeController op beforeControllerRecv pod/default/*",
		}},
		{"an API server's event", []plan.LateStep{{Stream: "apiserver-1 receives pod", Step: 1}}, false, []string{
			"pauseAPIServer apiserver-1  pod/default/a, at onObjectDeletion 1 of pod/default/a",
			"resumeAPIServer apiserver-1  pod/default/a",
		}},
		{"what no trigger waits for", []plan.LateStep{{Stream: "op reconciles a", Step: 1}}, false, nil},
		{"what did not come", []plan.LateStep{{Stream: "op receives secret", Step: 1}}, false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			actions, ok := pausesFor(r, tt.late, tt.whole)
			if ok != (tt.want != nil) {
				t.Fatalf("there is such a plan: %v", ok)
			}
			var got []string
			for i := range actions {
				a, d := &actions[i], actions[i].Trigger.Definitions[0]
				text := fmt.Sprintf("%s %s %s %s", a.Type, a.Target, a.PauseAt, a.PauseScope)
				if d.Condition.Type != plan.OnTimeout {
					text = fmt.Sprintf("%s, at %s %d of %s", text, d.Condition.Type, d.Condition.Repeat,
						d.Condition.ResourceKey)
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// Pauses that show the finding replace the schedule.
func TestPausesReplaceASchedule(t *testing.T) {
	r := &record.Run{Events: []record.Event{
		{Seq: 1, Observation: &record.Observation{By: "op", Point: wire.ControllerRecv, Phase: wire.Before,
			Op: wire.Create, Kind: "pod", Namespace: "default", Name: "a"}},
		{Seq: 2, Choice: &record.Choice{Stream: "op receives pod", Step: 1, Event: 1}},
	}}
	for _, shown := range []string{"pod/default/a", "pod/default/*", ""} {
		suite, first := parsed(t, "schedule: {late: [{stream: op receives pod, step: 1}]}\n")
		s := newSearch(suite, first, func(_ context.Context, p *plan.Plan) (bool, string, error) {
			return p.Schedule == nil && len(p.Actions) == 2 && p.Actions[0].PauseScope.String() == shown, "", nil
		})
		if err := s.makePauses(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if got := s.best.Schedule == nil; got != (shown != "") {
			t.Errorf("shown by a pause of %q: the plan is\n%s", shown, textOf(s.best))
		}
	}
}
