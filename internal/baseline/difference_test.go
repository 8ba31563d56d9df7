package baseline

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// Regression: a volume that shows a Secret's key as two files seemed to change with each update of its pod. Items with
// the same name are compared together, by their values, in changes as in end states.
func TestItemsWithTheSameName(t *testing.T) {
	const public, authorized, private = `{"key": "public", "path": "id_rsa.pub"}`,
		`{"key": "public", "path": "authorized_keys"}`, `{"key": "private", "path": "id_rsa"}`
	const other = `{"key": "public", "path": "other"}`
	list := func(items ...string) string {
		text := ""
		for i, item := range items {
			if i > 0 {
				text += ", "
			}
			text += item
		}
		return `{"items": [` + text + `]}`
	}
	const differ, before = `pod/default/a: items[key=public].path is `,
		`; without faults: "authorized_keys" and "id_rsa.pub"`
	usual := list(public, authorized, private)
	field := func(where string, prev, cur any, from, to []int) []facts.Field {
		path := []string{"items", facts.Item, where[len("items[key=public]."):]}
		return []facts.Field{{Path: path, Where: where, Prev: prev, Cur: cur, PrevIndex: from, CurIndex: to}}
	}
	for _, tt := range []struct {
		name, is string
		fields   []facts.Field
		differs  []string
	}{
		{name: "the same", is: usual},
		{name: "a permutation", is: list(authorized, private, public)},
		{
			name: "another value", is: list(public, other, private),
			fields:  field("items[key=public].path", "authorized_keys", "other", []int{1}, []int{1}),
			differs: []string{differ + `"id_rsa.pub" and "other"` + before},
		},
		{
			name: "another value, and a permutation", is: list(other, private, public),
			fields:  field("items[key=public].path", "authorized_keys", "other", []int{1}, []int{0}),
			differs: []string{differ + `"id_rsa.pub" and "other"` + before},
		},
		{
			name: "one is lost", is: list(authorized, private),
			fields: slices.Concat(field("items[key=public].key", "public", nil, []int{1}, nil),
				field("items[key=public].path", "id_rsa.pub", nil, []int{0}, nil)),
			differs: []string{
				`pod/default/a: items[key=public].key is "public"; without faults: "public" and "public"`,
				differ + `"authorized_keys"` + before,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state := func(text string) (m map[string]any) {
				if err := json.Unmarshal([]byte(text), &m); err != nil {
					t.Fatal(err)
				}
				return m
			}
			for range 20 { // mappings have no order
				got := facts.FieldsOf(&facts.Change{Prev: state(usual), Cur: state(tt.is)})
				if diff := cmp.Diff(tt.fields, got); diff != "" {
					t.Fatal(diff)
				}
			}
			run := func(text string) *record.Run { return story(t, "created pod/default/a "+text) }
			ref := learn(t, run(usual), run(usual))
			if got := compare(t, ref, run(tt.is)); !slices.Equal(got, tt.differs) {
				t.Errorf("got %q, want %q", got, tt.differs)
			}
		})
	}
}

// A change of one of two values is found as the cause of the difference.
func TestCausesOfItemsWithTheSameName(t *testing.T) {
	pod := func(event, second string) string {
		return event + ` pod/default/a {"items": [{"name": "x", "v": "1"}, {"name": "x", "v": "` + second + `"}]}`
	}
	ref := learn(t, story(t, pod("created", "2")), story(t, pod("created", "2")))
	f, err := facts.Follow(story(t, pod("created", "2"), pod("updated", "3")))
	if err != nil {
		t.Fatal(err)
	}
	differ := ref.Compare(f.Objects())
	if len(differ) != 1 {
		t.Fatalf("got %v", differ)
	}
	if causes := differ[0].Caused(f.Changes()); len(causes) != 1 || causes[0].Event != record.Updated {
		t.Errorf("got %v", causes)
	}
}
