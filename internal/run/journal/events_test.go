package journal

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// recorded is a record that keeps only numbers.
type recorded struct{ events, actions int }

func (r *recorded) Event(record.Event) error   { r.events++; return nil }
func (r *recorded) Action(record.Action) error { r.actions++; return nil }

func TestEvents(t *testing.T) {
	to := new(recorded)
	e := &Events{Record: to, FindTypes: true}
	if !e.LastAction().IsZero() {
		t.Error("an action has completed before there was one")
	}
	start := time.Unix(1000, 0)
	for _, o := range []*record.Observation{
		nil,
		{Point: wire.APIServerRecv, Phase: wire.After, Kind: "pod"},
		{Point: wire.ControllerWrite, Phase: wire.After, Kind: "secret", Resource: "secrets", Namespace: "a",
			Name: "b"},
		{Point: wire.Reconcile, Phase: wire.Before},
		{Point: wire.ControllerRead, Phase: wire.After, Kind: "configmap", Resource: "configmaps"},
	} {
		if err := e.Event(record.Event{Observation: o}); err != nil {
			t.Fatal(err)
		}
	}
	for _, done := range []int{5, 9, 7} { // in order of completion, but their times are those of another goroutine
		if err := e.Action(record.Action{Done: start.Add(time.Duration(done) * time.Second)}); err != nil {
			t.Fatal(err)
		}
	}
	if to.events != 5 || to.actions != 3 {
		t.Errorf("the record has %+v", to)
	}
	if got := e.OfControllers(); len(got) != 2 || got[0].Observation.Kind != "secret" {
		t.Errorf("kept %+v", got)
	}
	if got := e.LastAction(); !got.Equal(start.Add(9*time.Second)) || len(e.CarriedOut()) != 3 {
		t.Errorf("last action at %s of %d", got, len(e.CarriedOut()))
	}
	types := e.TypesSeen()
	if !slices.ContainsFunc(types, func(k plan.ResourceKey) bool { return k.Type == "secret" }) {
		t.Errorf("types %v", types)
	}
}

// Without FindTypes, it counts what the controllers have really written.
func TestTypesOfWrites(t *testing.T) {
	e := &Events{Record: new(recorded)}
	for _, o := range []record.Observation{
		{Point: wire.ControllerWrite, Phase: wire.After, Resource: "persistentvolumeclaims"},
		{Point: wire.ControllerWrite, Phase: wire.Before, Resource: "secrets"},
		{Point: wire.ControllerWrite, Phase: wire.After, Resource: "pods", Error: "not found"},
		{Point: wire.ControllerRead, Phase: wire.After, Kind: "configmap"},
		// Operators that keep the certificates of their webhooks do this at each start.
		updateFrom(1, wire.Before, "7"), updateFrom(2, wire.Before, "8"),
		updateFrom(1, wire.After, "7"),
	} {
		if err := e.Event(record.Event{Observation: &o}); err != nil {
			t.Fatal(err)
		}
	}
	if got := e.TypesSeen(); len(got) != 1 || got[0].Type != "persistentvolumeclaims" {
		t.Errorf("types %v", got)
	}
	changed := updateFrom(2, wire.After, "9")
	if err := e.Event(record.Event{Observation: &changed}); err != nil {
		t.Fatal(err)
	}
	if got := e.TypesSeen(); len(got) != 2 || len(e.updates) != 0 {
		t.Errorf("types %v, updates under way %v", got, e.updates)
	}
}

// updateFrom is an update of a webhook configuration: before, and after it.
func updateFrom(call uint64, phase wire.Phase, version string) record.Observation {
	return record.Observation{
		Call: call, Point: wire.ControllerWrite, Phase: phase, Op: wire.Update, Kind: "validatingwebhookconfiguration",
		Object: fmt.Appendf(nil, `{"metadata":{"name":"a","resourceVersion":%q}}`, version),
	}
}

// If a controller is killed before the answer to a write, the record has the whole object that the write sent.
func TestUnansweredWritesAreWhole(t *testing.T) {
	write := func(session, call uint64, phase wire.Phase) record.Event {
		return record.Event{Observation: &record.Observation{
			Session: session, Call: call, Point: wire.ControllerWrite, Phase: phase, Op: wire.Update, Aside: true,
			Object: []byte(`{"metadata":{"name":"a","resourceVersion":"7"},"data":{}}`),
		}}
	}
	e := &Events{Record: new(recorded), Brief: true}
	for _, event := range []record.Event{
		write(1, 4, wire.Before), write(1, 3, wire.Before), write(1, 2, wire.Before), write(2, 3, wire.Before),
		write(1, 3, wire.After), {SessionEnd: &record.SessionEnd{By: "op", Session: 1}},
		write(2, 3, wire.After), {SessionEnd: &record.SessionEnd{By: "other", Session: 2}},
	} {
		if err := e.Event(event); err != nil {
			t.Fatal(err)
		}
	}
	var calls []uint64
	for _, event := range e.OfControllers() {
		if event.SessionEnd == nil {
			continue
		}
		for _, o := range event.SessionEnd.Unanswered {
			calls = append(calls, o.Call)
			if got, want := string(o.Object), string(write(1, 0, wire.Before).Observation.Object); got != want {
				t.Errorf("call %d: %s, want %s", o.Call, got, want)
			}
		}
	}
	if want := []uint64{2, 4}; !slices.Equal(calls, want) || len(e.shortened) != 0 {
		t.Errorf("unanswered calls %d, want %d; %d are left", calls, want, len(e.shortened))
	}
}

// Judges need to know from which state a write began, and not what it wrote: the answer follows.
func TestMetadataOnly(t *testing.T) {
	o := record.Observation{Point: wire.ControllerWrite, Phase: wire.Before, Op: wire.Update, Aside: true,
		Object: []byte(`{"kind":"Secret","metadata":{"name":"a","resourceVersion":"7","labels":{}},"data":{}}`)}
	e := &Events{Record: new(recorded), Brief: true}
	for asked, want := range map[bool]string{
		false: `{"kind":"Secret","metadata":{"name":"a","resourceVersion":"7"}}`, true: string(o.Object),
	} {
		seen := o
		seen.Aside = !asked
		if err := e.Event(record.Event{Observation: &seen}); err != nil {
			t.Fatal(err)
		}
		if got := string(e.kept[len(e.kept)-1].Observation.Object); got != want || len(seen.Object) != len(o.Object) {
			t.Errorf("asked %t: recorded %s, want %s; the coordinator has %s", asked, got, want, seen.Object)
		}
	}
}
