// Package match decides whether an event satisfies a condition on an object, and says in words what a condition asks.
// plan.Matcher documents what prevState, curState, $present, $absent and where mean. Only this package implements it.
package match

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	googlecel "github.com/google/cel-go/cel"

	"github.com/trommel-dev/trommel/internal/cel"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan/internal/jsonvalue"
)

// The placeholders for values in states.
const (
	Present = "$present" // has a value
	Absent  = "$absent"  // has no value; null means the same
)

// On says which events a condition is about.
type On int

// The events.
const (
	Creation On = iota
	Update
	Deletion
	AnyFieldModified
	AllFieldsModified
)

// Condition is a condition on an object.
type Condition struct {
	On                  On
	Name                string // of On in errors
	PrevState, CurState any    // nil: not given
	Where               string // CEL over object and oldObject
}

// Event says what happened to an object.
type Event string

// The events.
const (
	Created Event = "created"
	Updated Event = "updated"
	Deleted Event = "deleted"
	Read    Event = "read"
	Looking Event = "looking"
)

// Miss says why an event does not match.
type Miss struct {
	Text     string
	Distance int
}

// otherKind is the distance of an event of another kind.
const otherKind = 1 << 16

// Matcher is a compiled condition. It is immutable and safe for concurrent use.
type Matcher struct {
	kind  On
	prev  *state
	cur   *state
	where googlecel.Program
}

// whereCost limits one evaluation of a where, to some tens of milliseconds.
const whereCost = 200_000

// New compiles a condition. What a plan's checks reject may be an error here too.
func New(c Condition) (*Matcher, error) {
	prev, cur, err := compile(c.PrevState, c.CurState)
	if err != nil {
		return nil, err
	}
	m := &Matcher{kind: c.On, prev: prev, cur: cur}
	if (c.On == AnyFieldModified || c.On == AllFieldsModified) && (m.prev == nil || len(m.prev.fields) == 0) {
		return nil, fmt.Errorf("%s needs prevState with a field in it", c.Name)
	}
	if c.Where != "" {
		if m.where, err = cel.Transition.Program(c.Where, whereCost); err != nil {
			return nil, fmt.Errorf("where: CEL: %w", err)
		}
	}
	return m, nil
}

// Object is the state of an object as an observation shows it: JSON that is decoded once, when a condition first needs
// it. A nil Object is an unknown state. It is not safe for concurrent use.
type Object struct {
	json    []byte
	decoded bool
	value   any
	err     error
}

// NewObject returns the state in the JSON; for empty JSON it returns nil.
func NewObject(json []byte) *Object {
	if len(json) == 0 {
		return nil
	}
	return &Object{json: json}
}

// known returns the state, and whether it is known.
func (o *Object) known() (value any, known bool, err error) {
	if o == nil {
		return nil, false, nil
	}
	if !o.decoded {
		o.decoded = true
		o.value, o.err = jsonvalue.DecodeObject(o.json)
	}
	return o.value, true, o.err
}

// Match reports whether the event matches. Old and new are the object's states: old is nil for a creation or if
// unknown; new is the last state for a deletion, and nil for a read that found nothing or if unknown. If the event does
// not match, miss says why. The error is about invalid JSON.
func (m *Matcher) Match(kind Event, old, new *Object) (ok bool, miss Miss, err error) {
	if miss := m.kindMiss(kind, new != nil); miss != "" {
		return false, Miss{miss, otherKind}, nil
	}
	if m.prev == nil && m.cur == nil && m.where == nil {
		return true, Miss{}, nil
	}
	if kind == Deleted && old == nil {
		old = new // prevState applies to the last state
	}
	if (kind == Created || kind == Updated) && new == nil {
		return false, Miss{"the object's state is unknown there", otherKind}, nil
	}
	var v values
	if v.old, v.oldKnown, err = old.known(); err != nil {
		return false, Miss{}, fmt.Errorf("old object: %w", err)
	}
	if v.new, _, err = new.known(); err != nil {
		return false, Miss{}, fmt.Errorf("object: %w", err)
	}
	if misses := m.stateMisses(kind, &v); len(misses) > 0 {
		return false, nearestOf(misses), nil
	}
	if text := m.whereMiss(kind, &v); text != "" {
		return false, Miss{text, 2}, nil
	}
	return true, Miss{}, nil
}

