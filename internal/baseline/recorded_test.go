package baseline

import (
	"slices"
	"testing"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// A controller that only deletes or only lists objects of a type never shows their kind.
func TestTypes(t *testing.T) {
	var r record.Run
	for _, o := range []record.Observation{
		{Point: wire.ControllerRecv, Kind: "database", Group: "example.com"},
		{Point: wire.ControllerWrite, Op: wire.Delete, Resource: "databases", Group: "example.com", Name: "db"},
		{Point: wire.ControllerWrite, Op: wire.Delete, Resource: "persistentvolumeclaims", Name: "data-0"},
		{Point: wire.ControllerWrite, Op: wire.DeleteCollection, Resource: "networkpolicies",
			Group: "networking.k8s.io"},
		{Point: wire.ControllerRead, Op: wire.List, Resource: "nodes", Live: true},
		{Point: wire.ControllerWrite, Op: wire.Patch, Resource: "events", Name: "x"},
		{Point: wire.ControllerWrite, Op: wire.Delete, Resource: "leases", Group: "coordination.k8s.io", Name: "x",
			Election: true},
		{Point: wire.Reconcile},
	} {
		r.Events = append(r.Events, record.Event{Observation: &o})
	}
	var got []string
	for _, key := range Types(&r) {
		got = append(got, key.String())
	}
	want := []string{"database.example.com/*/*", "persistentvolumeclaims/*/*", "networkpolicies.networking.k8s.io/*/*",
		"nodes/*/*"}
	if !slices.Equal(got, want) {
		t.Errorf("types %q, want %q", got, want)
	}
}
