package judge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/judge/invariant"
	"github.com/trommel-dev/trommel/record"
)

// FuzzHistory runs all judges over histories that lack their beginning, their end, or what belongs to an object, and
// that have unknown types and values of wrong types. No judge panics.
//
// Each change takes three bytes: the event and who makes it, the object, and its content.
func FuzzHistory(f *testing.F) {
	f.Add([]byte{5, 0, 2, 1, 0, 3}, false)                   // the first change is an update, of a finalizer
	f.Add([]byte{4, 0, 4, 5, 1, 1, 2, 0, 3, 6, 1, 3}, true)  // what belongs to a deleted object is deleted
	f.Add([]byte{3, 3, 5, 7, 3, 6, 2, 3, 7, 0, 4, 8}, true)  // an unknown type, with fields of wrong types
	f.Add([]byte{6, 2, 0, 6, 2, 0, 4, 2, 0, 4, 2, 0}, false) // deleted twice, created twice
	f.Add([]byte("200710011"), true)                         // created though it existed
	f.Fuzz(func(t *testing.T, data []byte, learned bool) {
		if len(data) > 90 {
			t.Skip("longer histories bring nothing new")
		}
		r := tale(t, changesOf(data)...)
		e := evidence(r)
		e.Invariants = &invariant.Set{}
		if learned {
			ref, err := baseline.Learn("w", []*record.Run{r, r})
			if err != nil {
				t.Skip(err)
			}
			e.Baseline, e.History, e.Events = ref, e.History[len(e.History)/2:], e.Events[len(e.Events)/2:]
		}
		for _, finding := range Hear(t.Context(), e, Judges()) {
			if strings.Contains(finding.Title, "panic") {
				t.Errorf("%s\n%s", finding.Title, finding.Detail)
			}
		}
	})
}

// changesOf returns lines for tale.
func changesOf(data []byte) (lines []string) {
	events := []string{record.Created, record.Updated, record.Deleted, record.Existing}
	objects := []string{"set/default/web", "pod/default/a", "pod/default/b", "thing.example.org/default/t", "node//n"}
	contents := []string{
		`{}`,
		`{"metadata": {"uid": "u", "generation": 1}, "spec": {"replicas": 1}, ` +
			`"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`,
		`{"metadata": {"uid": "u", "finalizers": ["example.org/f"]}}`,
		`{"metadata": {"uid": "u", "finalizers": ["example.org/f"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}`,
		`{"metadata": {"uid": "v", "ownerReferences": [` +
			`{"apiVersion": "v1", "kind": "Set", "name": "web", "uid": "u", "controller": true}]}}`,
		`{"metadata": {"uid": 1, "finalizers": "f", "labels": ["a"]}, "spec": [], "status": 3}`,
		`{"metadata": {"ownerReferences": [1, {"uid": 2}, {}], "deletionTimestamp": 7, "annotations": {"a": {}}}}`,
		`{"metadata": {"generation": "x", "ownerReferences": {}}, "status": {"conditions": [1, {"type": {}}, {}]}}`,
		`{"metadata": {"uid": "w", "generation": 1e300}, "spec": {"selector": {"matchLabels": []}}}`,
	}
	for i := 0; i+2 < len(data); i += 3 {
		by := ""
		if data[i]/4%2 == 1 {
			by = "op: "
		}
		lines = append(lines, fmt.Sprintf("%d %s%s %s %s", i/3, by, events[data[i]%4],
			objects[int(data[i+1])%len(objects)], contents[int(data[i+2])%len(contents)]))
	}
	return lines
}
