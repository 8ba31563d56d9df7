package coordinator

import (
	"testing"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

func TestNeedsForesight(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    wire.Observation
		want bool
	}{
		{"update", wire.Observation{Operation: wire.Update, Name: "a"}, true},
		{"update of status", wire.Observation{Operation: wire.Update, Subresource: "status", Name: "a"}, true},
		{"apply", wire.Observation{Operation: wire.Apply, Name: "a"}, true},
		{"delete", wire.Observation{Operation: wire.Delete, Name: "a"}, true},
		{"eviction", wire.Observation{Operation: wire.Create, Subresource: "eviction", Name: "a"}, true},
		{"deletion of a collection", wire.Observation{Operation: wire.DeleteCollection}, true},
		{"create", wire.Observation{Operation: wire.Create, Name: "a"}, false},
		{"token", wire.Observation{Operation: wire.Create, Subresource: "token", Name: "a"}, false},
		{"update of what has no name", wire.Observation{Operation: wire.Update}, false},
		{"after an update", wire.Observation{Operation: wire.Update, Name: "a", Phase: wire.After}, false},
		{"before a read", wire.Observation{Operation: wire.Get, Name: "a", Point: wire.ControllerRead}, false},
		{"before an update is received",
			wire.Observation{Operation: wire.Update, Name: "a", Point: wire.ControllerRecv}, false},
	} {
		if tt.o.Point == "" {
			tt.o.Point = wire.ControllerWrite
		}
		if tt.o.Phase == "" {
			tt.o.Phase = wire.Before
		}
		if got := needsForesight(&tt.o); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestNeedsState(t *testing.T) {
	const pod, scale, status = `{"kind":"Pod"}`, `{"kind":"Scale"}`, `{"kind":"Status"}`
	for _, tt := range []struct {
		name string
		o    wire.Observation
		text string // the answer
		want bool
	}{
		{"update", wire.Observation{Operation: wire.Update}, pod, false},
		{"update of scale", wire.Observation{Operation: wire.Update, Subresource: "scale"}, scale, true},
		{"binding", wire.Observation{Operation: wire.Create, Subresource: "binding"}, status, true},
		{"an answer that is not read", wire.Observation{Operation: wire.Patch}, ``, true},
		{"an answer without a kind", wire.Observation{Operation: wire.Patch}, `{}`, false},
		{"the answer of an untyped client", wire.Observation{Operation: wire.Patch, Kind: "-"}, scale, false},
		{"delete", wire.Observation{Operation: wire.Delete}, status, false},
		{"token", wire.Observation{Operation: wire.Create, Subresource: "token"}, `{"kind":"TokenRequest"}`, false},
		{"a write that failed", wire.Observation{Operation: wire.Update, Error: "conflict", Code: 409}, status, false},
		{"a write whose answer the plan takes away",
			wire.Observation{Operation: wire.Update, Error: "lost", Failed: wire.Lost, Code: 200}, status, true},
		{"before an update", wire.Observation{Operation: wire.Update, Phase: wire.Before}, scale, false},
		{"a read", wire.Observation{Operation: wire.Update, Point: wire.ControllerRead}, scale, false},
		{"what has no name", wire.Observation{Operation: wire.Update, Name: "-"}, scale, false},
	} {
		o := tt.o
		o.Object = []byte(tt.text)
		for field, preset := range map[*string]string{
			(*string)(&o.Point): string(wire.ControllerWrite), (*string)(&o.Phase): string(wire.After), &o.Name: "a",
			&o.Kind: "pod",
		} {
			switch *field {
			case "":
				*field = preset
			case "-":
				*field = ""
			}
		}
		if got := needsState(&o); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
