package baseline

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// Alternative is another way in which a workload may end.
type Alternative struct {
	// How says which run has ended so, in words: "with slow controllers".
	How string `json:"how"`
	// Objects are those that may end so: only what differs from the baseline. One that has no End may be gone.
	Objects map[facts.Key]*facts.Object `json:"objects"`
	// FieldsOnly: only the values of fields may be like that, and not which objects there are or how often they were
	// created.
	FieldsOnly bool `json:"fieldsOnly,omitempty"`
	// Whole: an object must be like that in all fields, and not only in those in which it differs from the baseline.
	Whole bool `json:"whole,omitempty"`
	// Later: it was seen after the baseline was learned; see Allowed.
	Later bool `json:"later,omitempty"`
}

// Allow adds the end of another run without faults. A difference does not count if an object ended like that there, in
// all fields in which it differs. Some states depend on time: a condition that is only updated and never added later,
// for example, or an object for a spec that the workload changes at once. A run in which the workload gives the
// controllers much time shows that.
//
// Each object is compared for itself, and may be as in another run than the next one: which controller is faster may
// differ for each object. But an object that exists instead of another one counts only together with that; see
// replaced.
func (ref *Baseline) Allow(r *record.Run) error {
	return ref.allow(r, "in another run without faults")
}

// AllowUpgraded is Allow for a run in which an upgrade at rest is all that is done: other plans that upgrade have in
// common with it what the former build leaves.
func (ref *Baseline) AllowUpgraded(r *record.Run) error {
	return ref.allow(r, "after the same upgrade at rest")
}

// AllowUnhurried is Allow for a run with time between the steps of the workload.
func (ref *Baseline) AllowUnhurried(r *record.Run) error {
	return ref.allow(r, "with time between the steps")
}

func (ref *Baseline) allow(r *record.Run, how string) error {
	run, err := facts.Follow(r)
	if err != nil {
		return err
	}
	f := ref.filter()
	objects := f.matched(run.Objects())
	maps.DeleteFunc(objects, func(key facts.Key, o *facts.Object) bool {
		return o.Unchanged() && ref.Objects[key] == nil
	})
	f.returned(objects, run.Changes())
	ref.add(Alternative{How: how, Objects: f.otherwise(objects)})
	return nil
}

// AllowSlow adds the end of a run with slow controllers. A controller may be slow, but what it misses only because it
// is slow is a mistake. So an object may end like that only if it also does in the run fresh, which has created the
// final state of what users ask for at once: then it is right, whatever was there before. If there is no such run
// (nil), only fields of a status may be like that, and none that says how things are. In any case, nothing is left
// behind or stuck in its deletion, nothing that holds data is missing, and nothing was created anew more often. With
// fieldsOnly, which objects there are and how often they were created counts too.
//
// An object that has finished, or belongs to one that has, may do so before slow controllers have seen it at work, and
// need not be brought up to date after that. So its fields may also be as in the run slowlyMade, which is fresh with
// slow controllers: there users have changed nothing that the controllers could have missed. Its status still counts.
// Nil: there is no such run. The controllers are slow for a time only, and an object that is created anew may come
// later. So it is enough if such an object is like that in slowlyMade.
func (ref *Baseline) AllowSlow(slow, fresh, slowlyMade *record.Run, fieldsOnly bool) error {
	run, err := facts.Follow(slow)
	if err != nil {
		return err
	}
	f := ref.filter()
	return f.allowTimed("with slow controllers", f.matched(run.Objects()), fresh, slowlyMade, fieldsOnly)
}

// AnyFinished reports whether something has finished in the end.
func (ref *Baseline) AnyFinished() bool {
	for _, o := range ref.Objects {
		if o.End != nil && facts.Finished(o.End) {
			return true
		}
	}
	return false
}

// AllowUnpaced adds the end of a run without faults in which the steps of the workload follow one another at once, to a
// baseline of paced runs. Who is faster then decides what comes first, and the controllers may have got that wrong. So
// its end is right as far as AllowSlow would say so. How often fields changed back may be as in that run in any case.
func (ref *Baseline) AllowUnpaced(r, fresh *record.Run, fieldsOnly bool) error {
	run, err := facts.Follow(r)
	if err != nil {
		return err
	}
	const how = "without pauses between its steps"
	f := ref.filter()
	objects := f.matched(run.Objects())
	f.returned(objects, run.Changes())
	back := map[facts.Key]*facts.Object{}
	for key, o := range objects {
		if usual := ref.Objects[key]; usual != nil && len(o.Returned) > 0 {
			back[key] = &facts.Object{
				End: usual.End, Rewritten: usual.Rewritten, Made: usual.Made, MostMade: usual.MostMade,
				Returned: o.Returned,
			}
		}
	}
	if err := f.allowTimed(how, objects, fresh, nil, fieldsOnly); err != nil {
		return err
	}
	ref.add(Alternative{How: how, Objects: back, Whole: true})
	return nil
}

