package machine

import (
	"testing"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A step is held until the schedule chooses it. An observation that is not ordered is released at once.
func TestScheduleHolds(t *testing.T) {
	write := func(resource string) *record.Observation {
		return &record.Observation{By: "op", Point: wire.ControllerWrite, Phase: wire.Before, Resource: resource,
			Namespace: "default", Name: "a"}
	}
	read := func(op wire.Operation, live bool) *record.Observation {
		return &record.Observation{By: "op", Point: wire.ControllerRead, Phase: wire.Before, Op: op, Live: live,
			Resource: "pods"}
	}
	tests := []struct {
		name string
		o    *record.Observation
		held bool
	}{
		{"request", write("pods"), true},
		{"answer", &record.Observation{By: "op", Point: wire.ControllerWrite, Phase: wire.After, Resource: "pods"},
			true},
		{"delivery", &record.Observation{By: "op", Point: wire.ControllerRecv, Phase: wire.Before, Kind: "pod"}, true},
		{"delivery that has come", &record.Observation{By: "op", Point: wire.ControllerRecv, Phase: wire.After,
			Kind: "pod"}, false},
		{"an API server's event", &record.Observation{By: "apiserver-1", Point: wire.APIServerRecv, Phase: wire.Before,
			Kind: "pod"}, true},
		{"an API server's event that has come", &record.Observation{By: "apiserver-1", Point: wire.APIServerRecv,
			Phase: wire.After, Kind: "pod"}, false},
		{"an API server's lease", &record.Observation{By: "apiserver-1", Point: wire.APIServerRecv, Phase: wire.Before,
			Kind: "lease"}, false},
		{"live read", read(wire.Get, true), true},
		{"live list", read(wire.List, true), true},
		{"live watch", read(wire.Watch, true), false},
		{"read of the cache", read(wire.Get, false), false},
		{"lease", write("leases"), false},
		{"event", write("events"), false},
		{"another process", &record.Observation{By: "apiserver-1", Point: wire.ControllerWrite, Phase: wire.Before},
			false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := New(&plan.Plan{Schedule: &plan.Schedule{}}, []record.Controller{{Name: "op", Hooks: true}})
			if err != nil {
				t.Fatal(err)
			}
			if effects := m.Step(record.Event{Seq: 1, Observation: tt.o}); !releases(effects, 1) {
				t.Error("it is held before the run is ordered")
			}
			m.Step(record.Event{Seq: 2, Ordered: true})
			effects := m.Step(record.Event{Seq: 3, Observation: tt.o})
			if got := !releases(effects, 3); got != tt.held {
				t.Fatalf("held: %v, want %v", got, tt.held)
			}
			if !tt.held {
				return
			}
			if all := m.Held().Ordered(); len(all) != 1 || all[0].Seq != 3 {
				t.Errorf("waits: %v", all)
			}
			if effects := m.Step(record.Event{Seq: 4, Choice: &record.Choice{Event: 1}}); len(effects) > 0 {
				t.Errorf("the choice of another step: %v", effects)
			}
			if effects := m.Step(record.Event{Seq: 5, Choice: &record.Choice{Event: 3}}); !releases(effects, 3) {
				t.Errorf("chosen: %v", effects)
			}
			m.Step(record.Event{Seq: 6, Observation: tt.o})
			if effects := m.Step(record.Event{Seq: 7, End: true}); !releases(effects, 6) {
				t.Errorf("at the end of the plan: %v", effects)
			}
		})
	}
}

func releases(effects []Effect, seq int) bool {
	for _, e := range effects {
		if r, ok := e.(Release); ok && r.Seq == seq {
			return true
		}
	}
	return false
}
