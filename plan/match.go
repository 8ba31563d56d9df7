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

	"github.com/google/cel-go/cel"

	"github.com/trommel-dev/trommel/predicate"
)

// The words that stand for values in prevState and curState.
const (
	Present = "$present" // has a value
	Absent  = "$absent"  // has none; null says the same
)

// EventKind is what an observation says has happened to an object.
type EventKind string

// The kinds of events. A patch and a server-side apply are creations or updates, as they come out.
const (
	Created EventKind = "created"
	Updated EventKind = "updated"
	Deleted EventKind = "deleted"
	Read    EventKind = "read"    // nothing has: a controller has looked for it
	Looking EventKind = "looking" // nothing has: a controller is about to look for it
)

// Miss says what an event lacks.
type Miss struct {
	Text string // in one line: "spec.replicas is 3, not 2"
	// Distance orders misses: two for each field that has not the wanted value, one for a field that has it in another
	// type ("2" for 2), far more for another kind of event.
	Distance int
}

// otherKind is the distance of an event of another kind.
const otherKind = 1 << 16

// Matcher decides whether an event satisfies a condition on an object. It is the only place where prevState,
// curState, $present, $absent and where are given their meaning; type, name and repeat are not its business.
//
// A state is a piece of an object, and an object contains it when it contains all its fields:
//
//	state           contained in an object that has there
//	2               2, 2.0 or 2e0, and no text
//	"2"             the text "2" alone; so a quantity is compared as it is written
//	true, "text"    the same
//	$present        anything but null
//	$absent, null   null, or nothing, or nothing on the way to it
//	{}              a mapping, whatever it holds
//	{a: …, b: …}    at a what a says, and at b what b says; other fields are free
//	[]              a list, whatever it holds
//	[x, y]          x first and y second; further items are free, the order counts
//
// A state's fields are what stands in the right places of this table: its values and its empty mappings and lists.
//
//	condition             event     satisfied when
//	onObjectCreation      created   the new object contains curState
//	onObjectDeletion      deleted   the last object contains prevState
//	onObjectUpdate        updated   the old object contains prevState, the new one contains curState, and each field
//	                                that only one of them names has another value in the old object than in the new
//	onAnyFieldModified    updated   of some field of prevState the old object had the given value and the new one has not
//	onAllFieldsModified   updated   of every field of prevState the same
//
// A state that is not given is contained in everything and names nothing, so an update without either matches any
// update. A state {metadata: {}} names metadata, and what it names both states may name: naming it in one and a field
// below it in the other leaves that field the only one that has to change.
//
// Where the process does not know the object's state before an update, the update matches if it can: whatever would
// need the old object is taken for granted, but a field named by prevState alone must not still have its value. An old
// state null says that there was no object. Where the new state is not known, only a condition matches that asks
// nothing of it.
//
// A read is no event of the object, so onObjectCreation, onAnyFieldModified and onAllFieldsModified never match one.
// onObjectUpdate matches a read that finds the object with curState in it, onObjectDeletion one that does not find it.
// While a controller is only about to look, onObjectUpdate without states matches.
//
// where is evaluated last, with object (for a deletion the last state) and oldObject (null where there is none or it
// is not known). An error in its evaluation, such as a field that is missing, counts as false.
//
// A Matcher is immutable and safe for concurrent use.
type Matcher struct {
	kind  TriggerType
	prev  *state
	cur   *state
	where cel.Program
}

// whereCost bounds one evaluation of a where; it is some tens of milliseconds.
const whereCost = 200_000

// NewMatcher compiles a condition on an object. The condition must have passed Validate; what it would refuse is an
// error here too.
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
		if m.where, err = predicate.Transition.Program(c.Where, whereCost); err != nil {
			return nil, fmt.Errorf("where: CEL: %w", err)
		}
	}
	return m, nil
}

// Object is the state of an object as an observation shows it: JSON that is decoded once, when a condition first looks
// at it. A nil Object is a state that is not known. It is not safe for concurrent use.
type Object struct {
	json    []byte
	decoded bool
	value   any
	err     error
}

// NewObject returns the state that the JSON holds; for no JSON at all it returns nil.
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

// Match reports whether the event matches. Old and new are the object's states in JSON: old is nil for a creation and
// where it is not known; new is the last state for a deletion, nil for a read that found nothing, and nil where it is
// not known. Where it does not match, miss says what is missing. The error is about JSON that is none.
func (m *Matcher) Match(kind EventKind, old, new []byte) (ok bool, miss Miss, err error) {
	return m.MatchObjects(kind, NewObject(old), NewObject(new))
}

// MatchObjects is Match for states that several matchers look at: each is decoded only once.
func (m *Matcher) MatchObjects(kind EventKind, old, new *Object) (ok bool, miss Miss, err error) {
	if miss := m.kindMiss(kind, new != nil); miss != "" {
		return false, Miss{miss, otherKind}, nil
	}
	if kind == Looking || m.prev == nil && m.cur == nil && m.where == nil {
		return true, Miss{}, nil
	}
	if kind == Deleted && old == nil {
		old = new // the last state is what prevState is about
	}
	if (kind == Created || kind == Updated) && new == nil {
		return false, Miss{"the object's state is not known there", otherKind}, nil
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

// nearestOf is the first miss, with the distance of them all.
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
			return "it was about to be read, and nothing is known of it yet"
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

// values are the two states of the object; what is not known is nil.
type values struct {
	old, new any
	oldKnown bool
}

// stateMisses lists what of the states the event lacks.
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

// lostMisses decides onAnyFieldModified and onAllFieldsModified.
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
	named  map[string]bool // the path of every place that the state names or leads through
}

// field is one field of a state.
type field struct {
	steps []any  // to its place in the object: a string for a mapping's field, an int for a list's item
	path  string // the same for people
	want  any    // what decodeObject gives, or present
	only  bool   // the other state neither names this place nor leads through it
}

// present is wanted where any value will do.
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
		return nil, errors.New("a state is a mapping, a piece of the object")
	}
	s := &state{named: map[string]bool{}}
	return s, s.collect(nil, "", v)
}

func (s *state) collect(steps []any, path string, v any) error {
	s.named[path] = true
	steps = slices.Clip(steps) // the places below share it
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
		return fmt.Errorf("%s: a value of Go type %T has no JSON", path, v)
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

// misses lists what of the state the object lacks; nothing for a state that is not given.
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

// at returns what the object has at the field's place; nil stands for nothing.
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

// miss is what a field lacks that has another value; the format takes the field, what it has, and what it should have.
func (f *field) miss(has any, format string) Miss {
	m := Miss{fmt.Sprintf(format, f.path, show(has), show(f.want)), 2}
	if strings.Trim(show(has), `"`) == strings.Trim(show(f.want), `"`) {
		m.Distance = 1 // the value in another type: somebody has forgotten the quotes
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

// show gives what an object has, or should have, for a message.
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

// sameValue reports whether two values are equal; numbers are by value, nothing and null are the same.
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

// StateOf turns a Go value that marshals to a JSON object into what a plan's states, manifests and patches hold: the
// types that reading YAML gives. A nil map is nil.
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
