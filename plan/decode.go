package plan

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
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	keyType      = reflect.TypeFor[ResourceKey]()
)

// decode reads a node into a Go value and reports every mistake in it. The slot holds the node; a short form is
// replaced there by the long form, so that each field has a place.
func (s *source) decode(slot **yaml.Node, v reflect.Value, f *shapeField) {
	n, t, what := *slot, v.Type(), f.called
	if f.as != "" {
		s.decodeAs(n, v, f)
		return
	}
	switch t {
	case durationType:
		v.SetInt(int64(s.duration(n, what)))
		return
	case keyType:
		v.Set(reflect.ValueOf(s.resourceKey(n, what)))
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		s.decode(slot, v.Elem(), f)
	case reflect.String:
		if f.words != nil {
			v.SetString(s.word(n, what, f.words))
		} else {
			v.SetString(s.scalar(n, what))
		}
	case reflect.Bool:
		v.SetBool(s.boolean(n, what))
	case reflect.Int:
		v.SetInt(int64(s.integer(n, what, f.numbers)))
	case reflect.Slice:
		items := s.list(n, what)
		if len(items) == 0 {
			return
		}
		v.Set(reflect.MakeSlice(t, len(items), len(items)))
		item := shapeField{called: cmp.Or(f.item, "an item of "+what)}
		for i := range items {
			s.decode(&items[i], v.Index(i), &item)
		}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			if m := s.object(n, what); m != nil {
				v.Set(reflect.ValueOf(m))
			}
			return
		}
		s.named(n, what, func(name string, slot **yaml.Node) {
			value := reflect.New(t.Elem()).Elem()
			if t.Elem().Kind() != reflect.Struct || !isNull(deref(*slot)) {
				s.decode(slot, value, &shapeField{called: cmp.Or(f.item, name+" in "+what)})
			}
			setIndex(v, name, value)
		})
	case reflect.Struct:
		if sh := shapeOf(t); sh.short {
			if long := v.Addr().Interface().(shortened).long(s, n); long != nil {
				*slot, n = long, long
			}
		}
		if r := deref(n); r.Kind != yaml.MappingNode {
			s.errorf(r, "%s must be a mapping, not %s", what,
				kindOf(r)) // at the anchor: an alias repeats the same mistake
		} else {
			s.mapping(r, v, what)
		}
	case reflect.Interface:
		if value := s.value(n); value != nil {
			v.Set(reflect.ValueOf(value))
		}
	}
}

func setIndex(m reflect.Value, name string, value reflect.Value) {
	if m.IsNil() {
		m.Set(reflect.MakeMap(m.Type()))
	}
	m.SetMapIndex(reflect.ValueOf(name), value)
}

// mapping reads a mapping's fields into a struct. It skips null fields.
func (s *source) mapping(n *yaml.Node, v reflect.Value, what string) {
	if a, ok := v.Addr().Interface().(*Action); ok {
		a.prepareOwn(n)
	}
	all := parts(v)
	find := func(name string) (sh *shape, f *shapeField, part reflect.Value) {
		for _, part := range all {
			sh := shapeOf(part.Type())
			if f := sh.field(name); f != nil {
				return sh, f, part
			}
		}
		return nil, nil, v
	}
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, slot := deref(n.Content[i]), &n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			s.errorf(n.Content[i], "a field name in %s must be text, not %s", what, kindOf(key))
			continue
		}
		sh, f, part := find(key.Value)
		if f == nil {
			if hint := hints[what][key.Value]; hint != "" {
				s.errorf(n.Content[i], "unknown field %q in %s; %s", key.Value, what, hint)
			} else {
				s.errorf(n.Content[i], "unknown field %q in %s%s", key.Value, what, didYouMean(key.Value, names(all)))
			}
			continue
		}
		if line, twice := lines[f.name]; twice {
			s.errorf(n.Content[i], "duplicate field %q; first at line %d", f.name, line)
			continue
		}
		lines[f.name] = n.Content[i].Line
		if key.Value != f.name {
			renamed := *n.Content[i]
			renamed.Kind, renamed.Value, renamed.Alias = yaml.ScalarNode, f.name, nil
			n.Content[i] = &renamed
		}
		if isNull(deref(*slot)) {
			continue
		}
		for _, same := range sh.fields {
			if same.name != f.name {
				continue
			}
			if key.Line == (*slot).Line && key.Column == (*slot).Column {
				same.called = what // a short form has only this field: messages name the whole
			}
			s.decode(slot, part.FieldByIndex(same.index), &same)
		}
	}
}

