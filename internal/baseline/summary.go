package baseline

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/errorlog"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// widen adds another run's objects to the sums.
func (ref *Baseline) widen(objects map[Key]*Object) {
	for key, o := range ref.Objects {
		got := objects[key]
		if got == nil {
			got = &Object{}
		}
		o.Made, o.MostMade = min(o.Made, got.Made), max(o.MostMade, got.MostMade)
		o.Vain, o.Instead = max(o.Vain, got.Vain), max(o.Instead, got.Instead)
		o.Deleted = max(o.Deleted, got.Deleted)
		o.Ours = o.Ours || got.Ours
		if o.Born != got.Born {
			o.Born = 0
		}
	}
	for key, got := range objects {
		if ref.Objects[key] == nil && !got.unchanged {
			o := *got
			if got.initial == nil {
				o.Made = 0
			}
			ref.Objects[key] = &o
		}
	}
}

// unorder finds the lists whose order differs from another run's.
func (ref *Baseline) unorder(objects map[Key]*Object) {
	for _, key := range slices.Sorted(maps.Keys(ref.Objects)) {
		got := objects[key]
		if got == nil || got.End == nil || ref.Objects[key].End == nil {
			continue
		}
		was, _ := rewrite(ref.Objects[key].End, ref.Objects[key].rewritten())
		is, _ := rewrite(got.End, got.rewritten())
		reordered(was, is, nil, func(path []string) {
			m := Mask{Type: key.Type(), Path: join(path), Reason: "its order differs between runs without faults"}
			if !ref.masked(key, path) && !slices.Contains(ref.Unordered, m) {
				ref.Unordered = append(ref.Unordered, m)
			}
		})
	}
}

