package page

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A cycle of nodes has a bar for each phase, with how far it was, until it ends.
func TestPageShowsPhasesOfCycles(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{{Type: plan.CycleNodes,
		Cycling: plan.Cycling{Cycle: map[string]any{"name": "roll"}}}}}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	run := &record.Run{}
	run.Meta.WorkloadStart = start
	for i, status := range []string{
		`{}`, `{"phase":"Pending"}`, `{"phase":"ScalingUp","progress":"0/2"}`,
		`{"phase":"ScalingUp","progress":"0/2","message":"waits"}`, `{"phase":"ScalingUp","progress":"1/2"}`,
		`{"phase":"Successful","progress":"2/2"}`,
	} {
		run.History = append(run.History, record.HistoryEntry{
			Time: start.Add(time.Duration(i) * time.Second), ResourceVersion: uint64(i + 1), Event: "updated",
			Type: "cyclenoderequest", Group: "nodes.trommel.dev", Namespace: "default", Name: "roll",
			Object: json.RawMessage(`{"status":` + status + `}`),
		})
	}
	page := newPage(run, p, nil).data
	type bar struct {
		Title    string
		From, To float64
	}
	var got []bar
	for _, item := range page.Items {
		if page.Lanes[item.Lane].Name == "cycles" {
			got = append(got, bar{item.Title, item.At, item.End})
		}
	}
	want := []bar{
		{"cycle roll is Pending", 1000, 2000}, {"cycle roll is ScalingUp 0/2", 2000, 4000},
		{"cycle roll is ScalingUp 1/2", 4000, 5000},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
