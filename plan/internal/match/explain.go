package match

import (
	"cmp"
	"fmt"
	"strings"
)

// Explain says what the condition asks of the states of the object, as the end of a sentence that names it: " with
// spec.replicas 2". It is empty if the condition asks nothing of them.
func (c Condition) Explain() string {
	prev, cur, err := compile(c.PrevState, c.CurState)
	if err != nil {
		prev, cur = nil, nil // an invalid state cannot be explained
	}
	prev, cur = cmp.Or(prev, &state{}), cmp.Or(cur, &state{})
	was := map[string]any{}
	for _, f := range prev.fields {
		was[f.path] = f.want
	}
	var changes, rest []string
	for _, f := range cur.fields {
		old, both := was[f.path]
		delete(was, f.path)
		_, isMap := f.want.(map[string]any)
		switch {
		case f.only:
			changes = append(changes, fmt.Sprintf("%s to %s", f.path, show(f.want)))
		case both && !same(old, f.want):
			changes = append(changes, fmt.Sprintf("%s from %s to %s", f.path, show(old), show(f.want)))
		case !isMap:
			rest = append(rest, fmt.Sprintf("%s is %s", f.path, show(f.want)))
		}
	}
	for _, f := range prev.fields {
		if want, ok := was[f.path]; ok && f.only {
			changes = append(changes, fmt.Sprintf("%s from %s", f.path, show(want)))
		}
	}
	var s string
	switch {
	case c.On == AnyFieldModified && len(prev.fields) > 1:
		s = " in which one of these loses its value: " + list(prev.fields)
	case c.On == AllFieldsModified && len(prev.fields) > 1:
		s = " in which all of these lose their values: " + list(prev.fields)
	case c.On == AnyFieldModified || c.On == AllFieldsModified:
		s = fmt.Sprintf(" after which %s is no longer %s", prev.fields[0].path, show(prev.fields[0].want))
	case c.On == Update && len(changes) > 0:
		s = " that changes " + strings.Join(changes, " and ")
		if len(rest) > 0 {
			s += " while " + strings.Join(rest, " and ")
		}
	case len(prev.fields)+len(cur.fields) > 0:
		s = " with " + list(append(prev.fields, cur.fields...))
	}
	if c.Where != "" {
		s += " where " + strings.Join(strings.Fields(c.Where), " ")
	}
	return s
}

func list(fields []field) string {
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = f.path + " " + show(f.want)
	}
	return strings.Join(parts, ", ")
}
