package facts

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/trommel-dev/trommel/internal/cluster"
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
