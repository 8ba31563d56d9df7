package propose

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// ended are the changes of a run that ends with these objects, each made by the controller under test.
func ended(t *testing.T, objects map[facts.Key]string) (changes []facts.Change) {
	t.Helper()
	for key, text := range objects {
		var object map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		changes = append(changes, facts.Change{Key: key, Event: record.Created, By: "db", Cur: object})
	}
	return changes
}

func TestDifferences(t *testing.T) {
	const sample = "database.example.trommel.dev/default/db"
	for _, tt := range []struct {
		name           string
		changed, fresh map[facts.Key]string
		want           []string
	}{
		{
			name: "what only keeps history",
			changed: map[facts.Key]string{
				"replicaset.apps/default/web-1":         `{"kind": "ReplicaSet", "spec": {"replicas": 0}}`,
				"replicaset.apps/default/web-2":         `{"kind": "ReplicaSet", "spec": {"replicas": 3}}`,
				"controllerrevision.apps/default/web-1": `{"revision": 1}`,
				"controllerrevision.apps/default/web-2": `{"revision": 2}`,
				sample: `{"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "ready": 0, "conditions":
					[{"type": "Ready", "status": "True", "reason": "Scaled"}, {"type": "Failed", "status": "False"}]}}`,
			},
			fresh: map[facts.Key]string{
				"replicaset.apps/default/web-2":         `{"kind": "ReplicaSet", "spec": {"replicas": 3}}`,
				"controllerrevision.apps/default/web-2": `{"revision": 1}`,
				sample: `{"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "conditions":
					[{"type": "Ready", "status": "True", "reason": "Created"}]}}`,
			},
		},
		{
			name: "generated names count what is left",
			changed: map[facts.Key]string{
				"pod/default/job-#2": `{"spec": {"a": 1}}`, "pod/default/job-#10": `{"spec": {"a": 2}}`,
			},
			fresh: map[facts.Key]string{
				"pod/default/job-#1": `{"spec": {"a": 1}}`, "pod/default/job-#2": `{"spec": {"a": 2}}`,
			},
		},
		{
			name: "leftovers and stale fields",
			changed: map[facts.Key]string{
				"service/default/db-old": `{"spec": {}}`, "secret/default/db": `{"data": {"a": "1"}}`,
				sample: `{"status": {"conditions": [{"type": "Failed", "status": "True"}]}}`,
			},
			fresh: map[facts.Key]string{"secret/default/db": `{"data": {"a": "2"}}`, sample: `{"status": {}}`},
			want: []string{
				"database.example.trommel.dev/default/db: status.conditions.Failed is true; without faults: absent",
				`secret/default/db: data.a is "1"; without faults: "2"`,
				"service/default/db-old: exists at the end; without faults: never created",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			masks := []baseline.Mask{
				{Type: "*", Path: "metadata.generation"}, {Type: "*", Path: "**.observedGeneration"},
			}
			var got []string
			for _, d := range Differences(sample, masks, ended(t, tt.changed), ended(t, tt.fresh)) {
				got = append(got, d.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
