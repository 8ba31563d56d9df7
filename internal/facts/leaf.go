package facts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/trommel-dev/trommel/internal/metadata"
)

// Leaf is a value in an object. Where is its path, in which ItemPlace distinguishes the items of lists.
type Leaf struct {
	Path  []string
	Where string
	Value any
	Index []int // what the steps "[]" of the path stand for
}

// Leaves lists all values of an object that are neither mappings nor lists; an empty mapping or list has none. Several
// may be at the same place, see ItemPlace.
func Leaves(v any, path []string, where string, visit func(Leaf)) {
	leavesAt(v, Leaf{Path: path, Where: where}, visit)
}

func leavesAt(v any, at Leaf, visit func(Leaf)) {
	switch v := v.(type) {
	case map[string]any:
		for k, value := range v {
			where := k
			if at.Where != "" {
				where = at.Where + "." + k
			}
			leavesAt(value, Leaf{Path: append(slices.Clip(at.Path), k), Where: where, Index: at.Index}, visit)
		}
		return
	case []any:
		for i, value := range v {
			leavesAt(value, Leaf{
				Path: append(slices.Clip(at.Path), Item), Where: at.Where + "[" + ItemPlace(value, i) + "]",
				Index: append(slices.Clip(at.Index), i),
			}, visit)
		}
		return
	}
	at.Value = v
	visit(at)
}

// ItemPlace distinguishes an item from the others of its list: by its name, or else its index. Several items may have
// the same name, such as a Secret's key that a volume shows as two files: then their values are compared together.
func ItemPlace(item any, i int) string { return cmp.Or(ItemName(item), strconv.Itoa(i)) }

// tokenVolume begins the random name that the API server gives the volume with a pod's token.
const tokenVolume = "kube-api-access-"

// IsTokenVolume reports whether that is such a name, which differs each time.
func IsTokenVolume(name string) bool {
	rest, ok := strings.CutPrefix(name, tokenVolume)
	return ok && len(rest) == 5
}

// ItemName is the field by which an item of a list is known, and its value, as in "name=a"; empty: it has none.
func ItemName(v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return ""
	}
	for _, field := range []string{"name", "type", "key", "mountPath", "ip"} {
		if s := metadata.Text(m, field); s != "" {
			if IsTokenVolume(s) {
				s = tokenVolume + "*"
			}
			return field + "=" + s
		}
	}
	if port, ok := m["port"]; ok {
		return fmt.Sprintf("port=%v", port)
	}
	return ""
}

// Item is the step of a path that stands for any item of a list.
const Item = "[]"

// Join writes the keys of a path with dots between them.
func Join(path []string) string { return strings.Join(path, ".") }

// Several are the values of fields that have the same place, sorted.
type Several []any

// Canonical writes a value as JSON with sorted keys, so that equal values have equal texts.
func Canonical(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was read from JSON
	}
	return string(data)
}

// Reordered lists the paths of the lists that have the same items in two states, in another order.
func Reordered(a, b any, path []string, visit func(path []string)) {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			return
		}
		for k, value := range a {
			Reordered(value, b[k], append(slices.Clip(path), k), visit)
		}
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) || reflect.DeepEqual(a, b) {
			return
		}
		items := func(list []any) []string {
			all := make([]string, len(list))
			for i, v := range list {
				all[i] = Canonical(v)
			}
			slices.Sort(all)
			return all
		}
		if slices.Equal(items(a), items(b)) {
			visit(path)
			return
		}
		for i := range a {
			Reordered(a[i], b[i], append(slices.Clip(path), Item), visit)
		}
	}
}
