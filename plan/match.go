package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	googlecel "github.com/google/cel-go/cel"

	"github.com/trommel-dev/trommel/internal/cel"
)

// The placeholders for values in prevState and curState.
const (
	Present = "$present" // has a value
	Absent  = "$absent"  // has no value; null means the same
)

// EventKind says what happened to an object, according to an observation.
type EventKind string

// The kinds of events. A patch or server-side apply is a creation or an update, depending on its outcome.
const (
	Created EventKind = "created"
	Updated EventKind = "updated"
	Deleted EventKind = "deleted"
	Read    EventKind = "read"    // nothing happened: a controller has read it
	Looking EventKind = "looking" // nothing happened: a controller is about to read it
)

// Miss says why an event does not match.
type Miss struct {
	Text string // one line: "spec.replicas is 3, not 2"
	// Distance orders misses: 2 for each field without the wanted value, 1 for a field that has it as another type ("2"
	// for 2), far more for another kind of event.
	Distance int
}

// otherKind is the distance of an event of another kind.
const otherKind = 1 << 16

// Matcher decides whether an event satisfies a condition on an object. It is the only place where prevState, curState,
// $present, $absent and where are given their meaning; it ignores the object's type and name, and repeat.
//
// A state is a part of an object. An object contains a state if it contains all its fields:
//
//	state           contained in an object that has there
//	2               2, 2.0 or 2e0, but no text
//	"2"             only the text "2"; so a quantity is compared as it is written
//	true, "text"    the same
//	$present        anything but null
//	$absent, null   null or no field, here or at a parent
//	{}              any mapping
//	{a: …, b: …}    at a what a says, and at b what b says; other fields may have any value
//	[]              any list
//	[x, y]          x first and y second, in this order; further items may have any value
//
// The fields of a state are its values and its empty mappings and lists.
//
//	condition             event     satisfied when
//	onObjectCreation      created   the new object contains curState
//	onObjectDeletion      deleted   the last object contains prevState
//	onObjectUpdate        updated   the old object contains prevState, the new one contains curState, and each field
//	                                that only one of them names has another value in the old object than in the new
//	onAnyFieldModified    updated   some field of prevState had the given value in the old object and has another
//	                                one, or none, in the new object
//	onAllFieldsModified   updated   the same for every field of prevState
//
// A state that is not given is contained in everything and names nothing, so a condition without states matches any
// update. A state {metadata: {}} names metadata itself: if one state names metadata and the other a field within it,
// only that field has to change.
//
// If the process does not know the object's state before an update, the update matches if it could: whatever depends on
// the old object is assumed, but a field that only prevState names must not still have its value. An old state null
// means that there was no object. If the new state is unknown, only a condition that does not depend on it matches.
//
// A read does not change the object, so onObjectCreation, onAnyFieldModified and onAllFieldsModified never match one.
// onObjectUpdate matches a read that finds the object with curState in it, onObjectDeletion one that does not find it.
// Before a read only onObjectUpdate without states matches.
//
// where is evaluated last, with object (for a deletion the last state) and oldObject (null if there is none or it is
// unknown). An error in its evaluation, such as a missing field, counts as false.
//
// A Matcher is immutable and safe for concurrent use.
type Matcher struct {
	kind  TriggerType
	prev  *state
	cur   *state
	where googlecel.Program
}

// whereCost limits one evaluation of a where, to some tens of milliseconds.
const whereCost = 200_000

// NewMatcher compiles a condition on an object. The condition must have passed Validate; what Validate rejects may be
// an error here too.
func NewMatcher(c *Condition) (*Matcher, error) {
	switch c.Type {
	case OnObjectCreation, OnObjectUpdate, OnObjectDeletion, OnAnyFieldModified, OnAllFieldsModified:
	default:
		return nil, fmt.Errorf("a %s trigger has no object to match", c.Type)
	}
	prev, cur, err := compileStates(c)
	if err != nil {
		return nil, err
	}
	m := &Matcher{kind: c.Type, prev: prev, cur: cur}
	if (c.Type == OnAnyFieldModified || c.Type == OnAllFieldsModified) && (m.prev == nil || len(m.prev.fields) == 0) {
		return nil, fmt.Errorf("%s needs prevState with a field in it", c.Type)
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
		o.value, o.err = decodeObject(o.json)
	}
	return o.value, true, o.err
}