// parts returns the structs that a mapping is read into: the struct itself and, for an action, the struct with the
// fields of its type.
func parts(v reflect.Value) []reflect.Value {
	if v.Type() == reflect.TypeFor[Action]() {
		if own := v.FieldByName("Own"); !own.IsNil() {
			return []reflect.Value{v, own.Elem().Elem()}
		}
	}
	return []reflect.Value{v}
}

// names returns the names of the fields of all parts.
func names(parts []reflect.Value) []string {
	var all []string
	for _, part := range parts {
		all = append(all, shapeOf(part.Type()).names...)
	}
	return all
}

// prepareOwn allocates the struct with the fields that only the action's type has.
func (a *Action) prepareOwn(n *yaml.Node) {
	if _, typ := entry(n, "actionType"); typ != nil {
		if k := kindOfAction(ActionType(deref(typ).Value)); k != nil && k.Own != nil {
			a.Own = k.Own()
		}
	}
}

// entry returns the key and the value of a mapping's field, or nil.
func entry(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n = deref(n); n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if deref(n.Content[i]).Value == name {
			if isNull(deref(n.Content[i+1])) {
				return n.Content[i], nil
			}
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// decodeAs reads a field whose Go type does not say how it is written.
func (s *source) decodeAs(n *yaml.Node, v reflect.Value, f *shapeField) {
	switch f.as {
	case "state": // a part of an object, as YAML or as JSON in a string
		if state := s.state(n, f.called); state != nil {
			v.Set(reflect.ValueOf(state))
		}
	case "command":
		v.Set(reflect.ValueOf(s.command(n, f.called)))
	case "deployment":
		v.Set(reflect.ValueOf(s.deployment(n)))
	case "variables": // the variables of env that are text
		s.named(n, f.called, func(name string, slot **yaml.Node) {
			if deref(*slot).Kind != yaml.MappingNode {
				setIndex(v, name, reflect.ValueOf(s.scalar(*slot, name+" in "+f.called)))
			}
		})
	case "sources": // the variables of env that are mappings with valueFrom
		s.named(n, f.called, func(name string, slot **yaml.Node) {
			if deref(*slot).Kind == yaml.MappingNode {
				if from := s.variable(name, *slot); from != nil {
					setIndex(v, name, reflect.ValueOf(from))
				}
			}
		})
	}
}

// list returns the items of a list. It reports anything else and returns nil.
func (s *source) list(n *yaml.Node, what string) []*yaml.Node {
	r := deref(n)
	if r.Kind != yaml.SequenceNode {
		s.errorf(n, "%s must be a list, not %s", what, kindOf(r))
		return nil
	}
	return r.Content
}

// named calls each for every entry of a mapping whose keys are names.
func (s *source) named(n *yaml.Node, what string, each func(name string, slot **yaml.Node)) {
	r := deref(n)
	if r.Kind != yaml.MappingNode {
		s.errorf(n, "%s must be a mapping, not %s", what, kindOf(r))
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(r.Content); i += 2 {
		key := deref(r.Content[i])
		if key.Kind != yaml.ScalarNode {
			s.errorf(r.Content[i], "a name in %s must be text, not %s", what, kindOf(key))
			continue
		}
		if line, ok := lines[key.Value]; ok {
			s.errorf(r.Content[i], "duplicate %q in %s; first at line %d", key.Value, what, line)
			continue
		}
		lines[key.Value] = r.Content[i].Line
		each(key.Value, &r.Content[i+1])
	}
}

// scalar reads a string.
func (s *source) scalar(n *yaml.Node, what string) string {
	r := deref(n)
	switch {
	case r.Kind != yaml.ScalarNode:
		s.errorf(n, "%s must be text, not %s", what, kindOf(r))
		return ""
	case r.Tag == "!!int", r.Tag == "!!float", r.Tag == "!!bool", r.Tag == "!!null":
		s.errorf(n, "%s must be text, not %s; write %s", what, kindOf(r), strconv.Quote(r.Value))
		return ""
	}
	return r.Value
}

// isEmpty reports whether the node is an empty string.
func isEmpty(n *yaml.Node) bool {
	r := deref(n)
	return r != nil && r.Kind == yaml.ScalarNode && r.Value == ""
}

// word reads one of a set of words.
func (s *source) word(n *yaml.Node, what string, known []string) string {
	word := s.scalar(n, what)
	switch {
	case word == "" && isEmpty(n):
		s.errorf(n, "%s is empty%s", what, didYouMean("", known))
	case word != "" && !slices.Contains(known, word):
		s.errorf(n, "unknown %s %q%s", what, word, didYouMean(word, known))
		return ""
	}
	return word
}

func stringsOf[T ~string](list []T) []string {
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = string(v)
	}
	return words
}

func (s *source) boolean(n *yaml.Node, what string) bool {
	r := deref(n)
	if r.Kind != yaml.ScalarNode || r.Tag != "!!bool" {
		s.errorf(n, "%s must be true or false, not %s", what, kindOf(r))
		return false
	}
	return strings.EqualFold(r.Value, "true")
}

// integer reads a whole number within the bounds, if there are any.
func (s *source) integer(n *yaml.Node, what string, bounds []string) int {
	r := deref(n)
	v, err := strconv.Atoi(r.Value)
	if err != nil && r.Tag == "!!int" {
		err = r.Decode(&v) // 0x1f, 1_000
	}
	if r.Kind == yaml.ScalarNode && r.Tag == "!!int" && err == nil {
		if len(bounds) == 2 {
			least, _ := strconv.Atoi(bounds[0])
			greatest, _ := strconv.Atoi(bounds[1])
			if v < least || v > greatest {
				s.errorf(n, "%s is %d; it can be %d to %d", what, v, least, greatest)
				return 0
			}
		}
		return v
	}
	switch digits := strings.TrimLeft(r.Value, "+-"); {
	case r.Kind == yaml.ScalarNode && r.Tag != "!!str" && digits != "" && strings.Trim(digits, "0123456789") == "":
		s.errorf(n, "%s: the number %s is too large", what, r.Value)
	case r.Tag == "!!float":
		s.errorf(n, "%s must be a whole number, not %s", what, r.Value)
	default:
		s.errorf(n, "%s must be a whole number, not %s", what, kindOf(r))
	}
	return 0
}

// longDuration matches durations that may be too long for time.ParseDuration.
var longDuration = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(h|m|s|ms|us|µs|ns)$`)

// duration reads a Go duration.
func (s *source) duration(n *yaml.Node, what string) time.Duration {
	r := deref(n)
	if r.Kind != yaml.ScalarNode {
		s.errorf(n, "%s must be a duration such as 20s, not %s", what, kindOf(r))
		return 0
	}
	v, err := time.ParseDuration(r.Value)
	switch {
	case err != nil && (r.Tag == "!!int" || r.Tag == "!!float"):
		s.errorf(n, "%s: a duration needs a unit; write %ss", what, r.Value)
	case err != nil && longDuration.MatchString(r.Value):
		s.errorf(n, "%s: %s is longer than a duration can be", what, r.Value)
	case err != nil:
		s.errorf(n, "%s: %q is not a duration; write it like 20s, 1m30s or 500ms", what, r.Value)
	case v < 0:
		s.errorf(n, "%s: a duration must not be negative", what)
	default:
		return v
	}
	return 0
}

func (s *source) resourceKey(n *yaml.Node, what string) ResourceKey {
	text := s.scalar(n, what)
	if text == "" {
		if isEmpty(n) {
			s.errorf(n, "%s is empty; write type/namespace/name", what)
		}
		return ResourceKey{}
	}
	k, err := ParseResourceKey(text)
	if err != nil {
		s.errorf(n, "%s %v", what, err)
		return ResourceKey{}
	}
	return k
}

// deployment reads namespace/name, or a resource key such as deployment/namespace/name.
func (s *source) deployment(n *yaml.Node) ResourceKey {
	text := s.scalar(n, "deployment")
	parts := strings.Split(text, "/")
	if len(parts) == 3 && (parts[0] == "deployment" || parts[0] == "deployment.apps") {
		parts = parts[1:]
	}
	if len(parts) != 2 || !validNamespace(parts[0]) || !validName(parts[1], true) {
		if text != "" || isEmpty(n) {
			s.errorf(n, "deployment %q: write namespace/name", text)
		}
		return ResourceKey{}
	}
	return ResourceKey{Type: "deployment", Group: "apps", Namespace: parts[0], Name: parts[1]}
}

// command reads a program with its arguments.
func (s *source) command(n *yaml.Node, what string) []string {
	if r := deref(n); r.Kind == yaml.ScalarNode {
		s.errorf(n, "%s must be a list such as [sh, -c, %q]", what, r.Value)
		return nil
	}
	var list []string
	for _, item := range s.list(n, what) {
		list = append(list, s.scalar(item, "an item of "+what))
	}
	if len(list) == 0 && deref(n).Kind == yaml.SequenceNode {
		s.errorf(n, "%s is empty", what)
	}
	return list
}

var valueSources = []string{"fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef"}

// variable reads an environment variable that is a mapping, as in a container of a pod.
func (s *source) variable(name string, n *yaml.Node) map[string]any {
	var v struct {
		From map[string]any `yaml:"valueFrom"`
	}
	s.mapping(deref(n), reflect.ValueOf(&v).Elem(), "a variable of env")
	_, from := entry(n, "valueFrom")
	switch {
	case from == nil:
		s.errorf(n, "%s in env must be text, or a mapping with valueFrom", name)
	case len(v.From) != 1 || !slices.Contains(valueSources, sortedKeys(v.From)[0]):
		s.errorf(from, "valueFrom of %s takes one of: %s", name, strings.Join(valueSources, ", "))
	default:
		return v.From
	}
	return nil
}

// object reads a mapping, such as a Kubernetes object.
func (s *source) object(n *yaml.Node, what string) map[string]any {
	m, ok := s.value(n).(map[string]any)
	if !ok {
		s.errorf(n, "%s must be a mapping, not %s", what, kindOf(deref(n)))
	}
	return m
}

// value reads any YAML as the types that JSON has: map[string]any, []any, string, int64, float64, bool, nil.
func (s *source) value(n *yaml.Node) any {
	r := deref(n)
	switch r.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(r.Content)/2)
		for i := 0; i+1 < len(r.Content); i += 2 {
			key := deref(r.Content[i])
			if key.Kind != yaml.ScalarNode {
				s.errorf(r.Content[i], "a field name must be text, not %s", kindOf(key))
				continue
			}
			if _, ok := m[key.Value]; ok {
				s.errorf(r.Content[i], "duplicate field %q", key.Value)
				continue
			}
			m[key.Value] = s.value(r.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(r.Content))
		for i, c := range r.Content {
			list[i] = s.value(c)
		}
		return list
	}
	switch r.Tag {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(r.Value, "true")
	case "!!int":
		v, err := strconv.ParseInt(r.Value, 10, 64)
		if err != nil {
			err = r.Decode(&v) // 0x1f, 1_000
		}
		if err == nil {
			return v
		}
		fallthrough
	case "!!float":
		v, err := strconv.ParseFloat(r.Value, 64)
		if err != nil {
			err = r.Decode(&v)
		}
		if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			s.errorf(n, "%s is not a number that JSON can hold", r.Value)
			return nil
		}
		return whole(v)
	}
	return r.Value
}

// whole turns a number without a fraction into an int64: JSON does not distinguish 1 and 1.0.
func whole(f float64) any {
	if math.Trunc(f) == f && math.Abs(f) < 1<<53 {
		return int64(f)
	}
	return f
}

// state reads prevState or curState: a mapping, or JSON in a string.
func (s *source) state(n *yaml.Node, what string) any {
	r := deref(n)
	if r.Kind == yaml.ScalarNode && strings.HasPrefix(strings.TrimSpace(r.Value), "{") {
		v, err := decodeJSON([]byte(r.Value))
		if err != nil {
			s.errorf(n, "%s is not JSON: %v; write it as YAML", what, err)
			return nil
		}
		if !eachValue(v, maxDepth/2, func(any) {}) {
			s.errorf(n, "%s is nested deeper than %d", what, maxDepth/2)
			return nil
		}
		return s.checkWords(n, what, v)
	}
	if r.Kind != yaml.MappingNode {
		s.errorf(n, "%s must be a mapping, a part of the object, not %s", what, kindOf(r))
		return nil
	}
	return s.checkWords(n, what, s.value(n))
}

// eachValue visits a value and all values in it. It returns false if they are nested deeper than depth.
func eachValue(v any, depth int, visit func(any)) bool {
	if depth < 0 {
		return false
	}
	visit(v)
	ok := true
	switch v := v.(type) {
	case map[string]any:
		for _, w := range v {
			ok = eachValue(w, depth-1, visit) && ok
		}
	case []any:
		for _, w := range v {
			ok = eachValue(w, depth-1, visit) && ok
		}
	}
	return ok
}

// checkWords reports misspelled $present and $absent.
func (s *source) checkWords(n *yaml.Node, what string, v any) any {
	bad, known := "", []string{Present, Absent}
	eachValue(v, maxDepth, func(v any) {
		if v, _ := v.(string); len(v) > 3 && v[0] == '$' && !slices.Contains(known, v) && closest(v, known) != "" {
			bad = v
		}
	})
	if bad != "" {
		s.report(find(n, bad), "unknown word %q in %s%s", bad, what, didYouMean(bad, known))
	}
	return v
}

// find returns the first scalar below n that has the value, or n.
func find(n *yaml.Node, value string) *yaml.Node {
	r := deref(n)
	for i, c := range r.Content {
		if r.Kind == yaml.MappingNode && i%2 == 0 {
			continue
		}
		if c.Kind == yaml.ScalarNode && c.Value == value {
			return c
		}
		if found := find(c, value); found != c {
			return found
		}
	}
	return n
}
