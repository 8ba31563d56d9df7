package propose

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/trommel-dev/trommel/internal/cel"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// identifier is a name that CEL takes after a dot.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// reserved are words that CEL does not take after a dot.
var reserved = []string{"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in",
	"let", "loop", "namespace", "null", "package", "return", "true", "var", "void", "while"}

// expression writes a path as CEL.
func expression(path []string) string {
	var b strings.Builder
	b.WriteString("object")
	for _, step := range path {
		switch {
		case isIndex(step):
			b.WriteString("[" + step + "]")
		case identifier.MatchString(step) && !slices.Contains(reserved, step):
			b.WriteString("." + step)
		default:
			b.WriteString("[" + strconv.Quote(step) + "]")
		}
	}
	return b.String()
}

// literal writes a value as CEL; false for a value that a condition does not compare.
func literal(v any) (string, bool) {
	switch v := plain(v).(type) {
	case string:
		return strconv.Quote(v), true
	case int64, bool:
		return fmt.Sprint(v), true
	}
	return "", false
}

// opaque are fields whose values say nothing to people, or differ each time.
var opaque = regexp.MustCompile(`(?i)(revision|hash|uid|time|timestamp|generation|collisionCount|resourceVersion|IP|` +
	`token|message|nodeName|volumeName)$`)

// done is the condition that the sample meets at the end of a run, by its status. Fields of the status count only if
// they are the same in the other runs, given as end states. Empty: its status says nothing.
func done(end map[string]any, others ...map[string]any) string {
	return strings.Join(statusClauses(end, others), " && ")
}

// ready is what [done] is, but empty if the status says only that nothing is there yet: it counts to zero.
func ready(end map[string]any, others ...map[string]any) string {
	clauses := statusClauses(end, others)
	if !slices.ContainsFunc(clauses, func(c string) bool { return !zero.MatchString(c) }) {
		return ""
	}
	return strings.Join(clauses, " && ")
}

// zero is a clause that also a status meets of which a controller has filled in nothing.
var zero = regexp.MustCompile(` == (0|false)$`)

func statusClauses(end map[string]any, others []map[string]any) (clauses []string) {
	status, _ := end["status"].(map[string]any)
	same := func(path ...string) bool {
		return !slices.ContainsFunc(others, func(o map[string]any) bool {
			return !reflect.DeepEqual(lookup(o, path), lookup(end, path))
		})
	}
	clause := func(path ...string) {
		if text, ok := literal(lookup(end, path)); ok && same(path...) {
			clauses = append(clauses, expression(path)+" == "+text)
		}
	}
	for _, name := range facts.StateFields(status) {
		clause("status", name)
	}
	if g := status["observedGeneration"]; g != nil &&
		reflect.DeepEqual(g, lookup(end, []string{"metadata", "generation"})) {
		clauses = append(clauses, "object.status.observedGeneration == object.metadata.generation")
	}
	const most = 4
	counts := 0
	for _, name := range slices.Sorted(maps.Keys(status)) {
		switch status[name].(type) {
		case float64, bool:
			if counts < most && !opaque.MatchString(name) {
				clause("status", name)
				counts++
			}
		}
	}
	return append(clauses, conditions(status, others)...)
}

// conditions are clauses for the conditions that are true at the end.
func conditions(status map[string]any, others []map[string]any) (clauses []string) {
	const most = 3
	for _, typ := range trueConditions(status) {
		everywhere := !slices.ContainsFunc(others, func(o map[string]any) bool {
			s, _ := o["status"].(map[string]any)
			return !slices.Contains(trueConditions(s), typ)
		})
		// Progress is not a result.
		if everywhere && len(clauses) < most && !strings.Contains(typ, "Progress") {
			clauses = append(clauses, fmt.Sprintf(
				`object.status.conditions.exists(c, c.type == %q && c.status == "True")`,
				typ))
		}
	}
	return clauses
}

// conditionsOf lists the conditions of a status.
func conditionsOf(status map[string]any) (all []map[string]any) {
	list, _ := status["conditions"].([]any)
	for _, item := range list {
		if c, ok := item.(map[string]any); ok {
			all = append(all, c)
		}
	}
	return all
}

