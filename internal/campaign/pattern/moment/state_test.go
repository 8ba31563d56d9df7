package moment

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/plan"
)

// Regression: an item of a list in a list was set as the field "[]".
func TestSetField(t *testing.T) {
	state := object{}
	for _, f := range []struct {
		path  []string
		index []int
		v     any
	}{
		{[]string{"spec", "size"}, nil, 1},
		{[]string{"spec", "args", "[]"}, []int{1}, "b"},
		{[]string{"spec", "ports", "[]", "name"}, []int{0}, "http"},
		{[]string{"spec", "ports", "[]", "number"}, []int{0}, nil},
		{[]string{"spec", "rows", "[]", "[]", "x"}, []int{1, 0}, 7},
		{[]string{"spec", "rows", "[]", "[]", "y"}, []int{1, 0}, 8},
		{[]string{"spec", "names", "[]"}, nil, "no place is known"},
	} {
		setField(state, f.path, f.index, f.v)
	}
	want := object{"spec": object{
		"size": 1, "args": []any{plan.Present, "b"},
		"ports": []any{object{"name": "http", "number": plan.Absent}},
		"rows":  []any{plan.Present, []any{object{"x": 7, "y": 8}}},
	}}
	if diff := cmp.Diff(want, state); diff != "" {
		t.Error(diff)
	}
}
