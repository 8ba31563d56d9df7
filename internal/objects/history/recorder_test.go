package history

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/record"
)

// The watch of sets was behind: it has shown the set's deletion after the pod that was created then.
func TestHistoryIsInOrder(t *testing.T) {
	entry := func(cluster string, version uint64, second int64) record.HistoryEntry {
		return record.HistoryEntry{Cluster: cluster, ResourceVersion: version, Time: time.Unix(second, 0)}
	}
	r := &Recorder{entries: []record.HistoryEntry{
		entry("", 10, 1), entry("west", 900, 2), entry("", 30, 5), entry("", 20, 7), entry("west", 901, 3),
		entry("", 40, 8),
	}}
	want := []record.HistoryEntry{
		entry("", 10, 1), entry("west", 900, 2), entry("", 20, 5), entry("", 30, 5), entry("west", 901, 3),
		entry("", 40, 8),
	}
	if diff := cmp.Diff(want, r.History()); diff != "" {
		t.Error(diff)
	}
}
