package history

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// renews reports whether a new state of an object is a lease that was only renewed. Processes renew leases every few
// seconds for as long as they live: a recording of that would never be quiet, and says nothing.
func (t *track) renews(before []byte, u *unstructured.Unstructured) bool {
	if t.typ.Resource.Group != "coordination.k8s.io" || t.typ.Singular != "lease" || before == nil {
		return false
	}
	old := &unstructured.Unstructured{}
	if json.Unmarshal(before, &old.Object) != nil {
		return false
	}
	rest := func(u *unstructured.Unstructured) []byte {
		u = u.DeepCopy()
		unstructured.RemoveNestedField(u.Object, "spec", "renewTime")
		u.SetResourceVersion("")
		u.SetManagedFields(nil)
		text, err := json.Marshal(u.Object)
		if err != nil {
			return nil
		}
		return text
	}
	was, is := rest(old), rest(u)
	return was != nil && bytes.Equal(was, is)
}
