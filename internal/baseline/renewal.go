package baseline

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline/values"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// rested is how long a value would have stood at least after a run that came to rest: no queue had put anything off.
const rested = 10 * time.Second

// untilWhen is until when a value that was there at the end of a run would have stood.
func untilWhen(r *record.Run, all []*record.Run) time.Time {
	if slices.ContainsFunc(all, func(r *record.Run) bool { return !r.Meta.Rested }) {
		return r.Meta.Observed
	}
	return r.Meta.Observed.Add(rested)
}

// renew learns how often random values were replaced in runs without faults, which are known until the given times.
// Each object of a group may be like any of the group.
func (ref *Baseline) renew(places []Place, runs []population, until []time.Time) {
	own := populationOf(ref.Objects)
	for _, at := range places {
		if at.Field == wholeData {
			continue
		}
		sum, known := renewedIn(at, runs, until)
		for _, m := range own[at.Object] {
			if known && m.object.Renewed == nil {
				m.object.Renewed = map[string]facts.Renewed{}
			}
			if known {
				m.object.Renewed[at.Field] = sum
			}
		}
	}
}

func renewedIn(at Place, runs []population, until []time.Time) (sum facts.Renewed, known bool) {
	for i, p := range runs {
		for _, m := range p[at.Object] {
			came, ok := m.object.Replacements(at.Field)
			if !ok {
				return sum, false
			}
			last := came[len(came)-1]
			asked := last.Owner
			if last.Owner <= m.object.OwnerGeneration {
				asked = 0
			}
			stood := max(0, until[i].Sub(last.At))
			if !known {
				sum, known = facts.Renewed{Least: len(came) - 1, Stood: stood, Asked: asked}, true
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
			r, _ := m.object.Renewal(at.Field, sum.Stood)
			sum.Quick = max(sum.Quick, r.Quick)
		}
	}
	return sum, known
}

// isSecret reports whether a random value is one that users of a Secret need, such as a password.
func isSecret(at Place, value string) bool {
	return at.Object.Type() == "secret" && strings.HasPrefix(at.Field, wholeData+".") && isToken(at, value)
}

// isToken reports whether a random value has no structure, and is not said to be computed.
func isToken(at Place, value string) bool {
	name := at.Field
	if env := environment.FindStringSubmatch(name); env != nil {
		name = env[1]
	}
	return values.IsToken(strings.TrimPrefix(name, wholeData+"."), value)
}

// mustStay reports whether it is a mistake to replace a random value. That is so for secrets, also in the data of a
// ConfigMap or in a container's environment. There, values that look like a hash or like the name of an object do not
// count: they may be computed, or name the leader. Elsewhere nearly everything may be computed.
func mustStay(at Place, value string) bool {
	if isSecret(at, value) {
		return true
	}
	inData := at.Object.Type() == "configmap" && strings.HasPrefix(at.Field, wholeData+".")
	return (inData || environment.MatchString(at.Field)) && isToken(at, value) &&
		!values.LooksComputed(value)
}

// environment is a variable of a container, in a pod or the template of one.
var environment = regexp.MustCompile(`^spec\..*ontainers\[[^\]]*\]\.env\[name=([^\]]*)\]\.value$`)

// made reports whether the value of a field is made from another one.
func (all Relations) made(at Place) bool {
	return slices.ContainsFunc(all, func(r Relation) bool {
		return r.Field.Object == placeOfKey(at.Object) && r.Field.Field == at.Field && r.Is != isEqual &&
			r.Is != isTogether
	})
}

// renewals compares how often the random values of an object were replaced. It is a note if that need not be a mistake:
// see mustStay.
//
// Once more than without faults is a mistake: a client may have taken the value that was there before. But a value that
// had stood for as long as nothing happened without faults may be replaced from time to time. No replacement is a
// mistake if the object was created for the same state of its owner as without faults, and the owner has come as far
// since as it had when the value was replaced there. One replacement for several causes is right.
func (f *filter) renewals(key facts.Key, want, got *facts.Object) []Difference {
	var all []Difference
	for _, where := range slices.Sorted(maps.Keys(want.Renewed)) {
		usual := want.Renewed[where]
		value := f.textsOf(key, got)[where]
		at := Place{key, where}
		if value.as != byPresence || !isToken(at, value.value) || f.ref.Relations.made(at) {
			continue
		}
		is, known := got.Renewal(where, usual.Stood)
		surplus := is.Most > usual.Most && is.Quick > usual.Quick
		missed := is.Most == 0 && usual.Least > 0 && usual.Asked > 0 && got.OwnerGeneration != 0 &&
			got.OwnerGeneration == want.OwnerGeneration && got.OwnerGenerationNow() >= usual.Asked
		if known && (surplus || missed) {
			all = append(all, Difference{
				Key: key, Field: where, Want: usual.String(), Got: is.String(), Renewal: true,
				Note: !mustStay(at, value.value),
			})
		}
	}
	return all
}
