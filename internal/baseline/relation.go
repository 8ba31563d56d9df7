package baseline

import (
	"crypto/md5"  //nolint:gosec // controllers use it, too
	"crypto/sha1" //nolint:gosec // controllers use it, too
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline/values"
	"github.com/trommel-dev/trommel/internal/facts"
)

// Place is a field of an object, or of all objects of a group.
type Place struct {
	Object facts.Key `json:"object"` // or a group; see placeOfKey
	Field  string    `json:"field"`  // where it is; "data" is all data of a Secret or ConfigMap
}

func (p Place) String() string { return fmt.Sprintf("%s of %s", p.Field, p.Object) }

// Relation says that the value of a field is a certain function of the value of another field, though both differ in
// each run. A relation about a group holds for each of its objects. If both fields are in the same group, they are
// fields of the same object. Otherwise any object with the other field fits.
type Relation struct {
	Field Place `json:"field"`
	Is    Is    `json:"is"`
	Of    Place `json:"of"`
}

// Relations are those that hold in all runs without faults.
type Relations []Relation

// Is is what one value is of another.
type Is string

// The relations.
const (
	isEqual    Is = "equal to"
	isBase64   Is = "the base64 encoding of"
	isSHA256   Is = "the SHA-256 of"
	isSHA1     Is = "the SHA-1 of"
	isMD5      Is = "the MD5 of"
	isSHA512   Is = "the SHA-512 of"
	isContents Is = "a text that contains"
	// isVersion: a resource version that the object has had with the contents that it has in the end.
	isVersion Is = "the resource version of"
	// isTogether: one is replaced whenever the other is, and after it. It does not hold if one was replaced less often,
	// and the other was replaced last.
	isTogether Is = "replaced after"
)

var hashes = map[Is]func(string) []byte{
	isSHA256: func(s string) []byte { sum := sha256.Sum256([]byte(s)); return sum[:] },
	isSHA1:   func(s string) []byte { sum := sha1.Sum([]byte(s)); return sum[:] }, //nolint:gosec // as above
	isMD5:    func(s string) []byte { sum := md5.Sum([]byte(s)); return sum[:] },  //nolint:gosec // as above
	isSHA512: func(s string) []byte { sum := sha512.Sum512([]byte(s)); return sum[:] },
}

// wholeData is the place of all data of a Secret or ConfigMap.
const wholeData = "data"

// minDifferent is how many of the characters of a random value must differ from run to run.
const minDifferent = 6

// maxRandom limits how many random values are compared with each other, and maxRelations what is learned.
const (
	maxRandom    = 300
	maxRelations = 200
)

// text is a value that is a text.
type text struct {
	value string // decoded, if it is in a Secret
	raw   string
	as    counts
}

// textsOf are the values of an object that are texts, by where they are.
func (f *filter) textsOf(key facts.Key, o *facts.Object) map[string]text {
	if known, ok := f.texts[o]; ok {
		return known
	}
	all := map[string]text{}
	masked := false
	f.visit(f.normal(key, o), nil, "", func(path []string, where string, v any) {
		s, ok := v.(string)
		if !ok {
			return
		}
		as := f.countsAs(key, where, path)
		all[where] = text{decoded(key, where, s), s, as}
		masked = masked || as == byPresence && path[0] == "data"
	})
	if masked && hasData(key) {
		all[wholeData] = text{as: byPresence}
	}
	f.texts[o] = all
	return all
}

// hasData reports whether an object is a Secret or ConfigMap.
func hasData(key facts.Key) bool { return key.Type() == "secret" || key.Type() == "configmap" }

// decoded is the value as those see it who use a Secret.
func decoded(key facts.Key, where, s string) string {
	if key.Type() == "secret" && strings.HasPrefix(where, "data.") {
		if plain, err := base64.StdEncoding.DecodeString(s); err == nil {
			return string(plain)
		}
	}
	return s
}

// forms are the texts that a hash of a place may be of.
func (f *filter) forms(at Place, o *facts.Object) []string {
	t := f.textsOf(at.Object, o)[at.Field]
	if at.Field != wholeData {
		if t.raw == t.value {
			return []string{t.value}
		}
		return []string{t.value, t.raw}
	}
	data, _ := o.End["data"].(map[string]any)
	asJSON, err := json.Marshal(data)
	if err != nil {
		return nil
	}
	var values, pairs strings.Builder
	for _, k := range slices.Sorted(maps.Keys(data)) {
		s, _ := data[k].(string)
		s = decoded(at.Object, "data."+k, s)
		values.WriteString(s)
		pairs.WriteString(k + s)
	}
	return []string{string(asJSON), values.String(), pairs.String()}
}

