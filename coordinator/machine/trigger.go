package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/expr"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
)

// awaited is the trigger of the action that comes next.
type awaited struct {
	*expr.Progress
	action  int
	watches []watch // by graph node
	counts  []int   // matches since enabled, by graph node
	misses  []miss
	about   plan.ResourceKey // of the last observation that satisfied a part of it
	witness *witness
}

// watch is what one occurrence of a name in a trigger waits for.
type watch struct {
	definition *plan.Definition
	matcher    *plan.Matcher // nil for triggers that are not about an object
	point      wire.Point
	phase      wire.Phase
}

// matches reports whether an observation matches a node of the awaited trigger, and keeps the nearest miss.
func (t *awaited) matches(node int, l *look) bool {
	o := l.Observation
	w := t.watches[node]
	if o.Point != w.point || o.Phase != w.phase || o.By != w.definition.Observe.ObserveBy {
		return false
	}
	if r := w.definition.Observe.Reconciler; r != "" && !reconcilerMatches(r, o) {
		t.missed(node, miss{rank: missType,
			text: fmt.Sprintf("%s came from reconciler %q (%s), not %q", Describe(o), o.Reconciler, o.ReconcilerType,
				r)})
		return false
	}
	var ok bool
	var why miss
	switch {
	case w.point == wire.AnnotatedCall:
		ok = o.CallName == w.definition.Condition.Call
	case w.point == wire.Reconcile:
		ok = requestMatches(w.definition.Condition.ResourceKey, o)
		if !ok {
			why = miss{rank: missType, text: Describe(o) + " is another object"}
		}
	default:
		ok, why = w.judgeObject(l)
	}
	if repeat := w.definition.Condition.Repeat; ok && t.counts[node]+1 < repeat {
		why = miss{rank: missCount, text: fmt.Sprintf("%s matched %d of %d times", Describe(o), t.counts[node]+1,
			repeat)}
	}
	t.missed(node, why)
	return ok
}

// missed keeps the nearest miss; of two equally near ones, the later.
func (t *awaited) missed(node int, this miss) {
	if t.witness != nil && this.rank != missNone {
		t.witness.missed(t.action, node, this)
	}
	nearest := &t.misses[node]
	if this.rank == missNone || this.rank < nearest.rank {
		return
	}
	if this.rank > nearest.rank {
		this.count = 1
		*nearest = this
		return
	}
	this.count = nearest.count + 1
	if !this.nearer(*nearest) {
		this.distance, this.text = nearest.distance, nearest.text
	}
	*nearest = this
}

// waits describes what the trigger waits for now.
func (t *awaited) waits() string {
	var all []string
	for _, n := range t.Enabled() {
		if d := describeDefinition(t.watches[n].definition); !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	return strings.Join(all, "; or: ")
}
