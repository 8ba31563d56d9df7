package yamlfile

import (
	"cmp"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan/internal/jsonvalue"
)

var durationType = reflect.TypeFor[time.Duration]()

// decode reads a node into a Go value and reports every mistake in it. The slot holds the node; a short form is
// replaced there by the long form, so that each field has a place.
func (f *File) decode(slot **yaml.Node, v reflect.Value, field *Field) {
	n, t, what := *slot, v.Type(), field.called
	special, ok := f.Format.As[field.As]
	if !ok {
		special, ok = f.Format.Types[t]
	}
	switch {
	case ok:
		special.Read(f, n, v, what)
		return
	case t == durationType:
		v.SetInt(int64(f.Duration(n, what)))
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		f.decode(slot, v.Elem(), field)
	case reflect.String:
		if field.Words != nil {
			v.SetString(f.word(n, what, field.Words))
		} else {
			v.SetString(f.Scalar(n, what))
		}
	case reflect.Bool:
		r := Deref(n)
		if r.Kind != yaml.ScalarNode || r.Tag != "!!bool" {
			f.Errorf(n, "%s must be true or false, not %s", what, KindOf(r))
			return
		}
		v.SetBool(strings.EqualFold(r.Value, "true"))
	case reflect.Int:
		v.SetInt(int64(f.integer(n, what, field.Range)))
	case reflect.Slice:
		items := f.List(n, what)
		if len(items) == 0 {
			return
		}
		v.Set(reflect.MakeSlice(t, len(items), len(items)))
		item := Field{called: cmp.Or(field.item, "an item of "+what)}
		for i := range items {
			f.decode(&items[i], v.Index(i), &item)
		}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			if m, ok := f.Value(n).(map[string]any); ok {
				v.Set(reflect.ValueOf(m))
			} else {
				f.Errorf(n, "%s must be a mapping, not %s", what, KindOf(Deref(n)))
			}
			return
		}
		f.Entries(n, what, func(name string, slot **yaml.Node) {
			value := reflect.New(t.Elem()).Elem()
			if t.Elem().Kind() != reflect.Struct || !isNull(Deref(*slot)) {
				f.decode(slot, value, &Field{called: cmp.Or(field.item, name+" in "+what)})
			}
			if v.IsNil() {
				v.Set(reflect.MakeMap(t))
			}
			v.SetMapIndex(reflect.ValueOf(name), value)
		})
	case reflect.Struct:
		if short := f.Format.Short[t]; short != nil {
			if long := short(f, n); long != nil {
				*slot, n = long, long
			}
		}
		f.Struct(n, v, what)
	case reflect.Interface:
		if value := f.Value(n); value != nil {
			v.Set(reflect.ValueOf(value))
		}
	}
}

// Struct reads a mapping's fields into a struct. It skips null fields.
func (f *File) Struct(node *yaml.Node, v reflect.Value, what string) {
	n := Deref(node)
	if n.Kind != yaml.MappingNode {
		f.Errorf(n, "%s must be a mapping, not %s", what, KindOf(n)) // at the anchor: an alias repeats the same mistake
		return
	}
	if prepare := f.Format.Prepare[v.Type()]; prepare != nil {
		prepare(v.Addr().Interface(), n)
	}
	parts := f.Format.parts(v)
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, slot := Deref(n.Content[i]), &n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			f.Errorf(n.Content[i], "a field name in %s must be text, not %s", what, KindOf(key))
			continue
		}
		sh, field, part := f.Format.find(key.Value, parts)
		if field == nil {
			hint := f.Format.Hints[what][key.Value]
			if hint != "" {
				hint = "; " + hint
			} else {
				hint = wording.Suggest(key.Value, f.Format.names(parts))
			}
			f.Errorf(n.Content[i], "unknown field %q in %s%s", key.Value, what, hint)
			continue
		}
		if line, twice := lines[field.Name]; twice {
			f.Errorf(n.Content[i], "duplicate field %q; first at line %d", field.Name, line)
			continue
		}
		lines[field.Name] = n.Content[i].Line
		if key.Value != field.Name {
			renamed := *n.Content[i]
			renamed.Kind, renamed.Value, renamed.Alias = yaml.ScalarNode, field.Name, nil
			n.Content[i] = &renamed
		}
		if isNull(Deref(*slot)) {
			continue
		}
		for _, same := range sh.Fields {
			if same.Name != field.Name {
				continue
			}
			if key.Line == (*slot).Line && key.Column == (*slot).Column {
				same.called = what // a short form has only this field: messages name the whole
			}
			f.decode(slot, part.FieldByIndex(same.Index), &same)
		}
	}
}

// List returns the items of a list. It reports anything else and returns nil.
func (f *File) List(n *yaml.Node, what string) []*yaml.Node {
	r := Deref(n)
	if r.Kind != yaml.SequenceNode {
		f.Errorf(n, "%s must be a list, not %s", what, KindOf(r))
		return nil
	}
	return r.Content
}

