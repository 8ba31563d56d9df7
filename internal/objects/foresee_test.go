package objects

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// TestEmptyMetadataIsLeftOut: what a patch leaves of a list or map of the metadata is not there, as in what the API
// server then shows, whichever way the patch empties it.
func TestEmptyMetadataIsLeftOut(t *testing.T) {
	const object = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a",` +
		`"finalizers":["example.com/f"],"labels":{"a":"b"}},"spec":{"list":[]}}`
	const want = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"labels":{"a":"b"},"name":"a"},` +
		`"spec":{"list":[]}}`
	for _, tt := range []struct {
		name  string
		typ   wire.PatchType
		patch string
		want  string
	}{
		{
			"JSON patch that replaces", wire.JSONPatch,
			`[{"op":"replace","path":"/metadata/finalizers","value":[]}]`, want,
		},
		{"JSON patch that removes one", wire.JSONPatch, `[{"op":"remove","path":"/metadata/finalizers/0"}]`, want},
		{"JSON patch that removes the list", wire.JSONPatch, `[{"op":"remove","path":"/metadata/finalizers"}]`, want},
		{"merge patch", wire.MergePatch, `{"metadata":{"finalizers":[]}}`, want},
		{
			"merge patch of a map", wire.MergePatch, `{"metadata":{"labels":{"a":null}}}`,
			`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"finalizers":["example.com/f"],"name":"a"},` +
				`"spec":{"list":[]}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data, err := patched([]byte(object), tt.typ, []byte(tt.patch), schema.GroupVersionKind{}, "")
			if err != nil {
				t.Fatal(err)
			}
			var old, sent map[string]any
			if err := json.Unmarshal([]byte(object), &old); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(data, &sent); err != nil {
				t.Fatal(err)
			}
			after, err := accepted(old, sent, "", false)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(after)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
