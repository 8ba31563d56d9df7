package findings

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/plan"
)

// within is how long an invariant waits for what a run without faults ends with. It is as long as a run waits before a
// difference counts.
const within = 10 * time.Second

// Invariant derives an invariant from a difference: a run with the difference violates it, and a run without does not.
// So the difference is found without a baseline. It also returns the types that must be recorded for the invariant. The
// changes are those of the run with the difference. It returns nil for objects with generated names, and for some
// objects that were created more or less often.
func Invariant(
	ref *baseline.Baseline, d baseline.Difference, changes []facts.Change,
) (*plan.Invariant, []plan.ResourceKey) {
	key, err := plan.ParseResourceKey(d.Key.Local())
	if err != nil || strings.Contains(key.Name, "#") || d.Relation != nil || d.Renewal {
		return nil, nil
	}
	sample := lastState(d.Key, changes)
	if sample == nil {
		sample = lastState(d.Key, ref.Changes)
	}
	if sample == nil {
		return nil, nil
	}
	typ := func(k plan.ResourceKey) plan.ResourceKey {
		return plan.ResourceKey{Type: k.Type, Group: k.Group, Namespace: k.Namespace, Name: "*"}
	}
	recorded := []plan.ResourceKey{typ(key)}
	name := strings.ReplaceAll(key.Type+"-"+key.Name, "*", "")
	if d.Count {
		own, kept := keptWhileOwned(key, sample)
		if own == nil || !d.More() {
			return nil, nil
		}
		own.Name, own.Cluster = name+"-is-kept", d.Key.Cluster()
		return own, append(recorded, kept)
	}
	i := &plan.Invariant{Within: within, Cluster: d.Key.Cluster()}
	is := identity(sample)
	want, got := ref.Objects[d.Key], sample
	switch {
	case d.Field != "" && want != nil && want.End != nil:
		at := want.End
		if d.Want == nil {
			at = got
		}
		holds := fieldHolds(at, "o", "", d.Field, d.Want, 0)
		if holds == "" {
			return nil, nil
		}
		if d.Want == nil {
			holds = "!(" + holds + ")"
		}
		i.Name = name + "-has-its-fields"
		i.Eventually = fmt.Sprintf("objects.exists(o, %s && %s)", is, holds)
		i.Message = fmt.Sprintf("%s of %s is not as it is without faults", d.Field, d.Key)
	case d.Field != "":
		return nil, nil
	case want != nil && want.End != nil:
		i.Name = name + "-exists"
		i.Eventually = fmt.Sprintf("objects.exists(o, %s)", is)
		i.Message = fmt.Sprintf("there is no %s", d.Key)
	default:
		i.Name = name + "-is-gone"
		i.Eventually = fmt.Sprintf("!objects.exists(o, %s)", is)
		i.Message = fmt.Sprintf("there is still a %s", d.Key)
	}
	return i, recorded
}

// keptWhileOwned is the invariant that an object is not deleted while its controller lives, with the type of that
// controller; nil: the object has none.
func keptWhileOwned(key plan.ResourceKey, object map[string]any) (*plan.Invariant, plan.ResourceKey) {
	if by := metadata.Controller(object); by != nil {
		group, _, found := strings.Cut(metadata.Text(by, "apiVersion"), "/")
		if !found {
			group = ""
		}
		// Namespace: a cluster-scoped owner is recorded with all namespaces too.
		kind := metadata.Text(by, "kind")
		recorded := plan.ResourceKey{Type: strings.ToLower(kind), Group: group, Namespace: "*", Name: "*"}
		return &plan.Invariant{
			On: &key,
			Never: `event == "deleted" && objects.exists(o, !has(o.metadata.deletionTimestamp) && ` +
				`object.metadata.ownerReferences.exists(r, r.uid == o.metadata.uid && r.?controller.orValue(false)))`,
			Message: fmt.Sprintf("%s was deleted although its owner, a %s, is alive", key, kind),
		}, recorded
	}
	return nil, plan.ResourceKey{}
}

