package baseline

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// Renewed is how often a value was replaced by another one while the object existed, the last object of its key. It is
// the least and the most of some runs.
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

// state is what an object was like from a resource version on. Owner is the generation that its controller had.
type state struct {
	version uint64
	at      time.Time
	owner   int
	object  map[string]any
}

// trail is how a value went, as far as the states have been looked at: came is when it became another one.
type trail struct {
	looked int
	value  any
	came   []state
}

// became notes a state of the object. The first one of an object has no predecessor.
func (o *Object) became(s state, first bool) {
	if first {
		o.states, o.trails = nil, nil
	}
	if s.object != nil {
		o.states = append(o.states, s)
	}
}

// follow follows the value of a field; not ok: it has none in the end, or nothing is known of the object's states. That
// there was no value for a time is no replacement.
func (o *Object) follow(where string) (came []state, ok bool) {
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

// renewal is how often the value of a field was replaced; not ok: it has none in the end, or that is not known. Only
// what came before the value had stood for that time is quick.
func (o *Object) renewal(where string, stood time.Duration) (r Renewed, ok bool) {
	if o.states == nil {
		r, ok = o.Renewed[where]
		return r, ok
	}
	came, ok := o.follow(where)
	if !ok {
		return r, false
	}
	r.Least, r.Most, r.Last = len(came)-1, len(came)-1, came[len(came)-1].version
	for i := 1; i < len(came); i++ {
		if came[i].at.Sub(came[i-1].at) < stood {
			r.Quick++
		}
	}
	return r, true
}

// look takes a state in. It reports whether there is a value.
func (t *trail) look(s state, where string) bool {
	var all []leaf
	leaves(s.object, nil, "", func(l leaf) {
		if l.where == where && l.value != nil && l.value != "" {
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
		if r, ok := o.renewal(where, 0); ok {
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

// rested is for how long at least a value would have stood after a run that came to rest: nothing was to come that a
// queue had put off.
const rested = 10 * time.Second

// untilWhen is until when it is known that a value would have stood that was there at the end of a run.
func untilWhen(r *record.Run, all []*record.Run) time.Time {
	if slices.ContainsFunc(all, func(r *record.Run) bool { return !r.Meta.Rested }) {
		return r.Meta.Observed
	}
	return r.Meta.Observed.Add(rested)
}

// renew learns how often random values were replaced in runs without faults, which are known until then. Of the objects
// of a group, each may be like any of them.
func (ref *Baseline) renew(places []Place, runs []population, until []time.Time) {
	own := populationOf(ref.Objects)
	for _, at := range places {
		if at.Field == wholeData {
			continue
		}
		sum, known := renewedIn(at, runs, until)
		for _, m := range own[at.Object] {
			if known && m.object.Renewed == nil {
				m.object.Renewed = map[string]Renewed{}
			}
			if known {
				m.object.Renewed[at.Field] = sum
			}
		}
	}
}

func renewedIn(at Place, runs []population, until []time.Time) (sum Renewed, known bool) {
	for i, p := range runs {
		for _, m := range p[at.Object] {
			came, ok := m.object.follow(at.Field)
			if !ok {
				return sum, false
			}
			last := came[len(came)-1]
			asked := last.owner
			if last.owner <= m.object.Born {
				asked = 0
			}
			stood := max(0, until[i].Sub(last.at))
			if !known {
				sum, known = Renewed{Least: len(came) - 1, Stood: stood, Asked: asked}, true
			}
			sum.Least, sum.Most = min(sum.Least, len(came)-1), max(sum.Most, len(came)-1)
			sum.Stood = min(sum.Stood, stood)
			if sum.Asked != asked {
				sum.Asked = 0
			}
		}
	}
	for _, p := range runs {
		for _, m := range p[at.Object] {
			r, _ := m.object.renewal(at.Field, sum.Stood)
			sum.Quick = max(sum.Quick, r.Quick)
		}
	}
	return sum, known
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
	return at.Object.Type() == "secret" && strings.HasPrefix(at.Field, wholeData+".") && isToken(at, value)
}

// isToken reports whether a random value has no structure, and is not said to be computed.
func isToken(at Place, value string) bool {
	name := at.Field
	if env := environment.FindStringSubmatch(name); env != nil {
		name = env[1]
	}
	return !derived.MatchString(strings.TrimPrefix(name, wholeData+".")) && len(value) <= maxSecret &&
		token.MatchString(value) && !strings.HasPrefix(value, "eyJ")
}

// mustStay reports whether it is a mistake that a random value was replaced: secrets, also where they are in the data
// of a ConfigMap or in a container's environment. There others have what is computed from something, or who is the
// leader, and the name need not say so: what looks like a hash or like the name of an object is taken for one.
// Elsewhere nearly everything may be computed.
func mustStay(at Place, value string) bool {
	if isSecret(at, value) {
		return true
	}
	inData := at.Object.Type() == "configmap" && strings.HasPrefix(at.Field, wholeData+".")
	return (inData || environment.MatchString(at.Field)) && isToken(at, value) && !digest.MatchString(value) &&
		!nameOfObject.MatchString(value)
}

var (
	// environment is a variable of a container, in a pod or the template of one.
	environment  = regexp.MustCompile(`^spec\..*ontainers\[[^\]]*\]\.env\[name=([^\]]*)\]\.value$`)
	nameOfObject = regexp.MustCompile(`^[a-z0-9]+(?:[-.][a-z0-9]+)+$`)
	// digest is as long as MD5, SHA-1, SHA-2 and SHA-3 make them.
	digest = regexp.MustCompile(`^(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{56}|(?:[0-9a-fA-F]{32}){2,4})$`)
)

// made reports whether the value of a field is made from another one.
func (ref *Baseline) made(at Place) bool {
	return slices.ContainsFunc(ref.Relations, func(r Relation) bool {
		return r.Field.Object == placeOfKey(at.Object) && r.Field.Field == at.Field && r.Is != isEqual &&
			r.Is != isTogether
	})
}

// renewals compares how often the random values of an object were replaced. That is only worth a note if it need not be
// a mistake, see mustStay. Once too often is a mistake: somebody may have
// taken the value that was there before. But if the value had stood for as long as nothing happened without faults, it
// may be replaced from time to time. Not at all is a mistake if the object was created for the same state of its owner
// as without faults, and the owner has come as far since as it had when the value was replaced there. That several
// causes have led to one replacement is right.
func (f *filter) renewals(key Key, want, got *Object) []Difference {
	var all []Difference
	for _, where := range slices.Sorted(maps.Keys(want.Renewed)) {
		usual := want.Renewed[where]
		value := f.textsOf(key, got)[where]
		at := Place{key, where}
		if value.as != byPresence || !isToken(at, value.value) || f.ref.made(at) {
			continue
		}
		is, known := got.renewal(where, usual.Stood)
		surplus := is.Most > usual.Most && is.Quick > usual.Quick
		missed := is.Most == 0 && usual.Least > 0 && usual.Asked > 0 && got.Born != 0 && got.Born == want.Born &&
			got.ownerNow() >= usual.Asked
		if known && (surplus || missed) {
			all = append(all, Difference{
				Key: key, Field: where, Want: usual.String(), Got: is.String(), Renewal: true,
				Note: !mustStay(at, value.value),
			})
		}
	}
	return all
}

// ownerNow is the generation that the object's controller has now.
func (o *Object) ownerNow() int {
	return o.generations[metadata.Text(metadata.Controller(o.End), "uid")]
}
