package machine

import (
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// wrote returns a trigger that waits for the controller's write of pod/default/<name>.
func wrote(t *testing.T, by, name string) plan.Trigger {
	tr := trigger(t, name, name)
	tr.Definitions[0].Observe = plan.ObservationPoint{Timing: plan.AfterControllerWrite, ObserveBy: by}
	return tr
}

func both(t *testing.T, a, b plan.Trigger) plan.Trigger {
	tr := trigger(t, a.Expression+"&"+b.Expression)
	tr.Definitions = append(a.Definitions, b.Definitions...)
	return tr
}

func TestStuck(t *testing.T) {
	now := func() plan.Trigger { return trigger(t, "now", "now@none") }
	pauseAt := func(target string, at plan.Timing) plan.Action {
		return plan.Action{Type: plan.PauseController, Target: target,
			Pausing: plan.Pausing{PauseAt: at}, Trigger: now()}
	}
	resume := func(target string, tr plan.Trigger) plan.Action {
		return plan.Action{Type: plan.ResumeController, Target: target, Trigger: tr}
	}
	at := func(by string, point wire.Point, phase wire.Phase, op wire.Operation,
		change ...func(*record.Observation)) record.Event {
		e := observed(by, uint64(len(by)), point, phase, op, 0, change...)
		e.Observation.Call = 1
		return e
	}
	reconciling := func(id string, call uint64) func(*record.Observation) {
		return func(o *record.Observation) { o.ReconcileID, o.Request, o.Call = id, "default/a", call }
	}
	none := func(f *record.Observation) {
		*f = record.Observation{By: f.By, Session: f.Session, Point: f.Point, Phase: f.Phase, Aside: true}
	}
	started := []record.Event{began(0), completed(0)}
	const waits = "onObjectCreation of pod/default/b, afterControllerWrite at db"

	for _, test := range []struct {
		name    string
		actions []plan.Action
		events  []record.Event // one per second
		gone    string         // not connected
		runtime string         // version of controller-runtime
		want    string
		bare    string // without times
	}{
		{
			name: "nothing held, nothing paused", actions: []plan.Action{restart(wrote(t, "db", "b"))},
			events: []record.Event{at("db", wire.ControllerRead, wire.Before, wire.Get)},
		},
		{
			name:    "paused, nothing held yet",
			actions: []plan.Action{pauseAt("db", plan.BeforeControllerRecv), resume("db", wrote(t, "db", "b"))},
			events:  started,
			want: "action 1 (pauseController db at beforeControllerRecv) has nothing to hold yet, which action 2 " +
				"(resumeController db) ends when: " + waits,
		},
		{
			name:    "a read that waits for the controller's own write, whose delivery is held",
			actions: []plan.Action{pauseAt("db", plan.BeforeControllerRecv), resume("db", wrote(t, "db", "b"))},
			runtime: "v0.25.2",
			events: append(append([]record.Event{at("db", wire.Reconcile, wire.Before, "", none, reconciling("r", 7))},
				started...),
				at("db", wire.ControllerRecv, wire.Before, wire.Update)),
			want: "db's delivery of the update of pod/default/a has been held for 10s by action 1 (pauseController " +
				"db at beforeControllerRecv), which action 2 (resumeController db) ends when: " + waits +
				"; db's reconcile of default/a, begun 13s ago, neither reads nor writes: it may be waiting for that " +
				"delivery (controller-runtime ≥ 0.25 can make reads wait for the controller's own writes), which " +
				"would be a deadlock",
			bare: "db's delivery of the update of pod/default/a has been held by action 1 (pauseController db at " +
				"beforeControllerRecv), which action 2 (resumeController db) ends when: " + waits +
				"; db's reconcile of default/a neither reads nor writes: it may be waiting for that delivery " +
				"(controller-runtime ≥ 0.25 can make reads wait for the controller's own writes), which would be a " +
				"deadlock",
		},
		{
			name:    "an older controller-runtime, and a call in the reconcile",
			actions: []plan.Action{pauseAt("db", plan.BeforeControllerRecv), resume("db", wrote(t, "db", "b"))},
			runtime: "v0.24.0",
			events: append(append([]record.Event{at("db", wire.Reconcile, wire.Before, "", none, reconciling("r", 7))},
				started...),
				at("db", wire.ControllerRecv, wire.Before, wire.Update),
				at("db", wire.ControllerRead, wire.Before, wire.Get, reconciling("r", 8))),
			want: "db's delivery of the update of pod/default/a has been held for 11s by action 1 (pauseController " +
				"db at beforeControllerRecv), which action 2 (resumeController db) ends when: " + waits +
				"; db's reconcile of default/a, begun 14s ago, since its get of pod/default/a, 10s ago, neither " +
				"reads nor writes",
		},
		{
			name:    "no reconcile is running",
			actions: []plan.Action{pauseAt("db", plan.BeforeControllerRecv), resume("db", wrote(t, "db", "b"))},
			events: append(append([]record.Event{
				at("db", wire.Reconcile, wire.Before, "", none, reconciling("r", 7)),
				at("db", wire.Reconcile, wire.After, "", none, reconciling("r", 7)),
			}, started...), at("db", wire.ControllerRecv, wire.Before, wire.Update),
				at("db", wire.ControllerRecv, wire.Before, wire.Create)),
			want: "db's delivery of the update of pod/default/a (and 1 more) has been held for 11s by action 1 " +
				"(pauseController db at beforeControllerRecv), which action 2 (resumeController db) ends when: " +
				waits +
				"; db has no observed reconcile running: it may be waiting for what is held",
		},
		{
			name:    "held in the only reconcile",
			actions: []plan.Action{pauseAt("db", plan.BeforeControllerWrite), resume("db", wrote(t, "db", "b"))},
			events: append(append([]record.Event{at("db", wire.Reconcile, wire.Before, "", none, reconciling("r", 7))},
				started...),
				at("db", wire.ControllerWrite, wire.Before, wire.Update, reconciling("r", 8))),
			want: "db's update of pod/default/a has been held for 10s by action 1 (pauseController db at " +
				"beforeControllerWrite), which action 2 (resumeController db) ends when: " + waits +
				"; a deadlock: db waits for itself, unless another worker of the controller acts",
		},
		{
			name:    "another reconcile goes on",
			actions: []plan.Action{pauseAt("db", plan.BeforeControllerWrite), resume("db", wrote(t, "db", "b"))},
			events: append(append([]record.Event{
				at("db", wire.Reconcile, wire.Before, "", none, reconciling("r", 7)),
				at("db", wire.Reconcile, wire.Before, "", none, reconciling("s", 9)),
			}, started...), at("db", wire.ControllerWrite, wire.Before, wire.Update, reconciling("r", 8))),
			want: "db's update of pod/default/a has been held for 10s by action 1 (pauseController db at " +
				"beforeControllerWrite), which action 2 (resumeController db) ends when: " + waits +
				"; db's reconcile of default/a, begun 13s ago, neither reads nor writes",
		},
		{
			name: "two controllers wait for each other",
			actions: []plan.Action{
				pauseAt("db", plan.BeforeControllerWrite), pauseAt("web", plan.AfterControllerRead),
				resume("db", both(t, wrote(t, "db", "b"), wrote(t, "web", "c"))), resume("web", now()),
			},
			events: append(append([]record.Event{}, started...), began(1), completed(1),
				at("db", wire.ControllerWrite, wire.Before, wire.Update),
				at("web", wire.ControllerRead, wire.After, wire.Get)),
			want: "db's update of pod/default/a has been held for 11s by action 1 (pauseController db at " +
				"beforeControllerWrite), which action 3 (resumeController db) ends when: " + waits +
				"; or: onObjectCreation of pod/default/c, afterControllerWrite at web; web's return from its get of " +
				"pod/default/a has been held for 10s by action 2 (pauseController web at afterControllerRead), which " +
				"action 4 (resumeController web) ends, after action 3 (resumeController db), which comes when: " +
				waits +
				"; or: onObjectCreation of pod/default/c, afterControllerWrite at web; a deadlock: db and web wait " +
				"for each other, unless another worker of the controller acts",
		},
		{
			name: "an API server waits for an event that it does not receive",
			actions: []plan.Action{
				{Type: plan.PauseAPIServer, Target: "apiserver-1",
					Pausing: plan.Pausing{PauseScope: plan.MustScope("pod/default/a")}, Trigger: now()},
				{Type: plan.ResumeAPIServer, Target: "apiserver-1", Trigger: trigger(t, "b", "b")},
			},
			events: append(append([]record.Event{}, started...),
				at("apiserver-1", wire.APIServerRecv, wire.Before, wire.Update)),
			want: "apiserver-1's receipt of the update of pod/default/a has been held for 10s by action 1 " +
				"(pauseAPIServer apiserver-1), which action 2 (resumeAPIServer apiserver-1) ends when: " +
				"onObjectCreation of pod/default/b, afterAPIServerRecv at apiserver-1; a deadlock: apiserver-1 waits " +
				"for itself",
		},
		{
			name: "a timeout ends it",
			actions: []plan.Action{pauseAt("db", plan.BeforeControllerWrite),
				resume("db", trigger(t, "t", "t@timeout"))},
			events: append(append([]record.Event{}, started...),
				at("db", wire.ControllerWrite, wire.Before, wire.Update)),
			want: "db's update of pod/default/a has been held for 10s by action 1 (pauseController db at " +
				"beforeControllerWrite), which action 2 (resumeController db) ends when: its timeout of 1s",
		},
		{
			name:    "nothing ends it",
			actions: []plan.Action{pauseAt("db", plan.BeforeControllerWrite)},
			events: append(append([]record.Event{}, started...),
				at("db", wire.ControllerWrite, wire.Before, wire.Update)),
			want: "db's update of pod/default/a has been held for 10s by action 1 (pauseController db at " +
				"beforeControllerWrite), which only the hold's deadline or the end of the plan ends",
		},
		{
			name:    "the awaited controller is not connected",
			actions: []plan.Action{pauseAt("db", plan.BeforeControllerWrite), resume("db", wrote(t, "web", "b"))},
			gone:    "web", events: append(append([]record.Event{}, started...),
				at("db", wire.ControllerWrite, wire.Before, wire.Update)),
			want: "db's update of pod/default/a has been held for 10s by action 1 (pauseController db at " +
				"beforeControllerWrite), which action 2 (resumeController db) ends when: onObjectCreation of " +
				"pod/default/b, afterControllerWrite at web; web is not connected",
		},
		{
			name:    "an action that does not complete",
			actions: []plan.Action{restart(trigger(t, "a", "a"))}, events: []record.Event{created("a")},
			want: "apiserver-1's receipt of the creation of pod/default/a has been held for 10s until action 1 " +
				"(restartController db) is complete, which is running",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := New(&plan.Plan{Actions: test.actions},
				[]record.Controller{{Name: "db", Hooks: true, ControllerRuntime: test.runtime}})
			if err != nil {
				t.Fatal(err)
			}
			m.Start()
			start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			for i, e := range test.events {
				e.Seq, e.Time = i+1, start.Add(time.Duration(i)*time.Second)
				m.Step(e)
			}
			live := func(by string) bool { return by != test.gone }
			if got := m.Stuck(start.Add(time.Duration(len(test.events)+9)*time.Second), live); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if got := m.Stuck(time.Time{}, live); test.bare != "" && got != test.bare {
				t.Errorf("without times: got  %s\nwant %s", got, test.bare)
			}
			m.Step(record.Event{End: true})
			if got := m.Stuck(start, live); got != "" {
				t.Errorf("at the end: %s", got)
			}
		})
	}
}
