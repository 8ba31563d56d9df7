package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
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
	// Distance orders misses: two for each field that has not the wanted value, one for a field that has it in another type ("2" for 2),
	// far more for another kind of event.
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
// state null says that there was no object. Where the new state is not known, only a condition matches that asks nothing of it.
//
// A read is no event of the object, so onObjectCreation, onAnyFieldModified and onAllFieldsModified never match one.
// onObjectUpdate matches a read that finds the object with curState in it, onObjectDeletion one that does not find it. While
// a controller is only about to look, onObjectUpdate without states matches.
//
// where is evaluated last, with object (for a deletion the last state) and oldObject (null where there is none or it
// is not known). An error in its evaluation, such as a field that is missing, counts as false.
//
// A Matcher is immutable and safe for concurrent use.
type Matcher struct {
	kind   TriggerType
	root   *probe
	probes int
	prev   *state
	cur    *state
	where  cel.Program
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
	m := &Matcher{kind: c.Type, root: &probe{}, probes: 1}
	var err error
	if c.PrevState != nil {
		if m.prev, err = m.compile(c.PrevState); err != nil {
			return nil, fmt.Errorf("prevState: %w", err)
		}
	}
	if c.CurState != nil {
		if m.cur, err = m.compile(c.CurState); err != nil {
			return nil, fmt.Errorf("curState: %w", err)
		}
	}
	m.prev.only(m.cur)
	m.cur.only(m.prev)
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

// Match reports whether the event matches. Old and new are the object's states in JSON: old is nil for a creation and
// where it is not known; new is the last state for a deletion, nil for a read that found nothing, and nil where it is not known. Where
// it does not match, miss says what is missing. The error is about JSON that is none.
func (m *Matcher) Match(kind EventKind, old, new []byte) (ok bool, miss Miss, err error) {
	if miss := m.kindMiss(kind, new); miss != "" {
		return false, Miss{miss, otherKind}, nil
	}
	switch {
	case kind == Looking:
		return true, Miss{}, nil
	case kind == Deleted && len(old) == 0:
		// The last state is what prevState is about.
		old = new
	case kind == Created || kind == Updated:
		if len(new) == 0 && (m.prev != nil || m.cur != nil || m.where != nil) {
			return false, Miss{"the object's state is not known there", otherKind}, nil
		}
	}
	if m.prev != nil || m.cur != nil {
		space := make([][]byte, 2*m.probes)
		v := values{old: space[:m.probes], new: space[m.probes:], oldKnown: len(old) > 0, newKnown: len(new) > 0}
		if v.oldKnown {
			if err := extract(old, m.root, v.old); err != nil {
				return false, Miss{}, fmt.Errorf("old object: %w", err)
			}
		}
		if v.newKnown {
			if err := extract(new, m.root, v.new); err != nil {
				return false, Miss{}, fmt.Errorf("object: %w", err)
			}
		}
		if misses := m.stateMisses(kind, &v); len(misses) > 0 {
			return false, nearestOf(misses), nil
		}
	}
	if m.where != nil {
		text, err := m.whereMiss(kind, old, new)
		if text != "" || err != nil {
			return false, Miss{text, 2}, err
		}
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

func (m *Matcher) kindMiss(kind EventKind, new []byte) string {
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
		switch found := len(new) > 0; {
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

// values are what the two objects have at the probed places; nil stands for nothing.
type values struct {
	old, new           [][]byte
	oldKnown, newKnown bool
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
			switch {
			case !f.only:
			case v.oldKnown && sameJSON(v.old[f.at], v.new[f.at]):
				misses = append(misses, Miss{fmt.Sprintf("%s did not change: it is %s", f.path, show(v.new[f.at])), 2})
			case !v.oldKnown && s == m.prev && f.holds(v.new[f.at]):
				misses = append(misses, Miss{fmt.Sprintf("%s is still %s", f.path, show(v.new[f.at])), 2})
			}
		}
	}
	return misses
}

// lostMisses decides onAnyFieldModified and onAllFieldsModified.
func (m *Matcher) lostMisses(v *values) []Miss {
	var misses []Miss
	for _, f := range m.prev.fields {
		var this Miss
		switch {
		case v.oldKnown && !f.holds(v.old[f.at]):
			this = f.miss(v.old[f.at], "%s was %s before, not %s")
		case f.holds(v.new[f.at]):
			this = Miss{fmt.Sprintf("%s is still %s", f.path, show(v.new[f.at])), 2}
		case m.kind == OnAnyFieldModified:
			return nil
		default:
			continue
		}
		misses = append(misses, this)
	}
	return misses
}

func (m *Matcher) whereMiss(kind EventKind, old, new []byte) (string, error) {
	vars := map[string]any{"object": nil, "oldObject": nil}
	for name, raw := range map[string][]byte{"object": new, "oldObject": old} {
		if len(raw) == 0 || name == "oldObject" && kind == Created {
			continue
		}
		v, err := decodeJSON(raw)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		vars[name] = v
	}
	out, _, err := m.where.Eval(vars)
	if err != nil {
		return "where: " + err.Error(), nil
	}
	if out.Value() != true {
		return "where is false", nil
	}
	return "", nil
}

// probe is a place in an object that a state names, or leads through.
type probe struct {
	at    int // in values
	path  string
	keys  []string
	kids  []*probe // by key
	items []*probe // by index
}

func (p *probe) key(m *Matcher, key string) *probe {
	if i := slices.Index(p.keys, key); i >= 0 {
		return p.kids[i]
	}
	path := key
	if strings.ContainsAny(key, ".[]\" ") {
		path = "[" + strconv.Quote(key) + "]"
	} else if p.path != "" {
		path = "." + key
	}
	kid := &probe{at: m.probes, path: p.path + path}
	m.probes++
	p.keys, p.kids = append(p.keys, key), append(p.kids, kid)
	return kid
}

func (p *probe) item(m *Matcher, i int) *probe {
	for len(p.items) <= i {
		p.items = append(p.items, &probe{at: m.probes, path: fmt.Sprintf("%s[%d]", p.path, len(p.items))})
		m.probes++
	}
	return p.items[i]
}

// state is a compiled prevState or curState.
type state struct {
	fields []field
	named  map[int]bool // every place that the state names or leads through
}

// field is one field of a state.
type field struct {
	at   int
	path string
	want wanted
	only bool // no field of the other state is at or below this place, nor leads through it
}

func (m *Matcher) compile(v any) (*state, error) {
	if _, ok := v.(map[string]any); !ok {
		return nil, errors.New("a state is a mapping, a piece of the object")
	}
	s := &state{named: map[int]bool{}}
	return s, m.collect(s, m.root, v)
}

func (m *Matcher) collect(s *state, p *probe, v any) error {
	s.named[p.at] = true
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			if err := m.collect(s, p.key(m, k), v[k]); err != nil {
				return err
			}
		}
		if len(v) > 0 || p == m.root {
			return nil
		}
	case []any:
		for i, item := range v {
			if err := m.collect(s, p.item(m, i), item); err != nil {
				return err
			}
		}
		if len(v) > 0 {
			return nil
		}
	}
	w, err := newWanted(v)
	if err != nil {
		return fmt.Errorf("%s: %w", p.path, err)
	}
	s.fields = append(s.fields, field{at: p.at, path: p.path, want: w})
	return nil
}

// only marks the fields that the other state does not name.
func (s *state) only(other *state) {
	if s == nil {
		return
	}
	for i := range s.fields {
		s.fields[i].only = other == nil || !other.named[s.fields[i].at]
	}
}

// misses lists what of the state the values lack; nothing for a state that is not given.
func (s *state) misses(at [][]byte, is string) []Miss {
	if s == nil {
		return nil
	}
	var misses []Miss
	for _, f := range s.fields {
		if !f.holds(at[f.at]) {
			misses = append(misses, f.miss(at[f.at], "%s "+is+" %s, not %s"))
		}
	}
	return misses
}

// miss is what a field lacks that has another value; the format takes the field, what it has, and what it should have.
func (f *field) miss(raw []byte, format string) Miss {
	m := Miss{fmt.Sprintf(format, f.path, show(raw), f.want), 2}
	if strings.Trim(show(raw), `"`) == strings.Trim(f.want.String(), `"`) {
		m.Distance = 1 // the value in another type: somebody has forgotten the quotes
	}
	return m
}

func (f *field) holds(raw []byte) bool { return f.want.holds(raw) }

// wanted is the right side of a field.
type wanted struct {
	kind  byte // 'p'resent, 'a'bsent, '{', '[', 's'tring, 'i'nteger, 'f'loat, 't'rue, 'n'ot true
	text  string
	int   int64
	float float64
}

func newWanted(v any) (wanted, error) {
	switch v := v.(type) {
	case nil:
		return wanted{kind: 'a'}, nil
	case string:
		switch v {
		case Present:
			return wanted{kind: 'p'}, nil
		case Absent:
			return wanted{kind: 'a'}, nil
		}
		return wanted{kind: 's', text: v}, nil
	case bool:
		if v {
			return wanted{kind: 't'}, nil
		}
		return wanted{kind: 'n'}, nil
	case int:
		return wanted{kind: 'i', int: int64(v), float: float64(v)}, nil
	case int32:
		return wanted{kind: 'i', int: int64(v), float: float64(v)}, nil
	case int64:
		return wanted{kind: 'i', int: v, float: float64(v)}, nil
	case float64:
		if math.Trunc(v) == v && math.Abs(v) < 1<<53 {
			return wanted{kind: 'i', int: int64(v), float: v}, nil
		}
		return wanted{kind: 'f', float: v}, nil
	case map[string]any:
		return wanted{kind: '{'}, nil
	case []any:
		return wanted{kind: '['}, nil
	}
	return wanted{}, fmt.Errorf("a value of Go type %T has no JSON", v)
}

func (w wanted) String() string {
	switch w.kind {
	case 'p':
		return "a value"
	case 'a':
		return "without a value"
	case '{':
		return "a mapping"
	case '[':
		return "a list"
	case 's':
		return shorten(strconv.Quote(w.text))
	case 'i':
		return strconv.FormatInt(w.int, 10)
	case 'f':
		return strconv.FormatFloat(w.float, 'g', -1, 64)
	case 't':
		return "true"
	}
	return "false"
}

func (w wanted) holds(raw []byte) bool {
	none := len(raw) == 0 || raw[0] == 'n'
	switch w.kind {
	case 'p':
		return !none
	case 'a':
		return none
	}
	if none {
		return false
	}
	switch w.kind {
	case '{', '[':
		return raw[0] == w.kind
	case 't':
		return raw[0] == 't'
	case 'n':
		return raw[0] == 'f'
	case 's':
		if raw[0] != '"' {
			return false
		}
		if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
			return string(raw[1:len(raw)-1]) == w.text
		}
		var s string
		return json.Unmarshal(raw, &s) == nil && s == w.text
	}
	if c := raw[0]; c != '-' && (c < '0' || c > '9') {
		return false
	}
	if w.kind == 'i' {
		if i, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			return i == w.int
		}
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	return err == nil && f == w.float
}

