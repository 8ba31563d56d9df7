package facts

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// What becomes of the controllers' own pods, and of what makes them, is Trommel's doing.
func TestFollowerSkipsControllers(t *testing.T) {
	f := NewFollower()
	annotated := fmt.Sprintf(`{"annotations": {%q: "op"}}`, cluster.AnnotationController)
	for _, object := range []string{
		`{"kind": "Pod", "metadata": ` + annotated + `}`,
		`{"kind": "ReplicaSet", "spec": {"template": {"metadata": ` + annotated + `}}}`,
		`{"kind": "Pod", "metadata": {"name": "web"}}`,
	} {
		entry := record.HistoryEntry{Type: "any", Namespace: "default", Name: "web", Event: record.Created,
			Object: json.RawMessage(object)}
		if err := f.Add(entry); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.changes) != 1 || f.changes[0].Name() != "web" {
		t.Errorf("changes: %+v", f.changes)
	}
}

// Regression: Hierarchical Namespaces labels the namespace "default" as it starts. If this was recorded, and it was not
// in the runs without faults, the namespace was said to differ.
func TestStatesBeforeTheWorkload(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	entry := func(second int64, event, label string) record.HistoryEntry {
		return record.HistoryEntry{Time: at(second), ResourceVersion: uint64(second), Event: event, Type: "namespace",
			Name: "default", Object: fmt.Appendf(nil, `{"kind": "Namespace", "metadata": {"name": "default", `+
				`"labels": {"depth": %q}}}`, label)}
	}
	for _, tt := range []struct {
		name  string
		fired int64 // the plan's action
		want  string
	}{
		{"the controller starts", 9, "0"},
		{"an action before", 2, ""},
	} {
		f, err := Follow(&record.Run{
			Meta:    record.Meta{Steps: []record.Step{{Started: at(5)}}},
			Actions: []record.Action{{Fired: at(tt.fired)}},
			History: []record.HistoryEntry{
				entry(1, record.Existing, ""), entry(3, record.Updated, "0"), entry(7, record.Updated, "1"),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		o := f.Objects()["namespace//default"]
		labels, _ := metadata.Of(o.Before().End)["labels"].(map[string]any)
		if labels["depth"] != tt.want || !o.Existed() || o.Unchanged() {
			t.Errorf("%s: it was %v before", tt.name, labels)
		}
	}
}
