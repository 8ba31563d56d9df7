package reference

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/internal/wording"
)

// Renewed is how often a value was replaced by another one while the object existed, the last object of its key. It is
// the least and the most of some runs.
type Renewed struct {
	Least int `json:"least"`
	Most  int `json:"most"`
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

// state is what an object was like from a resource version on.
type state struct {
	version uint64
	object  map[string]any
}

// trail is how a value went, as far as the states have been looked at.
type trail struct {
	looked  int
	value   any
	renewed int
	last    uint64 // the resource version with which the value came
}

// became notes a state of the object. The first one of an object has no predecessor.
func (o *Object) became(version uint64, object map[string]any, first bool) {
	if first {
		o.states, o.trails = nil, nil
	}
	if object != nil {
		o.states = append(o.states, state{version, object})
	}
}

// renewal is how often the value of a field was replaced; not ok: it has none in the end, or that is not known. That
// there was no value for a time is no replacement.
func (o *Object) renewal(where string) (r Renewed, ok bool) {
	if o.states == nil {
		r, ok = o.Renewed[where]
		return r, ok
	}
	if o.trails == nil {
		o.trails = map[string]*trail{}
	}
	t := o.trails[where]
	if t == nil {
		t = &trail{}
		o.trails[where] = t
	}
	there := false
	for ; t.looked < len(o.states); t.looked++ {
		there = t.look(o.states[t.looked], where)
	}
	if !there {
		there = has(o.End, where)
	}
	return Renewed{t.renewed, t.renewed, t.last}, there && o.End != nil
}

// look takes a state in. It reports whether there is a value.
func (t *trail) look(s state, where string) bool {
	there := false
	leaves(s.object, nil, "", func(l leaf) {
		if l.where != where || l.value == nil || l.value == "" {
			return
		}
		there = true
		switch {
		case t.value == nil:
			t.value, t.last = l.value, s.version
		case !reflect.DeepEqual(t.value, l.value):
			t.value, t.last = l.value, s.version
			t.renewed++
		}
	})
	return there
}

// has reports whether an object has a value at a place.
func has(object map[string]any, where string) bool {
	return (&trail{}).look(state{object: object}, where)
}

// versionsOf are the resource versions that an object has had with the contents that it has in the end: all but the
// metadata.
func (o *Object) versionsOf() []string {
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
		if !reflect.DeepEqual(contents(s.object), last) {
			break
		}
		all = append(all, strconv.FormatUint(s.version, 10))
	}
	slices.Reverse(all)
	return all
}

// remember keeps what is known of the object's states for these fields, which need not be looked at again.
func (o *Object) remember(fields []string) {
	for _, where := range fields {
		if r, ok := o.renewal(where); ok {
			if o.Renewed == nil {
				o.Renewed = map[string]Renewed{}
			}
			o.Renewed[where] = r
		}
	}
	if kind := metadata.Text(o.End, "kind"); kind == "Secret" || kind == "ConfigMap" {
		o.Versions = o.versionsOf()
	}
}

// renew learns how often random values were replaced in runs without faults.
func (ref *Reference) renew(places []Place, runs []map[Key]*Object) {
	for _, at := range places {
		if at.Field == wholeData {
			continue
		}
		sum, known := Renewed{Least: -1}, true
		for _, objects := range runs {
			r, ok := objects[at.Object].renewal(at.Field)
			known = known && ok
			sum.Most = max(sum.Most, r.Most)
			if sum.Least < 0 || r.Least < sum.Least {
				sum.Least = r.Least
			}
		}
		if o := ref.Objects[at.Object]; known {
			if o.Renewed == nil {
				o.Renewed = map[string]Renewed{}
			}
			o.Renewed[at.Field] = sum
		}
	}
}

// maxSecret is the length of the longest value that counts as a password or key. What is longer was rendered.
const maxSecret = 256

var (
	// token is a value without structure. Certificates and web tokens have some: they are issued again whenever that
	// seems right, by many controllers at each of their starts. So do URLs, whose other parts may change.
	token = regexp.MustCompile(`^[!-+\--9<-z|~]+$`)
	// derived are words in the names of what is computed from something that may change step by step.
	derived = regexp.MustCompile(`(?i)hash|sum|digest|sha\d|md5|revision|version|config`)
)

// isSecret reports whether a random value is one that somebody must know, such as a password.
func isSecret(at Place, value string) bool {
	name, ok := strings.CutPrefix(at.Field, wholeData+".")
	return ok && at.Object.Type() == "secret" && !derived.MatchString(name) && len(value) <= maxSecret &&
		token.MatchString(value) && !strings.HasPrefix(value, "eyJ")
}

// made reports whether the value of a field is made from another one.
func (ref *Reference) made(at Place) bool {
	return slices.ContainsFunc(ref.Relations, func(r Relation) bool {
		return r.Field == at && r.Is != isEqual && r.Is != isTogether
	})
}

// renewals compares how often the secrets of an object were replaced. Once too often is a mistake: somebody may have
// taken the value that was there before. Not at all may be right if the object was created later than without faults,
// when what should have led to it was asked for already. And that several causes have led to one replacement is right.
func (f *filter) renewals(key Key, want, got *Object) []Difference {
	var all []Difference
	for _, where := range slices.Sorted(maps.Keys(want.Renewed)) {
		usual := want.Renewed[where]
		value := f.textsOf(key, got)[where]
		if value.as != byPresence || !isSecret(Place{key, where}, value.value) ||
			f.ref.made(Place{key, where}) {
			continue
		}
		is, known := got.renewal(where)
		missed := is.Most == 0 && usual.Least > 0 && got.Born != 0 && got.Born == want.Born
		if known && (is.Most > usual.Most || missed) {
			all = append(all, Difference{
				Key: key, Field: where, Want: usual.String(), Got: is.String(), Renewal: true,
			})
		}
	}
	return all
}
