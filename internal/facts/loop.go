package facts

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// Loop is something that a controller does again and again when nothing disturbs it any more.
type Loop struct {
	Controller string `json:"controller"`
	// Object is what it writes, as kind/namespace/name, after the cluster if there are several; empty: it reconciles.
	Object string `json:"object,omitempty"`
	// Reconciler and Request are what it reconciles; empty: it writes.
	Reconciler string `json:"reconciler,omitempty"`
	Request    string `json:"request,omitempty"`
	// Times is how often it did that in the span, Failed how many of them failed, Error the last one's error.
	Times  int           `json:"times"`
	Span   time.Duration `json:"span"` // nanoseconds
	Failed int           `json:"failed,omitempty"`
	Error  string        `json:"error,omitempty"`
	Last   time.Time     `json:"last"`
}

// Same reports whether two loops do the same.
func (l Loop) Same(m Loop) bool {
	return l.Controller == m.Controller && l.Object == m.Object && l.Reconciler == m.Reconciler &&
		l.Request == m.Request
}

// A loop is judged only if it goes on for so long, so fast and until so shortly before the end. These are far from what
// controllers do that try again: their pauses grow with each attempt.
const (
	loopSpan       = 8 * time.Second
	loopWrites     = 2.0  // per second
	loopReconciles = 10.0 // per second
	loopEnd        = 2 * time.Second
	// The second half of a loop has at least this part of the first half's number. Where something is tried again after
	// pauses that double, it is next to nothing.
	loopSteady = 0.6
)

// Loops finds the loops in the time between calm and end. It returns nil if that is too short.
func Loops(events []record.Event, calm, end time.Time) []Loop {
	if calm.IsZero() || end.Sub(calm) < loopSpan {
		return nil
	}
	type key struct{ by, object, reconciler, request string }
	type sum struct {
		Loop
		firstHalf, secondHalf int
	}
	half := calm.Add(end.Sub(calm) / 2)
	sums := map[key]*sum{}
	for _, e := range events {
		o := e.Observation
		if o == nil || o.Phase != wire.After || o.Election || e.Time.Before(calm) || e.Time.After(end) {
			continue
		}
		var k key
		switch {
		case o.Point == wire.Reconcile:
			k = key{by: o.By, reconciler: cmp.Or(o.Reconciler, o.ReconcilerType), request: o.Request}
		case o.Point == wire.ControllerWrite && !isMessage(o):
			k = key{by: o.By, object: nameOf(o)}
		default:
			continue
		}
		s := sums[k]
		if s == nil {
			s = &sum{Loop: Loop{Controller: k.by, Object: k.object, Reconciler: k.reconciler, Request: k.request}}
			sums[k] = s
		}
		s.Times++
		s.Last = e.Time
		if o.Error != "" {
			s.Failed, s.Error = s.Failed+1, o.Error
		}
		if e.Time.Before(half) {
			s.firstHalf++
		} else {
			s.secondHalf++
		}
	}
	var all []Loop
	for k, s := range sums {
		least := loopWrites
		if k.object == "" {
			least = loopReconciles
		}
		s.Span = end.Sub(calm)
		if float64(s.Times) < least*s.Span.Seconds() || end.Sub(s.Last) > loopEnd ||
			float64(s.secondHalf) < loopSteady*float64(s.firstHalf) {
			continue
		}
		all = append(all, s.Loop)
	}
	slices.SortFunc(all, func(a, b Loop) int {
		return cmp.Or(strings.Compare(a.Controller, b.Controller), strings.Compare(a.Object, b.Object),
			strings.Compare(a.Reconciler, b.Reconciler), strings.Compare(a.Request, b.Request))
	})
	return all
}

// isMessage reports whether a write is a message for people, or a lock.
func isMessage(o *record.Observation) bool {
	kind := strings.ToLower(cmp.Or(o.Kind, strings.TrimSuffix(o.Resource, "s")))
	return kind == "event" || kind == "lease"
}

// nameOf names the object of a write. Names that were generated from one beginning count as one.
func nameOf(o *record.Observation) string {
	name := o.Name
	var object struct {
		Metadata struct {
			GenerateName string `json:"generateName"`
		} `json:"metadata"`
	}
	if json.Unmarshal(o.Object, &object) == nil && object.Metadata.GenerateName != "" {
		name = object.Metadata.GenerateName + "*"
	}
	return record.In(o.Cluster, strings.ToLower(cmp.Or(o.Kind, o.Resource))+"/"+o.Namespace+"/"+name)
}
