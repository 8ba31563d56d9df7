package history

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Regression: the history did not show who wrote a state, because it has no managed fields.
func TestWriters(t *testing.T) {
	entry := func(manager, subresource string, second int64, fields string) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(time.Unix(second, 0))
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: subresource,
			APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		}
	}
	spec := `{"f:spec":{"f:replicas":{},"f:atomic":{}}}`
	status := `{"f:status":{"f:phase":{}}}`
	list := `{"f:metadata":{"f:finalizers":{".":{},"v:\"a\"":{}}}}`
	object := func(replicas int, phase, more string) []byte {
		return fmt.Appendf(nil,
			`{"metadata":{"resourceVersion":"%d"%s},"spec":{"replicas":%d,"atomic":{"a":%d}},"status":{"phase":%q}}`,
			replicas+len(phase)+len(more), more, replicas, replicas, phase)
	}
	type entries = []metav1.ManagedFieldsEntry
	for _, test := range []struct {
		name          string
		before, after entries
		old, object   []byte
		want          []string
	}{
		{"created", nil, entries{entry("kubectl", "", 1, spec)}, nil, object(1, "", ""), []string{"kubectl (Update)"}},
		{
			"a new manager", entries{entry("kubectl", "", 1, spec)},
			entries{entry("kubectl", "", 1, spec), entry("op", "status", 1, status)}, object(1, "", ""),
			object(1, "Ready", ""), []string{"op (Update of status)"},
		},
		{
			"in a later second", entries{entry("kubectl", "", 1, spec), entry("op", "status", 1, status)},
			entries{entry("kubectl", "", 2, spec), entry("op", "status", 1, status)}, object(1, "x", ""),
			object(2, "x", ""), []string{"kubectl (Update)"},
		},
		{
			"in the same second", entries{entry("kubectl", "", 1, spec), entry("op", "status", 1, status)},
			entries{entry("kubectl", "", 1, spec), entry("op", "status", 1, status)}, object(1, "x", ""),
			object(1, "y", ""), []string{"op (Update of status)"},
		},
		{
			"a list within the same second", entries{entry("kubectl", "", 1, spec), entry("op", "", 1, list)},
			entries{entry("kubectl", "", 1, spec), entry("op", "", 1, list)}, object(1, "x", ""),
			object(1, "x", `,"finalizers":["a"]`), []string{"op (Update)"},
		},
		{
			"no manager owns it", entries{entry("op", "status", 1, status)}, entries{entry("op", "status", 1, status)},
			object(1, "x", `,"deletionTimestamp":"1"`), object(1, "x", ""), nil,
		},
		{"no managed fields", nil, nil, object(1, "x", ""), object(2, "x", ""), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, w := range writers(test.before, test.after, test.old, test.object) {
				got = append(got, w.String())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
