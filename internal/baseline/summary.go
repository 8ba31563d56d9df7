package baseline

import (
	"maps"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// widen adds another run's objects to the sums.
func (ref *Baseline) widen(objects map[facts.Key]*facts.Object) {
	for key, o := range ref.Objects {
		got := objects[key]
		if got == nil {
			got = &facts.Object{}
		}
		o.Made, o.MostMade = min(o.Made, got.Made), max(o.MostMade, got.MostMade)
		o.OwnerGone, o.TookOver = max(o.OwnerGone, got.OwnerGone), max(o.TookOver, got.TookOver)
		o.Deleted = max(o.Deleted, got.Deleted)
		o.Ours = o.Ours || got.Ours
		if o.OwnerGeneration != got.OwnerGeneration {
			o.OwnerGeneration = 0
		}
	}
	for key, got := range objects {
		if ref.Objects[key] == nil && !got.Unchanged() {
			o := *got
			if !got.Existed() {
				o.Made = 0
			}
			ref.Objects[key] = &o
		}
	}
}

// unorder finds the lists whose order differs from another run's.
func (ref *Baseline) unorder(objects map[facts.Key]*facts.Object) {
	for _, key := range slices.Sorted(maps.Keys(ref.Objects)) {
		got := objects[key]
		if got == nil || got.End == nil || ref.Objects[key].End == nil {
			continue
		}
		was, is := ref.Objects[key].Normal(), got.Normal()
		facts.Reordered(was, is, nil, func(path []string) {
			m := Mask{Type: key.Type(), Path: facts.Join(path), Reason: "its order differs between runs without faults"}
			if !ref.masked(key, path) && !slices.Contains(ref.Unordered, m) {
				ref.Unordered = append(ref.Unordered, m)
			}
		})
	}
}

// summarize sums up what happened in the runs, now that it is known which fields count.
func (ref *Baseline) summarize(runs []*record.Run) error {
	siblings := map[string]*facts.Siblings{}
	logged := map[string]*facts.LoggedError{}
	for i, r := range runs {
		changes := ref.Changes
		if i > 0 {
			changes = ref.Others[i-1]
		}
		ref.filter().returned(ref.Objects, changes)
		for _, s := range facts.Most(changes) {
			id := string(s.Owner) + " " + s.Type
			if known := siblings[id]; known == nil || known.Most < s.Most {
				siblings[id] = &facts.Siblings{Owner: s.Owner, Type: s.Type, Most: s.Most}
			}
		}
		for _, l := range facts.Loops(r.Events, r.Meta.Calm, r.Meta.Observed) {
			if !slices.ContainsFunc(ref.Loops, l.Same) {
				ref.Loops = append(ref.Loops, l)
			}
		}
		all, err := facts.Errors(r)
		if err != nil {
			return err
		}
		for _, e := range all {
			id := e.Controller + " " + e.Shape
			if known := logged[id]; known == nil {
				logged[id] = &e
			} else {
				known.Most = max(known.Most, e.Most)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(siblings)) {
		ref.Siblings = append(ref.Siblings, *siblings[id])
	}
	for _, id := range slices.Sorted(maps.Keys(logged)) {
		ref.Errors = append(ref.Errors, *logged[id])
	}
	return nil
}

// returned counts how often fields changed back in a run.
func (f *filter) returned(objects map[facts.Key]*facts.Object, changes []facts.Change) {
	for key, fields := range facts.Returns(changes) {
		o := objects[key]
		if o == nil {
			continue
		}
		for where, r := range fields {
			if len(r.Times) > 0 && !f.masked(key, r.Path) {
				if o.Returned == nil {
					o.Returned = map[string]int{}
				}
				o.Returned[where] = max(o.Returned[where], len(r.Times))
			}
		}
	}
}

// MostReturned is how often a field of an object changed back to the value before the last one, at most in any run
// without faults. A nil baseline knows of none.
func (ref *Baseline) MostReturned(key facts.Key, where string) int {
	if ref == nil {
		return 0
	}
	most := 0
	count := func(objects map[facts.Key]*facts.Object) {
		if o := objects[key]; o != nil {
			most = max(most, o.Returned[where])
		}
	}
	count(ref.Objects)
	for _, a := range ref.Alternatives {
		count(a.Objects)
	}
	return most
}

// AnyReturned reports whether any field of an object changed back to the value before the last one in any run without
// faults.
func (ref *Baseline) AnyReturned(key facts.Key) bool {
	any := func(o *facts.Object) bool { return o != nil && len(o.Returned) > 0 }
	return any(ref.Objects[key]) ||
		slices.ContainsFunc(ref.Alternatives, func(a Alternative) bool { return any(a.Objects[key]) })
}

// Most returns how many objects of a type the owner had at a time without faults; 1 if it never had more. Of an owner
// that they do not know by its name, any of its type of which the name is random may be meant.
func (ref *Baseline) Most(owner facts.Key, typ string) int {
	most := 1
	for _, s := range ref.Siblings {
		switch {
		case s.Type != typ:
		case s.Owner == owner:
			return s.Most
		case ref.Objects[owner] == nil && s.Owner.Type() == owner.Type() && strings.Contains(string(s.Owner), "#"):
			most = max(most, s.Most)
		}
	}
	return most
}

// OwnerFinished reports whether the object, or one that it belongs to, has finished at the end.
func (ref *Baseline) OwnerFinished(key facts.Key) bool {
	for range 10 { // owners may form a circle
		object := ref.Objects[key]
		if object == nil || object.End == nil {
			return false
		}
		if facts.Finished(object.End) {
			return true
		}
		uid := metadata.Text(metadata.Controller(object.End), "uid")
		if uid == "" {
			return false
		}
		key = ""
		for other, o := range ref.Objects {
			if o.End != nil && metadata.UID(o.End) == uid {
				key = other
			}
		}
	}
	return false
}
