package machine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func TestAccount(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seq int) time.Time { return start.Add(time.Duration(seq) * time.Second) }
	index := func(i int) *int { return &i }
	var events []record.Event
	for i, e := range []record.Event{
		created("other"),                             // 1: a miss of both
		created("a"),                                 // 2
		created("b"),                                 // 3: fires action 1, which holds it
		{Began: index(0)},                            // 4
		{Completed: index(0)},                        // 5
		read("x", wire.Before, 1),                    // 6: held by the pause
		read("y", wire.Before, 2),                    // 7: held until its process ends
		{Abandoned: index(6)},                        // 8
		{SessionEnd: &record.SessionEnd{Session: 2}}, // 9
		created("c"),                                 // 10: fires action 2
		{Began: index(1)},                            // 11
		read("z", wire.Before, 3),                    // 12
		{Completed: index(1)},                        // 13
		created("nearly"),                            // 14
		{End: true},                                  // 15
	} {
		e.Seq, e.Time = i+1, at(i+1)
		events = append(events, e)
	}
	p := &plan.Plan{Actions: []plan.Action{
		pauseReads(trigger(t, "a;b|d", "a", "b", "d"), "", false),
		resumeReads(trigger(t, "c", "c")),
		restart(trigger(t, "e;f", "e", "f")),
	}}
	got, err := Account(p, nil, events)
	if err != nil {
		t.Fatal(err)
	}
	waits := func(name string) string {
		return "onObjectCreation of pod/default/" + name + ", afterAPIServerRecv at apiserver-1"
	}
	miss := func(event int, name string) record.Miss {
		return record.Miss{Event: event, Text: "create of pod/default/" + name +
			" (after apiServerRecv at apiserver-1) is another object"}
	}
	want := &record.Account{
		Holds: []record.Hold{
			{Event: 3, Action: 0, From: at(3), To: at(5), End: record.HoldReleased},
			{Event: 6, Action: 0, Paused: true, From: at(6), To: at(8), End: record.HoldAbandoned},
			{Event: 7, Action: 0, Paused: true, From: at(7), To: at(9), End: record.HoldKilled},
			{Event: 10, Action: 1, From: at(10), To: at(13), End: record.HoldReleased},
		},
		Effects: []record.LastingEffect{{Action: 0, By: "db", From: at(4), To: at(11)}},
		Triggers: []record.Trigger{
			{Satisfied: at(3), Nodes: []record.TriggerNode{
				{Name: "a", Waits: waits("a"), State: record.TriggerSatisfied, By: 2, Missed: 1,
					Misses: []record.Miss{miss(1, "other")}},
				{Name: "b", Waits: waits("b"), State: record.TriggerSatisfied, By: 3},
				{Name: "d", Waits: waits("d"), State: record.TriggerDropped, Missed: 1,
					Misses: []record.Miss{miss(3, "b")}},
			}},
			{Enabled: at(5), Satisfied: at(10), Nodes: []record.TriggerNode{
				{Name: "c", Waits: waits("c"), State: record.TriggerSatisfied, By: 10},
			}},
			{Enabled: at(13), Nodes: []record.TriggerNode{
				{Name: "e", Waits: waits("e"), State: record.TriggerWaiting, Missed: 1,
					Misses: []record.Miss{miss(14, "nearly")}},
				{Name: "f", Waits: waits("f"), State: record.TriggerAsleep},
			}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := Account(p, nil, events[1:]); err == nil {
		t.Error("no error although an event is missing")
	}
}

func TestAccountOfRepeats(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{restart(trigger(t, "a", "a*2"))}}
	events := []record.Event{created("a"), created("a")}
	for i := range events {
		events[i].Seq = i + 1
	}
	got, err := Account(p, nil, events)
	if err != nil {
		t.Fatal(err)
	}
	want := record.TriggerNode{
		Name: "a", Waits: "onObjectCreation of pod/default/a, afterAPIServerRecv at apiserver-1, 2 times",
		State: record.TriggerSatisfied, By: 2, Missed: 1, Misses: []record.Miss{{Event: 1,
			Text: "create of pod/default/a (after apiServerRecv at apiserver-1) matched 1 of 2 times"}},
	}
	if diff := cmp.Diff(want, got.Triggers[0].Nodes[0]); diff != "" {
		t.Error(diff)
	}
}