// nearestOf returns the first miss, with the sum of all distances.
func nearestOf(misses []Miss) Miss {
	first := misses[0]
	for _, m := range misses[1:] {
		first.Distance += m.Distance
	}
	return first
}

func (m *Matcher) kindMiss(kind Event, found bool) string {
	switch kind {
	case Looking:
		switch {
		case m.kind != Update:
			return "it was about to be read, and nothing is known about it yet"
		case m.prev != nil || m.cur != nil || m.where != nil:
			return "it was about to be read, and its state is not known yet"
		}
		return ""
	case Read:
		switch {
		case m.kind == Update && !found:
			return "it was not found"
		case m.kind == Deletion && found:
			return "it was found"
		case m.kind == Update || m.kind == Deletion:
			return ""
		}
		return "it was read, and a read changes nothing"
	}
	want := Updated
	switch m.kind {
	case Creation:
		want = Created
	case Deletion:
		want = Deleted
	}
	if kind != want {
		return fmt.Sprintf("it was %s, not %s", kind, want)
	}
	return ""
}

// values holds the two states of the object; an unknown state is nil.
type values struct {
	old, new any
	oldKnown bool
}

// stateMisses returns the parts of the states that the event does not match.
func (m *Matcher) stateMisses(kind Event, v *values) []Miss {
	switch {
	case m.kind == Deletion:
		if v.oldKnown {
			return m.prev.misses(v.old, "was")
		}
		return nil
	case m.kind == Creation || kind == Read:
		return m.cur.misses(v.new, "is")
	case m.kind == AnyFieldModified || m.kind == AllFieldsModified:
		return m.lostMisses(v)
	}
	misses := m.cur.misses(v.new, "is")
	if v.oldKnown {
		misses = append(misses, m.prev.misses(v.old, "was")...)
	}
	for _, s := range []*state{m.prev, m.cur} {
		if s == nil {
			continue
		}
		for _, f := range s.fields {
			if !f.only {
				continue
			}
			now := f.at(v.new)
			switch {
			case v.oldKnown && same(f.at(v.old), now):
				misses = append(misses, Miss{fmt.Sprintf("%s did not change: it is %s", f.path, show(now)), 2})
			case !v.oldKnown && s == m.prev && f.holds(now):
				misses = append(misses, Miss{fmt.Sprintf("%s is still %s", f.path, show(now)), 2})
			}
		}
	}
	return misses
}

// lostMisses evaluates onAnyFieldModified and onAllFieldsModified.
func (m *Matcher) lostMisses(v *values) []Miss {
	var misses []Miss
	for _, f := range m.prev.fields {
		old, now := f.at(v.old), f.at(v.new)
		switch {
		case v.oldKnown && !f.holds(old):
			misses = append(misses, f.miss(old, "%s was %s before, not %s"))
		case f.holds(now):
			misses = append(misses, Miss{fmt.Sprintf("%s is still %s", f.path, show(now)), 2})
		case m.kind == AnyFieldModified:
			return nil
		}
	}
	return misses
}

func (m *Matcher) whereMiss(kind Event, v *values) string {
	if m.where == nil {
		return ""
	}
	vars := map[string]any{"object": v.new, "oldObject": v.old}
	if kind == Created {
		vars["oldObject"] = nil
	}
	out, _, err := m.where.Eval(vars)
	if err != nil {
		return "where: " + err.Error()
	}
	if out.Value() != true {
		return "where is false"
	}
	return ""
}

// state is a compiled prevState or curState.
type state struct {
	fields []field
	named  map[string]bool // the paths of all places that the state names, and of their parents
}

// field is one field of a state.
type field struct {
	steps []any  // its path in the object: a string for a mapping's field, an int for a list's item
	path  string // the same for messages
	want  any    // as jsonvalue.DecodeObject returns it, or present
	only  bool   // the other state names neither this place nor one within it
}

// present is the wanted value if any value will do.
type present struct{}

