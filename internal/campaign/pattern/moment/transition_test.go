package moment

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Before a write arrives, it has no defaults of the API server, and values as the controller writes them.
func TestTransitionsBeforeAWrite(t *testing.T) {
	was := object{"spec": object{}}
	is := object{"spec": object{
		"size": 2.0, "cpu": "1", "policy": "Delete", "ports": []any{object{"port": 1.0, "protocol": "TCP"}},
	}}
	sent := object{"spec": object{"size": 2.0, "cpu": "1000m", "ports": []any{object{"port": 1.0}}}}
	change := facts.Change{Key: "thing.x/ns/a", Event: record.Updated, By: "c", Prev: was, Cur: is, Sent: sent}
	stored := object{"spec": object{"cpu": "1", "policy": "Delete"}}
	unknown := change
	unknown.Sent = nil
	h := NewHistory(&baseline.Baseline{})
	for _, tt := range []struct {
		name   string
		change facts.Change
		timing plan.Timing
		want   object
	}{
		{"before", change, plan.BeforeControllerWrite, object{"spec": object{"size": 2.0}}},
		{"after", change, plan.AfterControllerWrite, stored},
		{"what was sent is unknown", unknown, plan.BeforeControllerWrite, stored},
	} {
		got := h.transitions(&tt.change, tt.timing)
		if len(got) != 1 {
			t.Errorf("%s: %v", tt.name, got)
			continue
		}
		if diff := cmp.Diff(tt.want, got[0].after); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}
