package helm

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// rename is a value of the chart that had another name before a version. Names are paths, with dots.
type rename struct{ since, from, to string }

// renames are those of all versions, oldest first. So values of a RemoteCluster that were written for an older version
// stay valid when the parent upgrades the child from it, and after that. A name that a value once had is never that of
// another value: then the version for which values were written need not be known.
var renames []rename

// migrate returns values with the names that the chart has today. former says which had other names; empty: none had.
func migrate(values map[string]any, renames []rename) (_ map[string]any, former string, err error) {
	values = runtime.DeepCopyJSON(values)
	var all []string
	for _, r := range renames {
		from, to := strings.Split(r.from, "."), strings.Split(r.to, ".")
		value, ok, err := unstructured.NestedFieldNoCopy(values, from...)
		if err != nil || !ok {
			continue // what is not a map has no such value
		}
		words := fmt.Sprintf("%s is called %s since %s", r.from, r.to, r.since)
		if _, both, _ := unstructured.NestedFieldNoCopy(values, to...); both {
			return nil, "", fmt.Errorf("there are values of both names: %s", words)
		}
		remove(values, from)
		if err := unstructured.SetNestedField(values, value, to...); err != nil {
			return nil, "", fmt.Errorf("%s: %w", words, err)
		}
		all = append(all, words)
	}
	return values, strings.Join(all, ", "), nil
}

// remove takes a value away, and maps that have nothing else in them.
func remove(values map[string]any, path []string) {
	if below, ok := values[path[0]].(map[string]any); ok && len(path) > 1 {
		if remove(below, path[1:]); len(below) > 0 {
			return
		}
	}
	delete(values, path[0])
}
