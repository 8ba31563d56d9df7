package facts

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/internal/wording"
)

// Renewed is how often a value was replaced while the last object of its key existed. It is the least and the most of
// some runs.
type Renewed struct {
	Least int `json:"least"`
	Most  int `json:"most"`
	// Quick is how many of the most were quick: the value before had stood for less than Stood, the time for which the
	// last value has stood in the end, in each run. So what time alone brings about is not quick.
	Quick int           `json:"quick,omitempty"`
	Stood time.Duration `json:"stood,omitempty"`
	// Asked is the generation of the object's controller when the value was last replaced, the same in all runs; 0:
	// that had not grown since the object was created.
	Asked int `json:"asked,omitempty"`
	// Last is the resource version with which the value came that is there in the end. Not of several runs.
	Last uint64 `json:"last,omitempty"`
}

// String says it in words.
func (r Renewed) String() string {
	if r.Least < r.Most {
		return wording.Times(r.Least) + " to " + wording.Times(r.Most)
	}
	return wording.Times(r.Most)
}

// State is what an object was like from a resource version on. Owner is the generation that its controlling owner had.
type State struct {
	Version uint64
	At      time.Time
	Owner   int
	Object  map[string]any
}

// trail is how a value changed in the states that were looked at so far. came has the states in which it became another
// one.
type trail struct {
	looked int
	value  any
	came   []State
}

// became notes a state of the object. The first one of an object has no predecessor.
func (o *Object) became(s State, first bool) {
	if first {
		o.states, o.trails = nil, nil
	}
	if s.Object != nil {
		o.states = append(o.states, s)
	}
}

// FirstVersion is the resource version of the first known state of the last object of the key; 0: unknown.
func (o *Object) FirstVersion() uint64 {
	if len(o.states) == 0 {
		return 0
	}
	return o.states[0].Version
}

// Replacements returns the states in which a field got a value or another value. Not ok: the field has no value in the
// end, or the states are unknown. A time without a value does not count.
func (o *Object) Replacements(where string) (came []State, ok bool) {
	if o.states == nil || o.End == nil {
		return nil, false
	}
	if o.trails == nil {
		o.trails = map[string]*trail{}
	}
	t := o.trails[where]
	if t == nil {
		t = &trail{}
		o.trails[where] = t
	}
	for ; t.looked < len(o.states); t.looked++ {
		t.look(o.states[t.looked], where)
	}
	return t.came, has(o.End, where)
}

// Renewal is how often the value of a field was replaced. Not ok: the field has no value in the end, or that is
// unknown. A replacement is quick if the value before had stood for less than the given time.
func (o *Object) Renewal(where string, stood time.Duration) (r Renewed, ok bool) {
	if o.states == nil {
		r, ok = o.Renewed[where]
		return r, ok
	}
	came, ok := o.Replacements(where)
	if !ok {
		return r, false
	}
	r.Least, r.Most, r.Last = len(came)-1, len(came)-1, came[len(came)-1].Version
	for i := 1; i < len(came); i++ {
		if came[i].At.Sub(came[i-1].At) < stood {
			r.Quick++
		}
	}
	return r, true
}

// look takes a state in. It reports whether there is a value.
func (t *trail) look(s State, where string) bool {
	var all []Leaf
	Leaves(s.Object, nil, "", func(l Leaf) {
		if l.Where == where && l.Value != nil && l.Value != "" {
			all = append(all, l)
		}
	})
	value, _ := together(all)
	if value != nil && !reflect.DeepEqual(t.value, value) {
		t.value, t.came = value, append(t.came, s)
	}
	return value != nil
}

// has reports whether an object has a value at a place.
func has(object map[string]any, where string) bool {
	return (&trail{}).look(State{Object: object}, where)
}

// ContentVersions are the resource versions that an object has had with the contents that it has in the end. The
// metadata does not count.
func (o *Object) ContentVersions() []string {
	if o.states == nil {
		return o.Versions
	}
	contents := func(object map[string]any) map[string]any {
		all := maps.Clone(object)
		delete(all, "metadata")
		return all
	}
	last := contents(o.End)
	var all []string
	for _, s := range slices.Backward(o.states) {
		if !reflect.DeepEqual(contents(s.Object), last) {
			break
		}
		all = append(all, strconv.FormatUint(s.Version, 10))
	}
	slices.Reverse(all)
	return all
}

// Remember keeps how often the values of these fields were replaced, for after Detach.
func (o *Object) Remember(fields []string) {
	for _, where := range fields {
		if r, ok := o.Renewal(where, 0); ok {
			if o.Renewed == nil {
				o.Renewed = map[string]Renewed{}
			}
			o.Renewed[where] = r
		}
	}
	if kind := metadata.Text(o.End, "kind"); kind == "Secret" || kind == "ConfigMap" {
		o.Versions = o.ContentVersions()
	}
}

// OwnerGenerationNow is the generation that the object's controlling owner has now.
func (o *Object) OwnerGenerationNow() int {
	return o.generations[metadata.Text(metadata.Controller(o.End), "uid")]
}
