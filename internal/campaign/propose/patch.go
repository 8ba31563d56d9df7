package propose

import (
	"slices"
	"strconv"
	"strings"

	"github.com/trommel-dev/trommel/plan"
)

// patchStep returns the patch that gives a field a value, nil for absent, in an object as it is. It adds parents that
// the object lacks.
func patchStep(object map[string]any, path []string, value any) *plan.PatchStep {
	if !slices.ContainsFunc(path, isIndex) {
		return &plan.PatchStep{PatchType: "merge", Patch: nest(path, value)}
	}
	op := map[string]any{}
	if value == nil {
		op["op"] = "remove"
	} else {
		// "add" replaces a field that is there.
		missing := firstMissing(object, path)
		if op["op"] = "replace"; missing < len(path) {
			op["op"] = "add"
			value = nest(path[missing+1:], value)
			path = path[:missing+1]
		}
		op["value"] = value
	}
	op["path"] = pointer(path)
	return &plan.PatchStep{PatchType: "json", Patch: []any{op}}
}

// undoStep returns the patch that undoes a change, given the object as it was before. Of what the change has added, it
// removes the topmost part.
func undoStep(before map[string]any, c Change) *plan.PatchStep {
	if c.From == nil {
		return patchStep(nil, c.Path[:min(firstMissing(before, c.Path)+1, len(c.Path))], nil)
	}
	patch := patchStep(before, c.Path, c.From)
	if ops, ok := patch.Patch.([]any); ok && c.To == nil {
		ops[0].(map[string]any)["op"] = "add" // what was removed is not there to be replaced
	}
	return patch
}

func nest(path []string, value any) any {
	for _, step := range slices.Backward(path) {
		value = map[string]any{step: value}
	}
	return value
}

// firstMissing is the index of the first step of a path that an object lacks; the path's length if it lacks none.
func firstMissing(object map[string]any, path []string) int {
	var at any = object
	for i, step := range path {
		switch v := at.(type) {
		case map[string]any:
			next, ok := v[step]
			if !ok {
				return i
			}
			at = next
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n >= len(v) {
				return i
			}
			at = v[n]
		default:
			return i
		}
	}
	return len(path)
}

// lookup is the value of a field; nil if the object lacks it.
func lookup(object map[string]any, path []string) any {
	var at any = object
	for _, step := range path {
		switch v := at.(type) {
		case map[string]any:
			at = v[step]
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n >= len(v) {
				return nil
			}
			at = v[n]
		default:
			return nil
		}
	}
	return at
}

func isIndex(step string) bool {
	_, err := strconv.Atoi(step)
	return err == nil
}

// pointer writes a path as a JSON pointer (RFC 6901).
func pointer(path []string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, step := range path {
		b.WriteString("/" + escape.Replace(step))
	}
	return b.String()
}
