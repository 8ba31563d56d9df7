package machine

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// writing returns a write of a pod.
func writing(op wire.Operation, name string, phase wire.Phase, call uint64) record.Event {
	return record.Event{Observation: &record.Observation{
		By: "db", Session: 2, Call: call, Point: wire.ControllerWrite, Phase: phase, Op: op, Resource: "pods",
		Kind: "pod", GroupKnown: true, Namespace: "default", Name: name, Object: json.RawMessage(`{}`), Aside: true,
	}}
}

// asked is the event of an observation that a trigger of the plan asks for.
func asked(e record.Event) record.Event {
	e.Observation.Aside = false
	return e
}

func TestFailingCalls(t *testing.T) {
	fail := func(scope string, change func(*plan.Action)) plan.Action {
		a := plan.Action{Type: plan.FailCall, Target: "db",
			Failing: plan.Failing{CallScope: plan.MustScope(scope), Answer: plan.Refused},
			Trigger: trigger(t, "now", "now@none")}
		if change != nil {
			change(&a)
		}
		return a
	}
	until := func(a *plan.Action) { a.UntilRestored = true }
	restore := func(scope string) plan.Action {
		return plan.Action{Type: plan.RestoreCalls, Target: "db",
			Failing: plan.Failing{CallScope: plan.MustScope(scope)}, Trigger: trigger(t, "a", "a")}
	}
	create := func(name string) record.Event { return writing(wire.Create, name, wire.Before, 1) }
	in := func(cluster string, e record.Event) record.Event { e.Observation.Cluster = cluster; return e }
	of := func(call string, a plan.Action) plan.Action { a.Call = call; return a }
	west := func(a plan.Action) plan.Action { a.Cluster = "west"; return a }
	calling := func(name, request string) record.Event {
		return record.Event{Observation: &record.Observation{By: "db", Session: 2, Call: 1, Point: wire.AnnotatedCall,
			Phase: wire.Before, CallName: name, Request: request, Aside: true}}
	}
	for _, test := range []struct {
		name    string
		actions []plan.Action
		start   string
		events  []record.Event
		want    []string
		none    int // actions that have failed no call
	}{
		{
			name: "the call that fires the action fails, and no other",
			actions: []plan.Action{fail("pod/default/x", func(a *plan.Action) {
				a.Trigger, a.Answer = creates(t, "x"), plan.Lost
			})},
			events: []record.Event{asked(create("x")), began(0), create("y"), completed(0), create("x")},
			want:   []string{"fire 0, hold 1", "", "release 3", "fail 1 (lost)", "release 5"},
		},
		{
			name: "calls after the number of times, outside of the scope and of other operations succeed",
			actions: []plan.Action{fail("pod/default/x", func(a *plan.Action) {
				a.Times, a.CallOperations = 2, []plan.Operation{"create", "delete"}
			})},
			start: "fire 0",
			events: []record.Event{
				began(0), completed(0), create("y"), writing(wire.Update, "x", wire.Before, 1), create("x"),
				writing(wire.Create, "x", wire.After, 1), read("x", wire.Before, 2),
				writing(wire.Delete, "x", wire.Before, 3), create("x"),
			},
			want: []string{"", "", "release 3", "release 4", "fail 5 (refused)", "release 6", "release 7",
				"fail 8 (refused)", "release 9"},
		},
		{
			name:    "all calls fail until they are restored",
			actions: []plan.Action{fail("", until), restore("")},
			start:   "fire 0",
			events: []record.Event{began(0), completed(0), create("x"), create("y"), created("a"), create("x"),
				began(1), create("x"), completed(1)},
			want: []string{"", "", "fail 3 (refused)", "fail 4 (refused)", "fire 1, hold 5", "fail 6 (refused)", "",
				"release 8", "release 5"},
		},
		{
			name: "one operation fails",
			actions: []plan.Action{fail("", func(a *plan.Action) {
				a.UntilRestored, a.CallOperations = true, []plan.Operation{"create"}
			})},
			start:  "fire 0",
			events: []record.Event{began(0), completed(0), writing(wire.Delete, "x", wire.Before, 1), create("x")},
			want:   []string{"", "", "release 3", "fail 4 (refused)"},
		},
		{
			name:    "calls of a function fail, and no others",
			actions: []plan.Action{of("backup", fail("database/default/db", until))},
			start:   "fire 0",
			events: []record.Event{began(0), completed(0), calling("backup", "default/db"),
				calling("backup", "default/web"), calling("other", "default/db"), create("x")},
			want: []string{"", "", "fail 3 (refused)", "release 4", "release 5", "release 6"},
		},
		{
			name: "a restore of writes leaves calls of a function failing, and the other way round",
			actions: []plan.Action{of("backup", fail("", until)), restore(""), fail("", until),
				of("backup", restore(""))},
			start: "fire 0",
			events: []record.Event{began(0), completed(0), created("a"), began(1), completed(1),
				calling("backup", "default/db"), began(2), completed(2), created("a"), began(3), completed(3),
				calling("backup", "default/db"), create("x")},
			want: []string{"", "", "fire 1, hold 3", "note 1", "fire 2, hold 3", "fail 6 (refused)", "", "release 3",
				"fire 3, hold 9", "", "release 9", "release 12", "fail 13 (refused)"},
		},
		{
			name:    "calls to one cluster fail until they are restored there",
			actions: []plan.Action{west(fail("", until)), fail("", until), west(restore(""))},
			start:   "fire 0",
			events: []record.Event{began(0), in("east", create("x")), in("west", create("x")), completed(0), began(1),
				completed(1), created("a"), began(2), completed(2), in("west", create("x"))},
			want: []string{"", "release 2", "fail 3 (refused)", "fire 1", "", "", "fire 2, hold 7", "", "release 7",
				"fail 10 (refused)"},
		},
		{
			name: "a restore of a scope ends the failure of exactly that scope",
			actions: []plan.Action{
				fail("pod/default/x", until), fail("pod/default/*", until), restore("pod/default/*"),
			},
			start: "fire 0",
			events: []record.Event{began(0), completed(0), began(1), completed(1), created("a"), began(2), completed(2),
				create("x"), create("y")},
			want: []string{"", "fire 1", "", "", "fire 2, hold 5", "", "release 5", "fail 8 (refused)", "release 9"},
			none: 1,
		},
		{
			name:    "a restore of nothing is noted",
			actions: []plan.Action{fail("", nil), restore("")},
			start:   "fire 0",
			events:  []record.Event{began(0), completed(0), create("x"), created("a"), began(1)},
			want:    []string{"", "", "fail 3 (refused)", "fire 1, hold 4", "note 1"},
		},
		{
			name:    "leader election does not fail, unless the scope names the lock",
			actions: []plan.Action{fail("*", until), fail("lease/default/db", until)},
			start:   "fire 0",
			events: []record.Event{began(0), lease("db", wire.Update, ""), completed(0), began(1),
				lease("db", wire.Update, "")},
			want: []string{"", "release 2", "fire 1", "", "fail 5 (refused)"},
			none: 1,
		},
		{
			name:    "the deletion of a collection in the scope fails",
			actions: []plan.Action{fail("pod/default/x", nil)},
			start:   "fire 0",
			events:  []record.Event{began(0), completed(0), writing(wire.DeleteCollection, "", wire.Before, 1)},
			want:    []string{"", "", "fail 3 (refused)"},
		},
		{
			name:    "a caller that nobody can answer does not count",
			actions: []plan.Action{fail("pod/default/x", func(a *plan.Action) { a.Trigger = creates(t, "x") })},
			events:  []record.Event{asked(create("x")), began(0), {Abandoned: new(1)}, completed(0), create("x")},
			want:    []string{"fire 0, hold 1", "", "release 1", "", "fail 5 (refused)"},
		},
		{
			name:    "nothing fails after the end of the plan",
			actions: []plan.Action{fail("", until)},
			start:   "fire 0",
			events:  []record.Event{began(0), completed(0), {End: true}, create("x")},
			want:    []string{"", "", "", "release 4"},
			none:    1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &plan.Plan{Actions: test.actions}
			m, err := New(p, []record.Controller{{Name: "db", Hooks: true}})
			if err != nil {
				t.Fatal(err)
			}
			if got := show(m.Start()); got != test.start {
				t.Errorf("start: %q, want %q", got, test.start)
			}
			got := make([]string, len(test.events))
			for i, e := range test.events {
				e.Seq = i + 1
				got[i] = show(m.Step(e))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
			if none := m.NoneFailed(); len(none) != test.none {
				t.Errorf("failed no call: %q", none)
			}
		})
	}
}