// allowTimed adds how objects have ended, matched, if only times were different; see AllowSlow.
func (f *filter) allowTimed(
	how string, ended map[facts.Key]*facts.Object, fresh, slowlyMade *record.Run, fieldsOnly bool,
) error {
	ref := f.ref
	objects := f.otherwise(ended)
	asked, err := f.endOf(fresh)
	if err != nil {
		return err
	}
	late, err := f.endOf(slowlyMade)
	if err != nil {
		return err
	}
	status := func(key facts.Key, want, o *facts.Object) bool {
		return slices.ContainsFunc(f.fields(key, want, o), func(d Difference) bool {
			return inStatus(d.Field) && !d.Note
		})
	}
	maps.DeleteFunc(objects, func(key facts.Key, o *facts.Object) bool {
		want := ref.usual(key)
		switch {
		case want.End == nil && o.End != nil, metadata.Marked(o.End),
			o.Made > want.MostMade && facts.HoldsData(key.Type()):
			return true
		case want.End != nil && o.End == nil && (facts.HoldsData(key.Type()) || len(f.replaced(key, ended)) > 0):
			return true // what is there in its place is not allowed either
		case fresh != nil && f.same(key, cmp.Or(asked[key], &facts.Object{}), o):
			return false
		case fresh != nil:
			return o.End == nil || o.Made != want.Made || !ref.OwnerFinished(key) || late[key] == nil ||
				!f.same(key, late[key], o) || status(key, want, o)
		}
		return o.End == nil || slices.ContainsFunc(f.fields(key, want, o), func(d Difference) bool {
			return !inStatus(d.Field) || saysHowThingsAre(d, want)
		})
	})
	for key, l := range late {
		want := ref.usual(key)
		if objects[key] == nil && want.Made > 1 && want.End != nil && l.End != nil && ref.OwnerFinished(key) &&
			!metadata.Marked(l.End) && len(f.fields(key, want, l)) > 0 && !status(key, want, l) {
			objects[key] = &facts.Object{
				End: l.End, Rewritten: want.Rewritten, Made: want.Made, MostMade: want.MostMade,
			}
		}
	}
	ref.add(Alternative{
		How: how, Objects: objects, FieldsOnly: fieldsOnly || fresh == nil, Whole: true,
	})
	return nil
}

// endOf is how a run's objects ended, matched; nil: there is no run.
func (f *filter) endOf(r *record.Run) (map[facts.Key]*facts.Object, error) {
	if r == nil {
		return nil, nil
	}
	run, err := facts.Follow(r)
	if err != nil {
		return nil, err
	}
	return f.matched(run.Objects()), nil
}

// add adds an alternative if there is anything in it.
func (ref *Baseline) add(a Alternative) {
	fields := map[facts.Key][]string{}
	for _, r := range ref.Relations {
		fields[r.Field.Object] = append(fields[r.Field.Object], r.Field.Field)
		fields[r.Of.Object] = append(fields[r.Of.Object], r.Of.Field)
	}
	for key, o := range a.Objects {
		o.Remember(slices.AppendSeq(slices.Clone(fields[placeOfKey(key)]), maps.Keys(ref.usual(key).Renewed)))
		o.Detach()
	}
	if len(a.Objects) > 0 {
		ref.Alternatives = append(ref.Alternatives, a)
	}
}

// otherwise returns those of a run's matched objects that differ from the baseline in what counts so far, or have
// fields that changed back more often.
func (f *filter) otherwise(objects map[facts.Key]*facts.Object) map[facts.Key]*facts.Object {
	other := map[facts.Key]*facts.Object{}
	differ, _ := f.split(objects)
	for _, d := range differ {
		other[d.Key] = cmp.Or(objects[d.Key], &facts.Object{})
		for key, o := range objects {
			if d.Relation != nil && placeOfKey(key) == d.Relation.Of.Object {
				other[key] = o
			}
		}
	}
	for key, o := range objects {
		for where, n := range o.Returned {
			if n > f.ref.MostReturned(key, where) {
				other[key] = o
			}
		}
	}
	return other
}

// Excuse is an object that does not end as in the baseline, which does not count.
type Excuse struct {
	Differences []Difference
	// How says which run has ended like that.
	How string
}

// Excuses lists what Compare leaves out, because other runs have ended like that.
func (ref *Baseline) Excuses(objects map[facts.Key]*facts.Object) []Excuse {
	_, excuses := ref.compare(objects)
	return slices.DeleteFunc(excuses, func(x Excuse) bool {
		return !slices.ContainsFunc(x.Differences, func(d Difference) bool { return !d.Note })
	})
}