// lastState is the last state of an object.
func lastState(key facts.Key, changes []facts.Change) map[string]any {
	for _, c := range slices.Backward(changes) {
		if c.Key == key && c.Cur != nil {
			return c.Cur
		}
		if c.Key == key && c.Prev != nil {
			return c.Prev
		}
	}
	return nil
}

// identity is the condition that o is the object.
func identity(object map[string]any) string {
	meta := metadata.Of(object)
	conditions := []string{"o.kind == " + strconv.Quote(metadata.Text(object, "kind"))}
	if group, _, found := strings.Cut(metadata.Text(object, "apiVersion"), "/"); found {
		conditions = append(conditions, fmt.Sprintf("o.apiVersion.startsWith(%q)", group+"/"))
	}
	if namespace := metadata.Text(meta, "namespace"); namespace != "" {
		conditions = append(conditions, "o.metadata.namespace == "+strconv.Quote(namespace))
	}
	return strings.Join(append(conditions, "o.metadata.name == "+strconv.Quote(metadata.Text(meta, "name"))), " && ")
}

// fieldHolds is the condition that a field has a value, or is there if the value is nil. Value is what is in the object
// at an expression; where is its place, as [leaves] has it. Empty: the field is not in there, or has no CEL form.
func fieldHolds(value any, at, where, field string, want any, depth int) string {
	switch v := value.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			place := k
			if where != "" {
				place = where + "." + k
			}
			if !strings.HasPrefix(field, place) {
				continue
			}
			guard, next := fmt.Sprintf("%q in %s", k, at), fmt.Sprintf("%s[%q]", at, k)
			if isIdentifier(k) {
				guard, next = fmt.Sprintf("has(%s.%s)", at, k), at+"."+k
			}
			if rest := fieldHolds(v[k], next, place, field, want, depth); rest != "" {
				return join2(guard, rest)
			}
		}
	case []any:
		for i, item := range v {
			named := facts.ItemPlace(item, i)
			place := where + "[" + named + "]"
			if !strings.HasPrefix(field, place) {
				continue
			}
			by, name, ok := strings.Cut(named, "=")
			m, isMap := item.(map[string]any)
			if !ok || !isMap || metadata.Text(m, by) != name {
				next := fmt.Sprintf("%s[%d]", at, i)
				if rest := fieldHolds(item, next, place, field, want, depth); rest != "" {
					return join2(fmt.Sprintf("size(%s) > %d", at, i), rest)
				}
				continue
			}
			x := "x" + strconv.Itoa(depth+1)
			if rest := fieldHolds(item, x, place, field, want, depth+1); rest != "" {
				return fmt.Sprintf("%s.exists(%s, %s)", at, x,
					join2(fmt.Sprintf("has(%s.%s) && %s.%s == %q", x, by, x, by, name), rest))
			}
		}
	default:
		if where != field {
			return ""
		}
		if want == nil {
			return "true"
		}
		if !reflect.DeepEqual(value, want) {
			return "" // it was compared in another form
		}
		if l := literal(want); l != "" {
			return at + " == " + l
		}
	}
	return ""
}

// join2 joins two conditions; "true" says nothing.
func join2(a, b string) string {
	if b == "true" {
		return a
	}
	return a + " && " + b
}

// isIdentifier reports whether a name can follow a dot in CEL.
func isIdentifier(s string) bool {
	for i, r := range s {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != "" && !slices.Contains([]string{"true", "false", "null", "in"}, s)
}

// literal writes a JSON value in CEL; empty: it has no short form.
func literal(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case bool:
		return strconv.FormatBool(v)
	case float64:
		if math.Trunc(v) == v && math.Abs(v) < 1<<53 {
			return strconv.FormatInt(int64(v), 10)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return ""
}
