package reference

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Regression: a volume that shows a Secret's key as two files seemed to change with each update of its pod.
func TestFieldsOfItemsWithTheSameName(t *testing.T) {
	pod := func(second string) map[string]any {
		return map[string]any{"items": []any{
			map[string]any{"key": "public", "path": "id_rsa.pub"},
			map[string]any{"key": "public", "path": second},
			map[string]any{"key": "private", "path": "id_rsa"},
		}}
	}
	for range 20 { // mappings have no order
		if same := FieldsOf(&Change{Prev: pod("authorized_keys"), Cur: pod("authorized_keys")}); len(same) > 0 {
			t.Fatalf("nothing has changed, but %+v", same)
		}
	}
	got := FieldsOf(&Change{Prev: pod("authorized_keys"), Cur: pod("other")})
	want := []Field{{
		Path: []string{"items", Item, "path"}, Where: "items[key=public#2].path",
		Prev: "authorized_keys", Cur: "other", PrevIndex: []int{1}, CurIndex: []int{1},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
