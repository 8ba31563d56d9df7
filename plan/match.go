package plan

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan/internal/jsonvalue"
	"github.com/trommel-dev/trommel/plan/internal/match"
)

// The placeholders for values in prevState and curState.
const (
	Present = match.Present // has a value
	Absent  = match.Absent  // has no value; null means the same
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
type Matcher struct{ m *match.Matcher }

// conditionsOn says which events conditions on objects are about.
var conditionsOn = map[TriggerType]match.On{
	OnObjectCreation: match.Creation, OnObjectUpdate: match.Update, OnObjectDeletion: match.Deletion,
	OnAnyFieldModified: match.AnyFieldModified, OnAllFieldsModified: match.AllFieldsModified,
}

// matched returns the condition as package match has it.
func (c *Condition) matched() match.Condition {
	return match.Condition{
		On: conditionsOn[c.Type], Name: string(c.Type), PrevState: c.PrevState, CurState: c.CurState, Where: c.Where,
	}
}

// NewMatcher compiles a condition on an object. The condition must have passed Validate; what Validate rejects may be
// an error here too.
func NewMatcher(c *Condition) (*Matcher, error) {
	if _, ok := conditionsOn[c.Type]; !ok {
		return nil, fmt.Errorf("a %s trigger has no object to match", c.Type)
	}
	m, err := match.New(c.matched())
	if err != nil {
		return nil, err
	}
	return &Matcher{m}, nil
}

// Object is the state of an object as an observation shows it: JSON that is decoded once, when a condition first needs
// it. A nil Object is an unknown state. It is not safe for concurrent use.
type Object struct{ state *match.Object }

// NewObject returns the state in the JSON; for empty JSON it returns nil.
func NewObject(json []byte) *Object {
	if state := match.NewObject(json); state != nil {
		return &Object{state}
	}
	return nil
}

// known returns the state; nil if it is unknown.
func (o *Object) known() *match.Object {
	if o == nil {
		return nil
	}
	return o.state
}

// Match reports whether the event matches. Old and new are the object's states in JSON: old is nil for a creation or if
// unknown; new is the last state for a deletion, and nil for a read that found nothing or if unknown. If the event does
// not match, miss says why. The error is about invalid JSON.
func (m *Matcher) Match(kind EventKind, old, new []byte) (ok bool, miss Miss, err error) {
	return m.MatchObjects(kind, NewObject(old), NewObject(new))
}

// MatchObjects is Match for states that several matchers share: each state is decoded only once.
func (m *Matcher) MatchObjects(kind EventKind, old, new *Object) (ok bool, miss Miss, err error) {
	ok, why, err := m.m.Match(match.Event(kind), old.known(), new.known())
	return ok, Miss(why), err
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
	decoded, err := jsonvalue.Decode(raw)
	if err != nil {
		return nil, err
	}
	m, ok := decoded.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is not a JSON object", wording.Shorten(string(raw)))
	}
	return m, nil
}
