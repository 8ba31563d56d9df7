package baseline

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"testing"
)

// The file has the fields of all parts of a baseline beside each other, and none hides another. If they change, Format
// must change.
func TestFieldsOfTheFile(t *testing.T) {
	lines := []string{`existing secret/default/b {}`, `db: created secret/default/a {}`}
	ref := learn(t, story(t, lines...), story(t, lines...))
	ref.Naming = Naming{Random: []Random{{}}}
	ref.Variations = Variations{Alternatives: []Alternative{{How: "slow"}}, Tried: []string{"slow"}}
	ref.Rested, ref.Relations = true, Relations{{}}
	file := filepath.Join(t.TempDir(), "baseline.json")
	if err := ref.Write(file); err != nil {
		t.Fatal(err)
	}
	again, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(again)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"alternatives", "changes", "controllers", "courses", "existed", "masks", "objects", "others", "random",
		"relations", "replicas", "rested", "runs", "source", "unordered", "workload",
	}
	if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, want) {
		t.Errorf("fields %q, want %q", got, want)
	}
}