func trueConditions(status map[string]any) (types []string) {
	for _, c := range conditionsOf(status) {
		if typ, _ := c["type"].(string); typ != "" && c["status"] == "True" {
			types = append(types, typ)
		}
	}
	slices.Sort(types)
	return types
}

// meets reports whether an object meets a condition.
func meets(condition string, object map[string]any) bool {
	e, err := cel.Object.Compile(condition)
	if err != nil {
		return false
	}
	ok, err := e.Holds(map[string]any{"object": object})
	return err == nil && ok
}

// barrier is something that shows that a change has taken effect.
type barrier struct {
	wait *plan.Step // until the change has taken effect
	back *plan.Step // until it is undone; nil: nothing shows that
	at   int        // index of the change that shows it
}

// findBarrier finds the last thing that became different after the change with index at, in an object that can be
// named, other than the sample. Nil: there is none.
func findBarrier(changes []facts.Change, at int, sampleKey facts.Key) *barrier {
	before, end := states(changes[:at+1]), states(changes)
	for i := len(changes) - 1; i > at; i-- {
		c := &changes[i]
		key, ok := named(c)
		if c.Key == sampleKey || !ok {
			continue
		}
		was, is := before[c.Key], end[c.Key]
		switch {
		case c.Event == record.Deleted && is == nil && was != nil:
			return &barrier{wait: absent(key), back: exists(key), at: i}
		case c.Event == record.Created && is != nil && was == nil:
			return &barrier{wait: exists(key), back: absent(key), at: i}
		case is == nil || was == nil || c.Cur == nil:
			continue
		}
		path, from, to, ok := differentField(was, is)
		// The change must be the one that has brought it.
		if !ok || !reflect.DeepEqual(lookup(c.Cur, path), to) ||
			c.Prev != nil && reflect.DeepEqual(lookup(c.Prev, path), to) {
			continue
		}
		value, _ := literal(to)
		b := &barrier{at: i, wait: until(key, expression(path)+" == "+value,
			fmt.Sprintf("%s has the change", c.Key.Type()))}
		if back, ok := literal(from); ok {
			b.back = until(key, expression(path)+" == "+back, fmt.Sprintf("%s has its old value", c.Key.Type()))
		}
		return b
	}
	return nil
}

// states are the objects as they are after some changes; nil for those that are gone.
func states(changes []facts.Change) map[facts.Key]map[string]any {
	all := map[facts.Key]map[string]any{}
	for _, c := range changes {
		all[c.Key] = c.Cur
	}
	return all
}

// differentField finds a field outside the status and the metadata that differs, with a value that can be compared.
func differentField(was, is map[string]any) (path []string, from, to any, ok bool) {
	var walk func(path []string, was, is any) bool
	walk = func(at []string, w, v any) bool {
		switch v := v.(type) {
		case map[string]any:
			wm, _ := w.(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if len(at) == 0 && slices.Contains([]string{"status", "metadata", "kind", "apiVersion"}, name) ||
					opaque.MatchString(name) {
					continue
				}
				if walk(append(slices.Clip(at), name), wm[name], v[name]) {
					return true
				}
			}
			return false
		case []any:
			wl, _ := w.([]any)
			for i := range v {
				var before any
				if i < len(wl) {
					before = wl[i]
				}
				if walk(append(slices.Clip(at), strconv.Itoa(i)), before, v[i]) {
					return true
				}
			}
			return false
		}
		text, _ := v.(string)
		if _, fits := literal(v); fits && !reflect.DeepEqual(w, v) && !facts.IsTokenVolume(text) {
			path, from, to, ok = at, w, v, true
		}
		return ok
	}
	walk(nil, was, is)
	return path, from, to, ok
}

func until(key plan.ResourceKey, condition, name string) *plan.Step {
	return &plan.Step{Name: name, Wait: &plan.WaitStep{ResourceKey: key, Condition: condition}}
}

func absent(key plan.ResourceKey) *plan.Step {
	return &plan.Step{Name: key.Type + " " + key.Name + " is gone",
		Wait: &plan.WaitStep{ResourceKey: key, Absent: true}}
}

func exists(key plan.ResourceKey) *plan.Step {
	return until(key, "has(object.metadata)", key.Type+" "+key.Name+" exists")
}