// compile compiles prevState and curState; one that is not given is nil.
func compile(prevState, curState any) (prev, cur *state, err error) {
	if prevState != nil {
		if prev, err = compileState(prevState); err != nil {
			return nil, nil, fmt.Errorf("prevState: %w", err)
		}
	}
	if curState != nil {
		if cur, err = compileState(curState); err != nil {
			return nil, nil, fmt.Errorf("curState: %w", err)
		}
	}
	prev.only(cur)
	cur.only(prev)
	return prev, cur, nil
}

// CheckState returns what is wrong with a state.
func CheckState(v any) error {
	_, err := compileState(v)
	return err
}

// compileState compiles a state on its own.
func compileState(v any) (*state, error) {
	if _, ok := v.(map[string]any); !ok {
		return nil, errors.New("a state must be a mapping, a part of the object")
	}
	s := &state{named: map[string]bool{}}
	return s, s.collect(nil, "", v)
}

func (s *state) collect(steps []any, path string, v any) error {
	s.named[path] = true
	steps = slices.Clip(steps) // the places within it share the slice
	want := v
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			at := path
			switch {
			case key == "" || strings.ContainsAny(key, ".[]\" "):
				at += "[" + strconv.Quote(key) + "]"
			case path == "":
				at = key
			default:
				at += "." + key
			}
			if err := s.collect(append(steps, key), at, v[key]); err != nil {
				return err
			}
		}
		if len(v) > 0 || len(steps) == 0 {
			return nil
		}
	case []any:
		for i, item := range v {
			if err := s.collect(append(steps, i), fmt.Sprintf("%s[%d]", path, i), item); err != nil {
				return err
			}
		}
		if len(v) > 0 {
			return nil
		}
	case string:
		switch v {
		case Present:
			want = present{}
		case Absent:
			want = nil
		}
	case int:
		want = int64(v)
	case int32:
		want = int64(v)
	case float64:
		want = jsonvalue.Whole(v)
	case nil, bool, int64:
	default:
		return fmt.Errorf("%s: a value of Go type %T has no JSON form", path, v)
	}
	s.fields = append(s.fields, field{steps: steps, path: path, want: want})
	return nil
}

// only marks the fields that the other state does not name.
func (s *state) only(other *state) {
	if s == nil {
		return
	}
	for i := range s.fields {
		s.fields[i].only = other == nil || !other.named[s.fields[i].path]
	}
}

// misses returns the parts of the state that the object does not contain; none for a state that is not given.
func (s *state) misses(object any, is string) []Miss {
	if s == nil {
		return nil
	}
	var misses []Miss
	for _, f := range s.fields {
		if has := f.at(object); !f.holds(has) {
			misses = append(misses, f.miss(has, "%s "+is+" %s, not %s"))
		}
	}
	return misses
}

// at returns the object's value at the field's place; nil if it has none.
func (f *field) at(object any) any {
	for _, step := range f.steps {
		switch step := step.(type) {
		case string:
			m, _ := object.(map[string]any)
			object = m[step]
		case int:
			list, _ := object.([]any)
			if step >= len(list) {
				return nil
			}
			object = list[step]
		}
	}
	return object
}

// miss describes a field with another value; the format takes the field, its value, and the wanted value.
func (f *field) miss(has any, format string) Miss {
	m := Miss{fmt.Sprintf(format, f.path, show(has), show(f.want)), 2}
	if strings.Trim(show(has), `"`) == strings.Trim(show(f.want), `"`) {
		m.Distance = 1 // the same value as another type: the plan may lack quotes
	}
	return m
}

// holds reports whether the value is the wanted one.
func (f *field) holds(has any) bool {
	switch f.want.(type) {
	case present:
		return has != nil
	case map[string]any:
		_, ok := has.(map[string]any)
		return ok
	case []any:
		_, ok := has.([]any)
		return ok
	}
	return same(f.want, has)
}

// show formats a value, or a wanted value, for a message.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "without a value"
	case present:
		return "a value"
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return wording.Shorten(strconv.Quote(v))
	}
	return fmt.Sprint(v)
}

// same reports whether two values are equal. Numbers are compared by value; nothing and null are the same.
func same(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			w, ok := b[k]
			if !ok || !same(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, same)
	case int64:
		if b, ok := b.(float64); ok {
			return float64(a) == b
		}
	case float64:
		if b, ok := b.(int64); ok {
			return a == float64(b)
		}
	}
	return a == b
}
