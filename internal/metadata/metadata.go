// Package metadata reads the metadata of objects that are not decoded into Go types, and looks for names and UIDs in
// such objects.
package metadata

import (
	"encoding/json"
	"slices"
	"strconv"
)

// Of returns the object's metadata; nil if it has none.
func Of(object map[string]any) map[string]any {
	m, _ := object["metadata"].(map[string]any)
	return m
}

// Text returns a field of a mapping; empty if it is absent or not a string.
func Text(m map[string]any, field string) string {
	s, _ := m[field].(string)
	return s
}

// UID returns the object's UID; empty if it has none.
func UID(object map[string]any) string { return Text(Of(object), "uid") }

// Marked reports whether the object is marked for deletion.
func Marked(object map[string]any) bool {
	_, ok := Of(object)["deletionTimestamp"]
	return ok
}

// Owners returns the object's owner references.
func Owners(object map[string]any) []map[string]any {
	list, _ := Of(object)["ownerReferences"].([]any)
	var all []map[string]any
	for _, o := range list {
		if m, ok := o.(map[string]any); ok {
			all = append(all, m)
		}
	}
	return all
}

// Controller returns the reference to the owner that controls the object; nil if there is none.
func Controller(object map[string]any) map[string]any {
	for _, owner := range Owners(object) {
		if owner["controller"] == true {
			return owner
		}
	}
	return nil
}

// ResourceVersion returns the resource version of an object in JSON; 0 if it has none.
func ResourceVersion(object []byte) uint64 {
	if len(object) == 0 {
		return 0
	}
	var o struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if json.Unmarshal(object, &o) != nil {
		return 0
	}
	return ParseVersion(o.Metadata.ResourceVersion)
}

// ParseVersion returns a resource version as a number, by which versions can be ordered; 0 if it is not a number.
func ParseVersion(s string) uint64 {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// Holds reports whether a value of an object, or a value in it, is the text. Keys of mappings do not count.
func Holds(value any, text string) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, field := range v {
			if Holds(field, text) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(item any) bool { return Holds(item, text) })
	case string:
		return v == text
	}
	return false
}