// summarize sums up what happened in the runs, now that it is known which fields count.
func (ref *Baseline) summarize(runs []*record.Run) error {
	siblings := map[string]*Siblings{}
	logged := map[string]*LoggedError{}
	for i, r := range runs {
		changes := ref.Changes
		if i > 0 {
			changes = ref.Others[i-1]
		}
		ref.filter().returned(ref.Objects, changes)
		for _, s := range Most(changes) {
			id := string(s.Owner) + " " + s.Type
			if known := siblings[id]; known == nil || known.Most < s.Most {
				siblings[id] = &Siblings{Owner: s.Owner, Type: s.Type, Most: s.Most}
			}
		}
		for _, l := range Loops(r.Events, r.Meta.Calm, r.Meta.Observed) {
			if !slices.ContainsFunc(ref.Loops, l.Same) {
				ref.Loops = append(ref.Loops, l)
			}
		}
		all, err := Errors(r)
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
func (f *filter) returned(objects map[Key]*Object, changes []Change) {
	for key, fields := range Returns(changes) {
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
func (ref *Baseline) MostReturned(key Key, where string) int {
	if ref == nil {
		return 0
	}
	most := 0
	count := func(objects map[Key]*Object) {
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
func (ref *Baseline) AnyReturned(key Key) bool {
	any := func(o *Object) bool { return o != nil && len(o.Returned) > 0 }
	return any(ref.Objects[key]) ||
		slices.ContainsFunc(ref.Alternatives, func(a Alternative) bool { return any(a.Objects[key]) })
}

// Return is a field that changes back and forth: to a value that it had before the last one.
type Return struct {
	Path   []string
	Times  []int // the indexes of the changes that changed it back
	values []any // the last two
}

// Returns lists the fields of each object that were changed back, by where they are. An object that is created again
// begins anew.
func Returns(changes []Change) map[Key]map[string]*Return {
	all := map[Key]map[string]*Return{}
	for i := range changes {
		c := &changes[i]
		if c.Prev == nil || c.Cur == nil {
			for _, r := range all[c.Key] {
				r.values = nil
			}
			continue
		}
		for _, field := range changed(c) {
			if all[c.Key] == nil {
				all[c.Key] = map[string]*Return{}
			}
			r := all[c.Key][field.Where]
			if r == nil {
				r = &Return{Path: field.Path}
				all[c.Key][field.Where] = r
			}
			if len(r.values) == 2 && reflect.DeepEqual(r.values[0], field.Cur) {
				r.Times = append(r.Times, i)
			}
			r.values = []any{field.Prev, field.Cur}
		}
	}
	return all
}

// Siblings says how many objects of a type an owner had at a time.
type Siblings struct {
	Owner Key    `json:"owner"`
	Type  string `json:"type"`
	Most  int    `json:"most"`
	// Wanted is the number that the owner asked for then (spec.replicas or spec.parallelism); negative: none. At is the
	// index of the first change that made them so many, Names the objects. By are the controllers under test that had
	// created them; Generated: all their names were generated. A Baseline has none of these.
	Wanted    int      `json:"-"`
	At        int      `json:"-"`
	Names     []Key    `json:"-"`
	By        []string `json:"-"`
	Generated bool     `json:"-"`
}

// Most returns how many objects of a type the owner had at a time without faults; 1 if it never had more. Of an owner
// that they do not know by its name, any of its type of which the name is random may be meant.
func (ref *Baseline) Most(owner Key, typ string) int {
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

// Most lists, for each owner and type of object, how many objects of the owner there were at a time, if there were ever
// two. Objects that are being deleted, have finished, or whose owner is being deleted do not count.
func Most(changes []Change) []Siblings {
	type group struct{ owner, typ string } // the owner's UID
	living := map[Key]group{}
	members := map[group]map[Key]*Change{} // with their creations; nil: they existed before
	owners := map[string]*Change{}         // by UID
	births := map[Key]*Change{}            // the newest creation of each object
	most := map[group]*Siblings{}
	for i := range changes {
		c := &changes[i]
		if uid := metadata.UID(c.Cur); uid != "" {
			owners[uid] = c
		}
		if c.Cur == nil {
			delete(owners, metadata.UID(c.Prev))
		}
		if c.Event == record.Created {
			births[c.Key] = c
		}
		if old, ok := living[c.Key]; ok {
			delete(members[old], c.Key)
			delete(living, c.Key)
		}
		g := group{metadata.Text(metadata.Controller(c.Cur), "uid"), c.Key.Type()}
		if g.owner == "" || metadata.Marked(c.Cur) || Finished(c.Cur) {
			continue
		}
		if members[g] == nil {
			members[g] = map[Key]*Change{}
		}
		living[c.Key], members[g][c.Key] = g, births[c.Key]
		own := owners[g.owner]
		if own == nil || metadata.Marked(own.Cur) || len(members[g]) < 2 {
			continue
		}
		s := Siblings{Owner: own.Key, Type: g.typ, Most: len(members[g]), Wanted: wanted(own.Cur), At: i}
		if old := most[g]; old != nil && old.Most >= s.Most {
			continue
		}
		s.Generated = true
		for _, key := range slices.Sorted(maps.Keys(members[g])) {
			m := members[g][key]
			s.Names = append(s.Names, key)
			s.Generated = s.Generated && m != nil && m.Generated
			if m != nil && m.By != "" && !slices.Contains(s.By, m.By) {
				s.By = append(s.By, m.By)
			}
		}
		most[g] = &s
	}
	all := make([]Siblings, 0, len(most))
	for _, s := range most {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b Siblings) int {
		return cmp.Or(strings.Compare(string(a.Owner), string(b.Owner)), strings.Compare(a.Type, b.Type),
			cmp.Compare(a.At, b.At))
	})
	return all
}

// ended are the conditions by which objects of all kinds (Job, JobSet, MPIJob, Backup) say that their work is done.
var ended = []string{"Complete", "Completed", "Succeeded", "Finished"}

// Finished reports whether an object has done what it was created for, as pods and jobs of all kinds do. A failed job
// may have no sign of its end but the time, as Tekton's runs, or lack the time, as Kubernetes' own Jobs. An object that
// has failed and is no job is not finished: controllers try again.
func Finished(object map[string]any) bool {
	status, _ := object["status"].(map[string]any)
	phase := metadata.Text(status, "phase")
	if phase == "Succeeded" || phase == "Failed" || status["completionTime"] != nil {
		return true
	}
	job := strings.Contains(metadata.Text(object, "kind"), "Job")
	conditions, _ := status["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, _ := c.(map[string]any)
		typ := metadata.Text(m, "type")
		return m["status"] == "True" && (slices.Contains(ended, typ) || job && typ == "Failed")
	})
}

// OwnerFinished reports whether the object, or one that it belongs to, has finished at the end.
func (ref *Baseline) OwnerFinished(key Key) bool {
	for range 10 { // owners may form a circle
		object := ref.Objects[key]
		if object == nil || object.End == nil {
			return false
		}
		if Finished(object.End) {
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

// wanted is the number of objects that an owner asks for; negative: it does not.
func wanted(object map[string]any) int {
	spec, _ := object["spec"].(map[string]any)
	for _, field := range []string{"replicas", "parallelism"} {
		if n, ok := spec[field].(float64); ok {
			return int(n)
		}
	}
	return -1
}

// LoggedError is an error that a controller has logged.
type LoggedError struct {
	Controller string `json:"controller"`
	Shape      string `json:"shape"` // see errorlog.Shape
	Most       int    `json:"most"`  // how often, at most in a run
	Line       string `json:"line"`  // the first one
}

// Errors lists the errors in the logs of a recorded run's controllers.
func Errors(r *record.Run) ([]LoggedError, error) {
	all := map[string]*LoggedError{}
	read := map[string]bool{}
	for _, p := range r.Processes {
		if p.LogFile == "" || read[p.LogFile] {
			continue // the starts of a container share a file
		}
		read[p.LogFile] = true
		err := errorlog.File(filepath.Join(r.Dir, filepath.FromSlash(p.LogFile)), 0, -1, func(line string) {
			if !errorlog.Marked(line) {
				return
			}
			shape := errorlog.Shape(line)
			id := p.Controller + " " + shape
			if all[id] == nil {
				all[id] = &LoggedError{Controller: p.Controller, Shape: shape, Line: line}
			}
			all[id].Most++
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	list := make([]LoggedError, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		list = append(list, *all[id])
	}
	return list, nil
}
