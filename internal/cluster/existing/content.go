package existing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// protobufMagic begins objects that are encoded as protobuf.
var protobufMagic = []byte("k8s\x00")

// metadataOf reads the metadata of an encoded object.
func metadataOf(contentType string, body []byte) (*metav1.ObjectMeta, error) {
	var o metav1.PartialObjectMetadata
	switch {
	case bytes.HasPrefix(body, protobufMagic):
		var envelope runtime.Unknown
		if err := envelope.Unmarshal(body[len(protobufMagic):]); err != nil {
			return nil, err
		}
		// The metadata is the first field of each type of Kubernetes. The rest is not looked at.
		if err := o.Unmarshal(envelope.Raw); err != nil {
			return nil, err
		}
	case strings.Contains(contentType, "yaml"):
		if err := yaml.Unmarshal(body, &o); err != nil {
			return nil, err
		}
	default:
		if err := json.Unmarshal(body, &o); err != nil {
			return nil, err
		}
	}
	return &o.ObjectMeta, nil
}

// claimsOf returns the names of a StatefulSet's volume claim templates.
func claimsOf(body []byte) (names []string) {
	var set struct {
		Spec struct {
			VolumeClaimTemplates []struct {
				Metadata struct{ Name string }
			}
		}
	}
	if json.Unmarshal(body, &set) != nil {
		return nil
	}
	for _, t := range set.Spec.VolumeClaimTemplates {
		names = append(names, t.Metadata.Name)
	}
	return names
}

// differs names the first field in which two encoded objects differ, apart from what the API server keeps about writes.
func differs(a, b []byte) (field string, err error) { return compare(a, b, difference) }

// lacks returns the first field of a manifest that an object has otherwise, or not at all; empty: there is none. What
// only the object has may be a default.
func lacks(object, manifest []byte) (field string, err error) { return compare(object, manifest, lack) }

// compare decodes two objects and returns what a comparison says of them.
func compare(a, b []byte, by func(path string, x, y any) string) (field string, err error) {
	x, err := withoutBookkeeping(a)
	if err != nil {
		return "", err
	}
	y, err := withoutBookkeeping(b)
	if err != nil {
		return "", err
	}
	return by("", x, y), nil
}

func lack(path string, has, wants any) string {
	switch wants := wants.(type) {
	case map[string]any:
		if fields, ok := has.(map[string]any); ok {
			for _, name := range slices.Sorted(maps.Keys(wants)) {
				if field := lack(path+"."+name, fields[name], wants[name]); field != "" {
					return field
				}
			}
			return ""
		}
	case []any:
		items, ok := has.([]any)
		if ok && len(items) == len(wants) {
			for i := range wants {
				if field := lack(fmt.Sprintf("%s[%d]", path, i), items[i], wants[i]); field != "" {
					return field
				}
			}
			return ""
		}
	case nil:
		return ""
	default:
		if reflect.DeepEqual(has, wants) {
			return ""
		}
	}
	return strings.TrimPrefix(path, ".")
}

// withoutBookkeeping decodes an object without what the API server keeps about writes, and without its status.
func withoutBookkeeping(data []byte) (o map[string]any, err error) {
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	if m, ok := o["metadata"].(map[string]any); ok {
		for _, name := range []string{"managedFields", "resourceVersion", "generation"} {
			delete(m, name)
		}
	}
	delete(o, "status")
	return o, nil
}

func difference(path string, x, y any) string {
	xs, ok := x.(map[string]any)
	ys, also := y.(map[string]any)
	if !ok || !also {
		if reflect.DeepEqual(x, y) {
			return ""
		}
		return strings.TrimPrefix(path, ".")
	}
	for _, name := range slices.Sorted(maps.Keys(xs)) {
		if d := difference(path+"."+name, xs[name], ys[name]); d != "" {
			return d
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ys)) {
		if _, ok := xs[name]; !ok {
			return strings.TrimPrefix(path+"."+name, ".")
		}
	}
	return ""
}
