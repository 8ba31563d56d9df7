package scaffold

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/internal/objects/manifests"
)

// renewed returns the first object among the files that the cluster accepts in a served version of its kind, which is
// another one than its own; nil if there is none. The likeliest kinds come first.
func (t *tree) renewed(likely []schema.GroupVersionKind, checker *manifests.Checker) *unstructured.Unstructured {
	for _, kind := range likely {
		for _, f := range t.files {
			for _, u := range f.objects {
				if u.GroupVersionKind().GroupKind() != kind.GroupKind() || u.GroupVersionKind() == kind {
					continue
				}
				u = u.DeepCopy()
				u.SetGroupVersionKind(kind)
				if one := (&file{objects: []*unstructured.Unstructured{u}}); u.GetName() != "" && !placeholders(one) &&
					checker.Check(u) == nil {
					return u
				}
			}
		}
	}
	return nil
}

// leastObject returns an object of the kind with the fields that its schema requires.
func leastObject(definition *unstructured.Unstructured, kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	versions := []any{}
	if definition != nil {
		versions, _, _ = unstructured.NestedSlice(definition.Object, "spec", "versions")
	}
	name := "example"
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if version["name"] != kind.Version {
			continue
		}
		fields, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties")
		if spec, ok := fields["spec"].(map[string]any); ok {
			u.Object["spec"] = leastValue("spec", spec)
		}
		names, _, _ := unstructured.NestedSlice(fields, "metadata", "properties", "name", "enum")
		if len(names) > 0 { // there is only one of them, with this name
			name, _ = names[0].(string)
		}
	}
	u.SetGroupVersionKind(kind)
	u.SetName(name)
	return u
}

// leastValue returns the least value of a field that its schema allows, as far as it says so.
func leastValue(name string, schema map[string]any) any {
	if value, ok := schema["default"]; ok {
		return value
	}
	if values, _ := schema["enum"].([]any); len(values) > 0 {
		return values[0]
	}
	least := func(key string, otherwise int64) int64 {
		switch v := schema[key].(type) {
		case int64:
			return v
		case float64:
			return int64(v)
		}
		return otherwise
	}
	switch schema["type"] {
	case "object":
		value := map[string]any{}
		required, _ := schema["required"].([]any)
		properties, _ := schema["properties"].(map[string]any)
		for _, r := range required {
			field, _ := r.(string)
			property, _ := properties[field].(map[string]any)
			value[field] = leastValue(field, property)
		}
		return value
	case "array":
		list := []any{}
		items, _ := schema["items"].(map[string]any)
		for range min(least("minItems", 0), 10) {
			list = append(list, leastValue(strings.TrimSuffix(name, "s"), items))
		}
		return list
	case "integer", "number":
		return max(least("minimum", 1), 1)
	case "boolean":
		return false
	}
	if schema["x-kubernetes-int-or-string"] == true {
		return int64(1)
	}
	if schema["format"] == "date-time" {
		return "2026-01-01T00:00:00Z"
	}
	return "example"
}
