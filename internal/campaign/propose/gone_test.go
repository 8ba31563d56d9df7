package propose

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Of many objects that go, claims and StatefulSets are waited for, however early they go.
func TestLeftovers(t *testing.T) {
	const sample = "database/default/db"
	lines := []string{"created " + sample + " {}"}
	keys := []string{"persistentvolumeclaim/default/data-db-0", "statefulset.apps/default/db", "secret/default/db"}
	for i := range 5 {
		keys = append(keys, fmt.Sprintf("pod/default/db-%d", i))
	}
	keys = append(keys, "pod/default/x-#1", "service/default/kept", "service/default/back")
	for _, key := range keys {
		lines = append(lines, "created "+key+" {}")
	}
	lines = append(lines, "deleted secret/default/before", "deleted "+sample)
	for _, key := range keys {
		if key != "service/default/kept" {
			lines = append(lines, "deleted "+key)
		}
	}
	lines = append(lines, "created service/default/back {}")
	var got []string
	for _, s := range leftovers(history(t, lines...), sample) {
		got = append(got, describe(s))
	}
	if diff := cmp.Diff([]string{
		"persistentvolumeclaim/default/data-db-0 is gone", "statefulset.apps/default/db is gone",
		"pod/default/db-1 is gone", "pod/default/db-2 is gone", "pod/default/db-3 is gone", "pod/default/db-4 is gone",
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
