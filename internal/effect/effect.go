// Package effect says what observations mean for objects. Whoever judges observations and whoever makes plans for them
// must agree on it.
package effect

import (
	"bytes"
	"net/http"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Of returns what an observation does to the object that it names, or shows of it. The second result is false if it
// does neither: a call of a subresource that does not change the object, or a watch.
//
// The table in docs/plan-format.md ("What counts as what") says the same for users; the conformance test in package run
// holds both against real controllers.
func Of(o *record.Observation) (plan.EventKind, bool) {
	switch o.Point {
	case wire.ControllerRead:
		return ofRead(o)
	case wire.ControllerWrite:
		return ofWrite(o)
	}
	switch o.Op {
	case wire.Create:
		return plan.Created, true
	case wire.Update:
		return plan.Updated, true
	case wire.Delete:
		return plan.Deleted, true
	}
	return "", false
}

func ofRead(o *record.Observation) (plan.EventKind, bool) {
	if o.Op == wire.Watch || o.Subresource != "" && o.Subresource != "status" {
		return "", false // a Scale is another object, and a log is not an object
	}
	if o.Phase == wire.Before {
		return plan.Looking, true
	}
	return plan.Read, true
}

func ofWrite(o *record.Observation) (plan.EventKind, bool) {
	switch o.Op {
	case wire.Create:
		switch o.Subresource {
		case "":
			return plan.Created, true
		case "eviction":
			return plan.Deleted, true
		case "binding":
			return plan.Updated, true
		}
		return "", false // a token, exec, a proxied request
	case wire.Delete, wire.DeleteCollection:
		return plan.Deleted, o.Subresource == ""
	case wire.Update, wire.Patch, wire.Apply:
		if o.Subresource == "proxy" {
			return "", false
		}
		created := o.Phase == wire.After && (o.Code == http.StatusCreated || Absent(o.OldObject)) ||
			o.Op == wire.Apply && Absent(o.OldObject)
		if created && o.Subresource == "" {
			return plan.Created, true
		}
		return plan.Updated, true
	}
	return "", false
}

// Nothing is the OldObject of a write whose object is known not to exist.
var Nothing = []byte("null")

// Absent reports whether a state says that the object does not exist. An empty state is unknown.
func Absent(state []byte) bool { return bytes.Equal(state, Nothing) }

// FoundNothing reports whether a read returned no object because it does not exist.
func FoundNothing(o *record.Observation) bool {
	return o.Code == http.StatusNotFound || o.Error == "" && o.Op == wire.Get && len(o.Object) == 0
}
