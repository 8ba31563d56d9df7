package effect

import (
	"testing"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// The table in docs/plan-format.md ("What counts as what"), and what is received.
func TestOf(t *testing.T) {
	at := func(point wire.Point, phase wire.Phase, op wire.Operation, subresource string) record.Observation {
		return record.Observation{Point: point, Phase: phase, Op: op, Subresource: subresource}
	}
	write := func(op wire.Operation, subresource string) record.Observation {
		return at(wire.ControllerWrite, wire.After, op, subresource)
	}
	answered := func(o record.Observation, code int) record.Observation { o.Code = code; return o }
	toNothing := func(o record.Observation, phase wire.Phase) record.Observation {
		o.Phase, o.OldObject = phase, Nothing
		return o
	}
	for _, tt := range []struct {
		name string
		o    record.Observation
		want plan.EventKind // empty: nothing
	}{
		{"received creation", at(wire.APIServerRecv, wire.Before, wire.Create, ""), plan.Created},
		{"received update", at(wire.ControllerRecv, wire.After, wire.Update, ""), plan.Updated},
		{"received deletion", at(wire.ControllerRecv, wire.After, wire.Delete, ""), plan.Deleted},
		{"create", write(wire.Create, ""), plan.Created},
		{"update", write(wire.Update, ""), plan.Updated},
		{"patch of a subresource", write(wire.Patch, "status"), plan.Updated},
		{"update of scale", write(wire.Update, "scale"), plan.Updated},
		{"apply", write(wire.Apply, ""), plan.Updated},
		{"apply that is answered with Created", answered(write(wire.Apply, ""), 201), plan.Created},
		{"apply, where nothing was", toNothing(write(wire.Apply, ""), wire.After), plan.Created},
		{"before an apply, where nothing is", toNothing(write(wire.Apply, ""), wire.Before), plan.Created},
		{"before an apply, where something is", at(wire.ControllerWrite, wire.Before, wire.Apply, ""), plan.Updated},
		{"before an update, where nothing is", toNothing(write(wire.Update, ""), wire.Before), plan.Updated},
		{"update, where nothing was", toNothing(write(wire.Update, ""), wire.After), plan.Created},
		{"apply of a subresource, where nothing was", toNothing(write(wire.Apply, "status"), wire.After), plan.Updated},
		{"delete", write(wire.Delete, ""), plan.Deleted},
		{"deletecollection", write(wire.DeleteCollection, ""), plan.Deleted},
		{"eviction", write(wire.Create, "eviction"), plan.Deleted},
		{"binding", write(wire.Create, "binding"), plan.Updated},
		{"token", write(wire.Create, "token"), ""},
		{"proxied request", write(wire.Update, "proxy"), ""},
		{"proxied deletion", write(wire.Delete, "proxy"), ""},
		{"get", at(wire.ControllerRead, wire.After, wire.Get, ""), plan.Read},
		{"get of status", at(wire.ControllerRead, wire.After, wire.Get, "status"), plan.Read},
		{"before a list", at(wire.ControllerRead, wire.Before, wire.List, ""), plan.Looking},
		{"get of scale", at(wire.ControllerRead, wire.After, wire.Get, "scale"), ""},
		{"received something else", at(wire.ControllerRecv, wire.After, wire.Watch, ""), ""},
		{"watch of the controller's own", at(wire.ControllerWrite, wire.After, wire.Watch, ""), ""},
		{"watch", at(wire.ControllerRead, wire.After, wire.Watch, ""), ""},
	} {
		kind, ok := Of(&tt.o)
		if ok != (tt.want != "") || ok && kind != tt.want {
			t.Errorf("%s: %q, %t; want %q", tt.name, kind, ok, tt.want)
		}
	}
}

func TestFoundNothing(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    record.Observation
		want bool
	}{
		{"answered with Not Found", record.Observation{Op: wire.Get, Error: "not found", Code: 404}, true},
		{"not in the cache", record.Observation{Op: wire.Get}, true},
		{"found", record.Observation{Op: wire.Get, Object: []byte("{}"), Code: 200}, false},
		{"failed in another way", record.Observation{Op: wire.Get, Error: "connection refused"}, false},
		{"list", record.Observation{Op: wire.List}, false},
	} {
		if got := FoundNothing(&tt.o); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