// show gives what an object has, for a message.
func show(raw []byte) string {
	switch {
	case len(raw) == 0 || raw[0] == 'n':
		return "without a value"
	case raw[0] == '{':
		return "a mapping"
	case raw[0] == '[':
		return "a list"
	}
	return shorten(string(raw))
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

var errJSON = errors.New("not JSON")

// extract notes what the object has at the places below p. It looks at no more of the JSON than it must: most of an
// object is skipped, and it stops when it has found all.
func extract(raw []byte, p *probe, out [][]byte) error {
	_, err := probeValue(raw, skipSpace(raw, 0), p, out)
	return err
}

// probeValue notes the value at i and what of it is wanted; it returns the index behind it, or -1 when it stopped early
// because nothing further is wanted at all.
func probeValue(b []byte, i int, p *probe, out [][]byte) (int, error) {
	if i >= len(b) {
		return 0, errJSON
	}
	start := i
	var err error
	switch {
	case b[i] == '{' && len(p.keys) > 0:
		i, err = probeMapping(b, i, p, out)
	case b[i] == '[' && len(p.items) > 0:
		i, err = probeList(b, i, p, out)
	default:
		i, err = skipValue(b, i)
	}
	if err != nil {
		return 0, err
	}
	out[p.at] = b[start:i]
	return i, nil
}

func probeMapping(b []byte, i int, p *probe, out [][]byte) (int, error) {
	start, found := i, 0
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return 0, errJSON
		}
		end, err := skipString(b, i)
		if err != nil {
			return 0, err
		}
		key := b[i+1 : end-1]
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ':' {
			return 0, errJSON
		}
		i = skipSpace(b, i+1)
		at := -1
		for k := range p.keys {
			if string(key) == p.keys[k] {
				at = k
				break
			}
		}
		if at < 0 && bytes.IndexByte(key, '\\') >= 0 {
			var s string
			if json.Unmarshal(b[end-len(key)-2:end], &s) == nil {
				at = slices.Index(p.keys, s)
			}
		}
		if at >= 0 {
			i, err = probeValue(b, i, p.kids[at], out)
			found++
		} else {
			i, err = skipValue(b, i)
		}
		if err != nil {
			return 0, err
		}
		i = skipSpace(b, i)
		switch {
		case i >= len(b):
			return 0, errJSON
		case b[i] == '}':
			return i + 1, nil
		case b[i] != ',':
			return 0, errJSON
		case found == len(p.keys) && p.at == 0:
			// All that the root is asked for is found; nobody needs its end.
			return len(b), nil
		case found == len(p.keys):
			return skipNested(b, start, i)
		}
		i = skipSpace(b, i+1)
	}
}