// Match reports whether the event matches. Old and new are the object's states in JSON: old is nil for a creation or if
// unknown; new is the last state for a deletion, and nil for a read that found nothing or if unknown. If the event does
// not match, miss says why. The error is about invalid JSON.
func (m *Matcher) Match(kind EventKind, old, new []byte) (ok bool, miss Miss, err error) {
	return m.MatchObjects(kind, NewObject(old), NewObject(new))
}

// MatchObjects is Match for states that several matchers share: each state is decoded only once.
func (m *Matcher) MatchObjects(kind EventKind, old, new *Object) (ok bool, miss Miss, err error) {
	if miss := m.kindMiss(kind, new != nil); miss != "" {
		return false, Miss{miss, otherKind}, nil
	}
	if kind == Looking || m.prev == nil && m.cur == nil && m.where == nil {
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

func (m *Matcher) kindMiss(kind EventKind, found bool) string {
	switch kind {
	case Looking:
		switch {
		case m.kind != OnObjectUpdate:
			return "it was about to be read, and nothing is known about it yet"
		case m.prev != nil || m.cur != nil || m.where != nil:
			return "it was about to be read, and its state is not known yet"
		}
		return ""
	case Read:
		switch {
		case m.kind == OnObjectUpdate && !found:
			return "it was not found"
		case m.kind == OnObjectDeletion && found:
			return "it was found"
		case m.kind == OnObjectUpdate || m.kind == OnObjectDeletion:
			return ""
		}
		return "it was read, and a read changes nothing"
	}
	want := Updated
	switch m.kind {
	case OnObjectCreation:
		want = Created
	case OnObjectDeletion:
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
func (m *Matcher) stateMisses(kind EventKind, v *values) []Miss {
	switch {
	case m.kind == OnObjectDeletion:
		if v.oldKnown {
			return m.prev.misses(v.old, "was")
		}
		return nil
	case m.kind == OnObjectCreation || kind == Read:
		return m.cur.misses(v.new, "is")
	case m.kind == OnAnyFieldModified || m.kind == OnAllFieldsModified:
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
			case v.oldKnown && sameValue(f.at(v.old), now):
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
		case m.kind == OnAnyFieldModified:
			return nil
		}
	}
	return misses
}

func (m *Matcher) whereMiss(kind EventKind, v *values) string {
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
	want  any    // as decodeObject returns it, or present
	only  bool   // the other state names neither this place nor one within it
}

// present is the wanted value if any value will do.
type present struct{}

// compileStates compiles prevState and curState; one that is not given is nil.
func compileStates(c *Condition) (prev, cur *state, err error) {
	if c.PrevState != nil {
		if prev, err = compileState(c.PrevState); err != nil {
			return nil, nil, fmt.Errorf("prevState: %w", err)
		}
	}
	if c.CurState != nil {
		if cur, err = compileState(c.CurState); err != nil {
			return nil, nil, fmt.Errorf("curState: %w", err)
		}
	}
	prev.only(cur)
	cur.only(prev)
	return prev, cur, nil
}

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
		for _, key := range sortedKeys(v) {
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
		want = whole(v)
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
	return sameValue(f.want, has)
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
		return shorten(strconv.Quote(v))
	}
	return fmt.Sprint(v)
}

func shorten(s string) string {
	if len(s) <= 60 {
		return s
	}
	cut := 57
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// sameValue reports whether two values are equal. Numbers are compared by value; nothing and null are the same.
func sameValue(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			w, ok := b[k]
			if !ok || !sameValue(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, sameValue)
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

// StateOf converts a Go value that marshals to a JSON object to the types that a plan's states, manifests and patches
// have when they are read from YAML. A nil map stays nil.
func StateOf(v any) (map[string]any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(raw, []byte("null")) {
		return nil, nil
	}
	decoded, err := decodeJSON(raw)
	if err != nil {
		return nil, err
	}
	m, ok := decoded.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is not a JSON object", shorten(string(raw)))
	}
	return m, nil
}
