package history

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trommel-dev/trommel/record"
)

// writers returns who wrote the newer of two states of an object, as far as managed fields show it: the managers whose
// entries are new. Entries have times in whole seconds. If no entry is new, the write was within the same second, and
// writers returns the owners of the changed fields. Fields that were only removed in that second have no owner.
func writers(before, after []metav1.ManagedFieldsEntry, oldJSON, objectJSON []byte) []record.FieldManager {
	var found []record.FieldManager
	add := func(e metav1.ManagedFieldsEntry) {
		m := record.FieldManager{Manager: e.Manager, Operation: string(e.Operation), Subresource: e.Subresource}
		if !slices.Contains(found, m) {
			found = append(found, m)
		}
	}
	for _, e := range after {
		same := func(b metav1.ManagedFieldsEntry) bool {
			return b.Manager == e.Manager && b.Operation == e.Operation && b.Subresource == e.Subresource &&
				b.APIVersion == e.APIVersion && b.Time.Equal(e.Time)
		}
		if !slices.ContainsFunc(before, same) {
			add(e)
		}
	}
	if len(found) > 0 || oldJSON == nil {
		return found
	}
	var old, object map[string]any
	if json.Unmarshal(oldJSON, &old) != nil || json.Unmarshal(objectJSON, &object) != nil {
		return nil
	}
	changed := changes(nil, old, object)
	for _, e := range after {
		var fields map[string]any
		if e.FieldsV1 == nil || json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if slices.ContainsFunc(changed, func(path []string) bool { return owns(fields, path) }) {
			add(e)
		}
	}
	return found
}

// changes returns the paths of all differences, down to lists and scalars.
func changes(at []string, old, object map[string]any) [][]string {
	keys := maps.Clone(old)
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, object)
	var all [][]string
	for key := range keys {
		path := append(slices.Clip(at), key)
		was, wasMap := old[key].(map[string]any)
		is, isMap := object[key].(map[string]any)
		switch {
		case wasMap && isMap:
			all = append(all, changes(path, was, is)...)
		case !reflect.DeepEqual(old[key], object[key]):
			all = append(all, path)
		}
	}
	return all
}

// owns reports whether managed fields contain the path or one of its parents.
func owns(fields map[string]any, path []string) bool {
	for i, key := range path {
		next, ok := fields["f:"+key].(map[string]any)
		if !ok {
			// A field that is owned as a whole has no children.
			return i > 0 && len(fields) == 0
		}
		fields = next
	}
	return true
}