func probeList(b []byte, i int, p *probe, out [][]byte) (int, error) {
	start, n := i, 0
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, nil
	}
	for {
		var err error
		if i, err = probeValue(b, i, p.items[n], out); err != nil {
			return 0, err
		}
		n++
		i = skipSpace(b, i)
		switch {
		case i >= len(b):
			return 0, errJSON
		case b[i] == ']':
			return i + 1, nil
		case b[i] != ',':
			return 0, errJSON
		case n == len(p.items):
			return skipNested(b, start, i)
		}
		i = skipSpace(b, i+1)
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index behind the string that begins at i.
func skipString(b []byte, i int) (int, error) {
	// Most strings of an object are short, so this is faster than bytes.IndexByte.
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, nil
		case c == '\\':
			i++
		}
	}
	return 0, errJSON
}

func skipValue(b []byte, i int) (int, error) {
	if i >= len(b) {
		return 0, errJSON
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i, i)
	}
	start := i
	for i < len(b) {
		switch b[i] {
		case ',', '}', ']', ' ', '\n', '\t', '\r':
			if i == start {
				return 0, errJSON
			}
			return i, nil
		}
		i++
	}
	if i == start {
		return 0, errJSON
	}
	return i, nil
}

// skipNested returns the index behind the mapping or list that begins at start; at is a place directly within it, or
// start. Nearly all bytes of an object are passed over here.
func skipNested(b []byte, start, at int) (int, error) {
	depth := 1
	if at == start {
		at++
	}
	for i := at; i < len(b); i++ {
		switch structure[b[i]] {
		case 0:
		case 1:
			for i++; ; i++ {
				if i >= len(b) {
					return 0, errJSON
				}
				if c := b[i]; c == '"' {
					break
				} else if c == '\\' {
					i++
				}
			}
		case 2:
			depth++
		case 3:
			if depth--; depth == 0 {
				return i + 1, nil
			}
		}
	}
	return 0, errJSON
}

// structure tells the bytes that matter when a value is skipped.
var structure = [256]uint8{'"': 1, '{': 2, '[': 2, '}': 3, ']': 3}

// sameJSON reports whether two values are equal; numbers are by value, nothing and null are the same.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	if len(a) > 0 {
		x, _ = decodeJSON(a)
	}
	if len(b) > 0 {
		y, _ = decodeJSON(b)
	}
	return sameValue(x, y)
}

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
		return nil, fmt.Errorf("%s is no JSON object", shorten(string(raw)))
	}
	return m, nil
}