// compare lists what a run did otherwise, and what of it does not count.
func (ref *Baseline) compare(objects map[facts.Key]*facts.Object) (differ []Difference, excuses []Excuse) {
	f := ref.filter()
	return f.split(f.matched(objects))
}

// split is compare for matched objects.
func (f *filter) split(objects map[facts.Key]*facts.Object) (differ []Difference, excuses []Excuse) {
	all := append(f.compare(objects), f.unrelated(objects)...)
	slices.SortStableFunc(all, func(a, b Difference) int { return strings.Compare(string(a.Key), string(b.Key)) })
	for i := range all {
		own, matched := f.own[all[i].Key]
		if !matched {
			own = all[i].Key
		}
		all[i].Own = own
	}
	all = slices.DeleteFunc(all, func(d Difference) bool { return d.Field == "" && f.ref.volatile(d.Key) })
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(d Difference) bool { return d.Key != all[0].Key })
		if n < 0 {
			n = len(all)
		}
		if how := f.excused(all[:n], objects); how != "" {
			excuses = append(excuses, Excuse{all[:n:n], how})
		} else {
			differ = append(differ, all[:n]...)
		}
		all = all[n:]
	}
	return differ, excuses
}

// excused says which run has ended like this one in all differences of an object, or which harmless fault has shown
// that the fields are about what has happened; empty: none. The objects are the run's.
func (f *filter) excused(differ []Difference, objects map[facts.Key]*facts.Object) (how string) {
	rest := slices.DeleteFunc(slices.Clone(differ), func(d Difference) bool {
		if d.OfMessage() || d.OfHistory() || d.OfElapsed() || d.Renewal && d.Note {
			return true
		}
		kept := f.ref.keeps(d)
		if kept != nil {
			how = kept.How
		}
		return kept != nil
	})
	if len(rest) == 0 {
		return how
	}
	return f.allowed(rest, objects)
}

// allowed says which run has ended like this one in all of these differences of an object; empty: none has.
func (f *filter) allowed(differ []Difference, objects map[facts.Key]*facts.Object) (how string) {
	key := differ[0].Key
	got := objects[key]
	for _, a := range f.ref.Alternatives {
		like := a.Objects[key]
		if like == nil {
			continue
		}
		fields := false
		if !slices.ContainsFunc(differ, func(d Difference) bool {
			fields = fields || d.Field != ""
			return !f.alike(d, &a, like, got) || d.Field == "" && !d.Count && !f.together(key, &a, objects)
		}) && (!fields || !a.Whole || f.same(key, like, got)) {
			return a.How
		}
	}
	return ""
}

// alike reports whether an alternative's object is like the run's in what differs.
func (f *filter) alike(d Difference, a *Alternative, like, got *facts.Object) bool {
	if d.Relation != nil {
		wrong, _ := f.wrong(d.Relation, populationOf(a.Objects))
		return slices.Contains(wrong, d.Key)
	}
	switch {
	case d.Field == "" && a.FieldsOnly && !d.Note:
		return false
	case d.Renewal:
		r, known := like.Renewal(d.Field, 0)
		return known && !a.Whole && r.String() == d.Got
	case d.Field != "":
		return like.End != nil && reflect.DeepEqual(f.counting(d.Key, like)[d.Field], d.Got)
	case d.Count:
		return got != nil && got.Made == like.Made
	}
	return (like.End == nil) == (got == nil || got.End == nil)
}

// together reports whether the objects that an alternative has instead of an object, or the other way round, are as
// they are there.
func (f *filter) together(key facts.Key, a *Alternative, objects map[facts.Key]*facts.Object) bool {
	return !slices.ContainsFunc(f.replaced(key, a.Objects), func(other facts.Key) bool {
		is := objects[other]
		return (a.Objects[other].End == nil) != (is == nil || is.End == nil)
	})
}

// replaced lists the objects of the same type and owner that are there in the end instead of an object that is there
// without faults; or, if the object is not there without faults, the missing ones that it replaces.
func (f *filter) replaced(key facts.Key, objects map[facts.Key]*facts.Object) []facts.Key {
	there := func(key facts.Key) *facts.Object {
		if usual := f.ref.usual(key); usual.End != nil {
			return usual
		}
		return cmp.Or(objects[key], &facts.Object{})
	}
	isGone := objects[key] == nil || objects[key].End == nil
	owner := there(key).OwnerName()
	if owner == "" {
		return nil // nothing says that it is for the same
	}
	var all []facts.Key
	for other, o := range objects {
		gone, usuallyGone := o.End == nil, f.ref.usual(other).End == nil
		if other.Type() == key.Type() && gone != usuallyGone && gone != isGone &&
			there(other).OwnerName() == owner {
			all = append(all, other)
		}
	}
	return all
}