// Entries calls each for every entry of a mapping whose keys are names.
func (f *File) Entries(n *yaml.Node, what string, each func(name string, slot **yaml.Node)) {
	r := Deref(n)
	if r.Kind != yaml.MappingNode {
		f.Errorf(n, "%s must be a mapping, not %s", what, KindOf(r))
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(r.Content); i += 2 {
		key := Deref(r.Content[i])
		if key.Kind != yaml.ScalarNode {
			f.Errorf(r.Content[i], "a name in %s must be text, not %s", what, KindOf(key))
			continue
		}
		if line, ok := lines[key.Value]; ok {
			f.Errorf(r.Content[i], "duplicate %q in %s; first at line %d", key.Value, what, line)
			continue
		}
		lines[key.Value] = r.Content[i].Line
		each(key.Value, &r.Content[i+1])
	}
}

// Scalar reads a string.
func (f *File) Scalar(n *yaml.Node, what string) string {
	r := Deref(n)
	switch {
	case r.Kind != yaml.ScalarNode:
		f.Errorf(n, "%s must be text, not %s", what, KindOf(r))
		return ""
	case r.Tag == "!!int", r.Tag == "!!float", r.Tag == "!!bool", r.Tag == "!!null":
		f.Errorf(n, "%s must be text, not %s; write %s", what, KindOf(r), strconv.Quote(r.Value))
		return ""
	}
	return r.Value
}

// word reads one of a set of words.
func (f *File) word(n *yaml.Node, what string, known []string) string {
	word := f.Scalar(n, what)
	switch {
	case word == "" && IsEmpty(n):
		f.Errorf(n, "%s is empty%s", what, wording.Suggest("", known))
	case word != "" && !slices.Contains(known, word):
		f.Errorf(n, "unknown %s %q%s", what, word, wording.Suggest(word, known))
		return ""
	}
	return word
}

// integer reads a whole number within the bounds, if there are any.
func (f *File) integer(n *yaml.Node, what string, bounds []string) int {
	r := Deref(n)
	digits := strings.TrimLeft(r.Value, "+-")
	switch v, err := wholeNumber(r); {
	case r.Tag == "!!int" && err == nil:
		if len(bounds) < 2 {
			return int(v)
		}
		least, _ := strconv.ParseInt(bounds[0], 10, 64)
		greatest, _ := strconv.ParseInt(bounds[1], 10, 64)
		if v >= least && v <= greatest {
			return int(v)
		}
		f.Errorf(n, "%s is %d; it can be %d to %d", what, v, least, greatest)
	case r.Kind == yaml.ScalarNode && r.Tag != "!!str" && digits != "" && strings.Trim(digits, "0123456789") == "":
		f.Errorf(n, "%s: the number %s is too large", what, r.Value)
	case r.Tag == "!!float":
		f.Errorf(n, "%s must be a whole number, not %s", what, r.Value)
	default:
		f.Errorf(n, "%s must be a whole number, not %s", what, KindOf(r))
	}
	return 0
}

// wholeNumber reads a whole number. Unlike the YAML package it reads 010 as ten.
func wholeNumber(r *yaml.Node) (v int64, err error) {
	if v, err = strconv.ParseInt(r.Value, 10, 64); err != nil {
		err = r.Decode(&v) // 0x1f, 1_000
	}
	return v, err
}

// longDuration matches durations that may be too long for time.ParseDuration.
var longDuration = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(h|m|s|ms|us|µs|ns)$`)

// Duration reads a Go duration.
func (f *File) Duration(n *yaml.Node, what string) time.Duration {
	r := Deref(n)
	if r.Kind != yaml.ScalarNode {
		f.Errorf(n, "%s must be a duration such as 20s, not %s", what, KindOf(r))
		return 0
	}
	v, err := time.ParseDuration(r.Value)
	switch {
	case err != nil && (r.Tag == "!!int" || r.Tag == "!!float"):
		f.Errorf(n, "%s: a duration needs a unit; write %ss", what, r.Value)
	case err != nil && longDuration.MatchString(r.Value):
		f.Errorf(n, "%s: %s is longer than a duration can be", what, r.Value)
	case err != nil:
		f.Errorf(n, "%s: %q is not a duration; write it like 20s, 1m30s or 500ms", what, r.Value)
	case v < 0:
		f.Errorf(n, "%s: a duration must not be negative", what)
	default:
		return v
	}
	return 0
}

// Value reads any YAML as the types that JSON has: map[string]any, []any, string, int64, float64, bool, nil.
func (f *File) Value(n *yaml.Node) any {
	r := Deref(n)
	switch r.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(r.Content)/2)
		for i := 0; i+1 < len(r.Content); i += 2 {
			key := Deref(r.Content[i])
			if key.Kind != yaml.ScalarNode {
				f.Errorf(r.Content[i], "a field name must be text, not %s", KindOf(key))
			} else if _, ok := m[key.Value]; ok {
				f.Errorf(r.Content[i], "duplicate field %q", key.Value)
			} else {
				m[key.Value] = f.Value(r.Content[i+1])
			}
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(r.Content))
		for i, c := range r.Content {
			list[i] = f.Value(c)
		}
		return list
	}
	switch r.Tag {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(r.Value, "true")
	case "!!int", "!!float":
		if v, err := wholeNumber(r); err == nil && r.Tag == "!!int" {
			return v
		}
		var number float64
		if err := r.Decode(&number); err != nil || math.IsInf(number, 0) || math.IsNaN(number) {
			f.Errorf(n, "%s is not a number that JSON can hold", r.Value)
			return nil
		}
		return jsonvalue.Whole(number)
	}
	return r.Value
}