func TestStuckNamesCallsThatFail(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{
		{Type: plan.FailCall, Target: "db", Failing: plan.Failing{Answer: plan.Refused, UntilRestored: true},
			Trigger: trigger(t, "now", "now@none")},
		{Type: plan.FailCall, Target: "db", Failing: plan.Failing{Answer: plan.Refused, Times: 2},
			Trigger: trigger(t, "now", "now@none")},
		restart(trigger(t, "b", "b")),
		{Type: plan.RestoreCalls, Target: "db", Failing: plan.Failing{CallScope: plan.MustScope("pod/default/x")},
			Trigger: trigger(t, "b", "b")},
		{Type: plan.RestoreCalls, Target: "db", Trigger: trigger(t, "a", "a")},
	}}
	m, err := New(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Start()
	for i, e := range []record.Event{began(0), completed(0), began(1), completed(1),
		writing(wire.Create, "x", wire.Before, 1)} {
		e.Seq = i + 1
		m.Step(e)
	}
	got := m.Stuck(time.Time{}, func(string) bool { return true })
	want := "the plan has made 1 calls of db fail by action 1 (failCall db), which action 5 (restoreCalls db) ends, " +
		"after action 3 (restartController db), which comes when: onObjectCreation of pod/default/b, " +
		"afterAPIServerRecv at apiserver-1"
	if !strings.HasPrefix(got, want) || strings.Contains(got, "action 2") {
		t.Errorf("%s, want %s, and nothing about calls that will soon succeed", got, want)
	}
}

