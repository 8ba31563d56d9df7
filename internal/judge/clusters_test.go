package judge

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/judge/invariant"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Objects of the same name in two clusters are two objects: invariants see those of their own cluster in objects, and
// all in clusters.
func TestInvariantsOfSeveralClusters(t *testing.T) {
	key := plan.ResourceKey{Type: "configmap", Namespace: "default", Name: "*"}
	invariants, err := invariant.Compile([]plan.Invariant{
		{Name: "west-keeps", Cluster: "west", On: &key, Never: `event == "deleted"`},
		{Name: "east-keeps", Cluster: "east", On: &key, Never: `event == "deleted"`},
		{Name: "copied", Cluster: "east", Eventually: `objects.all(o, clusters.west.exists(c,
			c.metadata.name == o.metadata.name))`},
		{Name: "two-in-west", Cluster: "west", Eventually: "objects.size() == 2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var history []record.HistoryEntry
	add := func(cluster, event, name string, version uint64) {
		history = append(history, record.HistoryEntry{
			Time: start.Add(time.Duration(len(history)) * time.Second), Cluster: cluster, Event: event,
			ResourceVersion: version, Type: "configmap", Namespace: "default", Name: name,
			Object: json.RawMessage(fmt.Sprintf(`{"kind":"ConfigMap","metadata":{"name":%q}}`, name)),
		})
	}
	add("east", record.Created, "a", 10)
	add("west", record.Created, "a", 1000000000010)
	add("east", record.Created, "b", 11)
	add("west", record.Deleted, "a", 1000000000011)
	var titles []string
	for _, f := range slices.Concat(invariants.Check(history),
		invariants.Eventually(history, start.Add(time.Second*2), start.Add(time.Minute))) {
		titles = append(titles, f.Title)
	}
	want := []string{
		"invariant west-keeps: violated when west: configmap/default/a was deleted",
		"invariant copied: it did not become true within 30s",
		"invariant two-in-west: it did not become true within 30s",
	}
	if diff := cmp.Diff(want, titles); diff != "" {
		t.Error(diff)
	}
	parts := Evidence{History: history}.byCluster()
	if len(parts) != 2 || len(parts[0].History) != 2 || parts[0].cluster != "east" || len(parts[1].History) != 2 {
		t.Errorf("%d parts", len(parts))
	}
}
