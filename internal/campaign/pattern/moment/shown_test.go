package moment

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A trigger must wait for what the coordinator will see; two places once decided this differently.
func TestShownAtAWrite(t *testing.T) {
	before := map[string]any{"metadata": map[string]any{"name": "a", "finalizers": []any{"x"}}}
	after := map[string]any{"metadata": map[string]any{"name": "a"}}
	for _, tt := range []struct {
		name   string
		change facts.Change
		timing plan.Timing
		kind   plan.EventKind
		prev   map[string]any
		cur    map[string]any
	}{
		{"the last finalizer, at the write",
			facts.Change{Event: record.Deleted, Op: wire.Update, Prev: before},
			plan.AfterControllerWrite, plan.Updated, before, after},
		{"the last finalizer, elsewhere",
			facts.Change{Event: record.Deleted, Op: wire.Update, Prev: before},
			plan.AfterAPIServerRecv, plan.Deleted, nil, before},
		{"a deletion that marks, at the write",
			facts.Change{Event: record.Updated, Op: wire.Delete, Prev: before, Cur: after},
			plan.BeforeControllerWrite, plan.Deleted, nil, before},
		{"an eviction, at the write",
			facts.Change{Event: record.Deleted, Op: wire.Create, Subresource: "eviction", Prev: before},
			plan.BeforeControllerWrite, plan.Deleted, nil, before},
		{"an apply that creates, at the write",
			facts.Change{Event: record.Created, Op: wire.Apply, Cur: after},
			plan.BeforeControllerWrite, plan.Created, nil, after},
		{"before an update that creates",
			facts.Change{Event: record.Created, Op: wire.Update, Cur: after},
			plan.BeforeControllerWrite, plan.Updated, nil, after},
	} {
		kind, prev, cur := shown(&tt.change, tt.timing)
		if kind != tt.kind || !cmp.Equal(prev, tt.prev) || !cmp.Equal(cur, tt.cur) {
			t.Errorf("%s: %s from %v to %v, want %s from %v to %v", tt.name, kind, prev, cur, tt.kind, tt.prev, tt.cur)
		}
	}
}