// What processes report so that calls can fail: before and after they happen, from the start of the plan.
func TestRulesOfFailingCalls(t *testing.T) {
	resolve := func(k plan.ResourceKey) wire.Rule {
		return wire.Rule{Kind: k.Type, Namespace: k.Namespace, Name: k.Name}
	}
	for _, tt := range []struct {
		name string
		what plan.Failing
		want []wire.Rule // for both phases
	}{
		{"all writes", plan.Failing{}, []wire.Rule{{Point: wire.ControllerWrite, AnyGroup: true}}},
		{"writes of objects", plan.Failing{CallScope: plan.MustScope("pod/default/a")}, []wire.Rule{
			{Point: wire.ControllerWrite, Kind: "pod", Namespace: "default", Name: "a"},
			{Point: wire.ControllerWrite, Kind: "pod", Items: true, ItemNamespace: "default", ItemName: "a",
				Operations: []wire.Operation{wire.List, wire.DeleteCollection}},
		}},
		{"calls of a function", plan.Failing{Call: "backup", CallScope: plan.MustScope("database/default/db")},
			[]wire.Rule{{Point: wire.AnnotatedCall, AnyGroup: true}}},
	} {
		m, err := New(&plan.Plan{Actions: []plan.Action{{Type: plan.FailCall, Target: "db", Failing: tt.what,
			Trigger: trigger(t, "a", "a")}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var want []wire.Rule
		for _, r := range tt.want {
			for _, r.Phase = range []wire.Phase{wire.Before, wire.After} {
				want = append(want, r)
			}
		}
		if diff := cmp.Diff(map[string][]wire.Rule{"db": want}, m.SideRules(resolve)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A replay fails the same calls as the recorded run.
func TestReplayFailsTheSameCalls(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{{Type: plan.FailCall, Target: "db",
		Failing: plan.Failing{Answer: plan.Lost, Times: 1},
		Trigger: creates(t, "x")}}}
	events := []record.Event{
		asked(writing(wire.Create, "x", wire.Before, 1)), began(0), completed(0),
		writing(wire.Create, "x", wire.After, 1), writing(wire.Create, "y", wire.Before, 2),
		writing(wire.Create, "y", wire.After, 2),
	}
	for i := range events {
		events[i].Seq = i + 1
	}
	events[3].Observation.Failed = wire.Lost
	fires, _, err := Replay(p, nil, events)
	if err != nil || len(fires) != 1 {
		t.Errorf("%v, %v", fires, err)
	}
	events[5].Observation.Failed = wire.Lost
	if _, _, err := Replay(p, nil, events); err == nil || !strings.Contains(err.Error(), "event 6") {
		t.Errorf("a call that did not fail: %v", err)
	}
}

// A write whose answer was lost has taken effect: it satisfies triggers like any other.
func TestLostAnswerSatisfiesTriggers(t *testing.T) {
	tr := creates(t, "x")
	tr.Definitions[0].Observe.Timing = plan.AfterControllerWrite
	for _, test := range []struct {
		failed wire.Answer
		code   int
		want   string
	}{
		{wire.Lost, 201, "fire 0, hold 1"},
		{wire.Lost, 409, "release 1"},
		{wire.Refused, 500, "release 1"},
		{"", 500, "release 1"},
	} {
		m, err := New(&plan.Plan{Actions: []plan.Action{restart(tr)}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Start()
		e := asked(writing(wire.Create, "x", wire.After, 1))
		e.Seq = 1
		e.Observation.Failed, e.Observation.Code, e.Observation.Error = test.failed, test.code, "an error"
		if got := show(m.Step(e)); got != test.want {
			t.Errorf("%q %d: %s, want %s", test.failed, test.code, got, test.want)
		}
	}
}
