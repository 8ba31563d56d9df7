package metadata

import (
	"encoding/json"
	"testing"
)

func TestMetadata(t *testing.T) {
	for _, tt := range []struct {
		name, object    string
		uid, controller string
		owners          int
		marked          bool
		version         uint64
	}{
		{"all", `{"metadata": {"uid": "a", "resourceVersion": "12", "deletionTimestamp": "2026-01-02T03:04:05Z",
			"ownerReferences": [{"uid": "b"}, {"uid": "c", "controller": true}]}}`, "a", "c", 2, true, 12},
		{"no controller", `{"metadata": {"ownerReferences": [{"uid": "b", "controller": false}]}}`,
			"", "", 1, false, 0},
		{"no metadata", `{"spec": {}}`, "", "", 0, false, 0},
		{"other types", `{"metadata": {"uid": 3, "resourceVersion": 4, "ownerReferences": ["a", {}]}}`,
			"", "", 1, false, 0},
		{"a version that is not a number", `{"metadata": {"resourceVersion": "v1"}}`, "", "", 0, false, 0},
		{"a version that is too large", `{"metadata": {"resourceVersion": "18446744073709551616"}}`,
			"", "", 0, false, 0},
		{"no object", `[]`, "", "", 0, false, 0},
		{"nothing", ``, "", "", 0, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var object map[string]any
			_ = json.Unmarshal([]byte(tt.object), &object)
			if got := UID(object); got != tt.uid {
				t.Errorf("UID: %q", got)
			}
			if got := Text(Controller(object), "uid"); got != tt.controller {
				t.Errorf("the controller's UID: %q", got)
			}
			if got := Owners(object); len(got) != tt.owners {
				t.Errorf("owners: %v", got)
			}
			if got := Marked(object); got != tt.marked {
				t.Errorf("marked: %t", got)
			}
			if got := ResourceVersion([]byte(tt.object)); got != tt.version {
				t.Errorf("resource version: %d", got)
			}
		})
	}
}

func TestHolds(t *testing.T) {
	object := map[string]any{"spec": map[string]any{
		"volumes": []any{map[string]any{"claim": map[string]any{"name": "data-0"}}}, "key": int64(1),
	}}
	for text, want := range map[string]bool{"data-0": true, "data": false, "volumes": false, "1": false, "": false} {
		if got := Holds(object, text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