// member is an object of a run.
type member struct {
	key    facts.Key
	object *facts.Object
}

// population are a run's objects that are there in the end, by where they are in a Place.
type population map[facts.Key][]member

// placeOfKey is how an object is called in a Place. Objects with generated names are called by their group, because
// their numbers mean nothing.
func placeOfKey(key facts.Key) facts.Key {
	if strings.Contains(string(key), "#") {
		return key.Group()
	}
	return key
}

func populationOf(objects map[facts.Key]*facts.Object) population {
	p := population{}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if o := objects[key]; o != nil && o.End != nil {
			p[placeOfKey(key)] = append(p[placeOfKey(key)], member{key, o})
		}
	}
	return p
}

// wrong lists the objects for which a relation does not hold. Not known: it could not be checked for any object.
func (f *filter) wrong(r *Relation, p population) (wrong []facts.Key, known bool) {
	for _, is := range p[r.Field.Object] {
		ofs := p[r.Of.Object]
		if r.Of.Object == r.Field.Object {
			ofs = []member{is}
		}
		fails := false
		for _, of := range ofs {
			holds, knows := f.holds(r, is, of, p)
			known = known || knows
			if fails = knows && !holds; knows && holds {
				break
			}
		}
		if fails {
			wrong = append(wrong, is.key)
		}
	}
	return wrong, known
}

// holds reports whether a relation holds for two objects of a run. Not known: a field is missing, or must not count.
func (f *filter) holds(r *Relation, isIn, ofIn member, p population) (holds, known bool) {
	of, is := ofIn.object, isIn.object
	a, okA := f.textsOf(ofIn.key, of)[r.Of.Field]
	b, okB := f.textsOf(isIn.key, is)[r.Field.Field]
	if r.Is == isVersion {
		return slices.Contains(of.ContentVersions(), b.value), okB && b.as != never
	}
	if !okA || !okB || a.as == never || b.as == never {
		return false, false
	}
	switch r.Is {
	case isEqual:
		return a.value == b.value || f.stillHolds(r.Is, b.value, a.value, p), true
	case isBase64:
		return values.Encodes(b.value, []byte(a.value)) || f.stillHolds(r.Is, b.value, a.value, p), true
	case isTogether:
		first, knownA := of.Renewal(r.Of.Field, 0)
		then, knownB := is.Renewal(r.Field.Field, 0)
		return then.Most >= first.Most || then.Last >= first.Last, knownA && knownB
	case isContents:
		return strings.Contains(b.value, a.value) || f.stillHolds(r.Is, b.value, a.value, p), true
	}
	hash := hashes[r.Is]
	if hash == nil {
		return false, false // of a newer version
	}
	return slices.ContainsFunc(f.forms(Place{ofIn.key, r.Of.Field}, of), func(s string) bool {
		return values.IsSum(b.value, hash(s))
	}), true
}

// relater finds the relations that hold in all runs.
type relater struct {
	filter *filter
	runs   []population
	found  Relations
}

// relate finds the relations that hold in all runs, given how each of them ended, and how often random values were
// replaced until then.
func (ref *Baseline) relate(ends []map[facts.Key]*facts.Object, until []time.Time) {
	f := ref.filter()
	f.exact = true
	r := &relater{filter: f}
	for _, objects := range ends {
		r.runs = append(r.runs, populationOf(objects))
	}
	var places []Place   // with random values
	var versions []Place // with values that may be versions
	looked := map[facts.Key]bool{}
	for _, key := range slices.Sorted(maps.Keys(ref.Objects)) {
		object := placeOfKey(key)
		if ref.Objects[key].End == nil || looked[object] || len(ref.foundOn(key, ref.ends)) == 0 {
			continue
		}
		looked[object] = true
		all := f.textsOf(key, ref.Objects[key])
		for _, where := range slices.Sorted(maps.Keys(all)) {
			switch at := (Place{object, where}); {
			case all[where].as != byPresence:
			case where == wholeData || r.random(at):
				places = append(places, at)
			case all[where].value != "" && strings.Trim(all[where].value, "0123456789") == "":
				versions = append(versions, at)
			}
		}
	}
	places = places[:min(len(places), maxRandom)]
	ref.renew(places, r.runs, until)
	for i, field := range places {
		for j, of := range places {
			if field == of || field.Field == wholeData || field.Object == of.Object && !apart(field, of) {
				continue
			}
			all := []Is{isBase64, isContents, isSHA256, isSHA1, isMD5, isSHA512}
			switch {
			case of.Field == wholeData:
				all = all[2:]
			case equalled(field, of, j < i):
				all = append([]Is{isEqual}, all...)
			}
			if field.Object != of.Object && r.replacedTogether(field, of) {
				all = append(all, isTogether)
			}
			r.firstThatHolds(field, of, all)
		}
	}
	for _, field := range versions[:min(len(versions), maxRandom)] {
		for _, key := range slices.Sorted(maps.Keys(ref.Objects)) {
			if hasData(key) && key != field.Object && !strings.Contains(string(key), "#") {
				r.firstThatHolds(field, Place{key, wholeData}, []Is{isVersion})
			}
		}
	}
	ref.Relations = slices.DeleteFunc(r.found, func(c Relation) bool {
		// What is equal contains each other, too.
		return c.Is == isContents && slices.Contains(r.found, Relation{c.Of, isEqual, c.Field})
	})
}

// equalled reports which of two fields is said to be equal to the other: each object of a group to a single object, and
// otherwise the later one to the earlier one.
func equalled(field, of Place, later bool) bool {
	isGroup, ofGroup := strings.Contains(string(field.Object), "#"), strings.Contains(string(of.Object), "#")
	if isGroup != ofGroup {
		return isGroup
	}
	return later
}

// apart reports whether two fields of one object may be written at different times: the data of a Secret or ConfigMap,
// each of which may be renewed for itself.
func apart(a, b Place) bool {
	return hasData(a.Object) && strings.HasPrefix(a.Field, wholeData+".") && strings.HasPrefix(b.Field, wholeData+".")
}

// firstThatHolds adds the first relation of a field to another one that holds in all runs.
func (r *relater) firstThatHolds(field, of Place, all []Is) {
	for _, is := range all {
		relation := Relation{field, is, of}
		if r.alwaysHolds(&relation) && len(r.found) < maxRelations {
			r.found = append(r.found, relation)
			return
		}
	}
}

// replacedTogether reports whether in all runs a secret was replaced, and a random value as often, the last time after
// it. For groups it returns false: their objects are mostly replaced as a whole.
func (r *relater) replacedTogether(field, of Place) bool {
	if strings.Contains(string(field.Object+of.Object), "#") {
		return false
	}
	return !slices.ContainsFunc(r.runs, func(p population) bool {
		ofs, fields := p[of.Object], p[field.Object]
		if len(ofs) == 0 || len(fields) == 0 {
			return true
		}
		a, b := ofs[0].object, fields[0].object
		if !isSecret(of, r.filter.textsOf(of.Object, a)[of.Field].value) {
			return true
		}
		first, knownA := a.Renewal(of.Field, 0)
		then, knownB := b.Renewal(field.Field, 0)
		return !knownA || !knownB || first.Most == 0 || then.Most != first.Most || then.Last < first.Last
	})
}

func (r *relater) alwaysHolds(relation *Relation) bool {
	return !slices.ContainsFunc(r.runs, func(p population) bool {
		wrong, known := r.filter.wrong(relation, p)
		return !known || len(wrong) > 0
	})
}

// random reports whether a field has a random value in each run.
func (r *relater) random(at Place) bool {
	var before []string // of the runs so far
	for _, p := range r.runs {
		if len(p[at.Object]) == 0 {
			return false
		}
		var own []string
		for _, m := range p[at.Object] {
			v := r.filter.textsOf(m.key, m.object)[at.Field].value
			if !values.LooksRandom(v) || slices.ContainsFunc(before, func(other string) bool {
				return values.Different(v, other) < minDifferent
			}) {
				return false
			}
			own = append(own, v)
		}
		before = append(before, own...)
	}
	return true
}

// unrelated lists the relations that do not hold in a run. It leaves out objects that the runs without faults do not
// end with: that they are there is the difference. It also leaves out objects of a group that have finished: what they
// were made from may have changed since.
func (f *filter) unrelated(objects map[facts.Key]*facts.Object) []Difference {
	if len(f.ref.Relations) == 0 {
		return nil
	}
	var all []Difference
	p := populationOf(objects)
	for i := range f.ref.Relations {
		r := &f.ref.Relations[i]
		wrong, _ := f.wrong(r, p)
		for _, key := range wrong {
			if f.ref.ends(key) && (placeOfKey(key) == key || !facts.Finished(objects[key].End)) {
				all = append(all, Difference{Key: key, Field: r.Field.Field, Relation: r})
			}
		}
	}
	return all
}
