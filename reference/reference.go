package reference

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Reference is what a workload does when nothing goes wrong.
type Reference struct {
	Workload string `json:"workload"`
	Runs     int    `json:"runs"`
	// Objects are those that the workload had to do with.
	Objects map[Key]*Object `json:"objects"`
	// Masks are the fields that never count, those found by comparing the runs first.
	Masks []Mask `json:"masks"`
	// Changes are those of the first run.
	Changes []Change `json:"changes"`
	// Controllers are those under test that have hooks.
	Controllers []string `json:"controllers"`
	// Source is what the reference was made from, Types what other runs must record to be compared with it, and Reached
	// the points that each controller reached in the first run (see Types and Reached). The caller of Learn sets them.
	Source  Source              `json:"source"`
	Types   []plan.ResourceKey  `json:"types,omitempty"`
	Reached map[string][]string `json:"reached,omitempty"`
}

// Object is what became of an object.
type Object struct {
	// End is the object's state at the end; nil: it is gone.
	End map[string]any `json:"end,omitempty"`
	// Made is how many objects of the key there were, one after the other, without those that were created for an owner
	// that was being deleted, or was gone: a controller that sees the past creates such objects, and the garbage collector
	// deletes them.
	Made int `json:"made"`
	// Ours: a controller under test has made or deleted it at least once.
	Ours bool `json:"ours,omitempty"`
}

// UnstableError says that fault-free runs of a workload end differently, so that nothing can be compared with them.
type UnstableError struct {
	Workload string
	Lines    []string // what differs
}

func (e *UnstableError) Error() string {
	return fmt.Sprintf("the workload %q ends differently each time, without any fault:\n  %s", e.Workload,
		strings.Join(e.Lines, "\n  "))
}

// Differs is the reason of masks that Learn has found.
const Differs = "differs between runs without faults"

// Learn makes a reference of traced, fault-free runs of a workload, at least two. Fields that differ between the runs
// are masked, in addition to those of masks. The error is an *UnstableError where more than fields differ, or that of
// a run that cannot be read.
func Learn(workload string, runs []*record.Run, masks ...Mask) (*Reference, error) {
	if len(runs) < 2 {
		return nil, errors.New("a reference needs two runs or more")
	}
	ref := &Reference{Workload: workload, Runs: len(runs), Masks: slices.Concat(masks, standard)}
	for _, c := range runs[0].Meta.Controllers {
		if c.Hooks {
			ref.Controllers = append(ref.Controllers, c.Name)
		}
	}
	var found []Mask
	var unstable []string
	for i, r := range runs {
		changes, err := Changes(r)
		if err != nil {
			return nil, err
		}
		objects := Objects(changes)
		if i == 0 {
			ref.Changes, ref.Objects = changes, objects
			continue
		}
		for _, d := range ref.compare(objects) {
			switch {
			case d.Field == "" && ref.volatile(d.Key):
			case d.Field == "":
				unstable = append(unstable, d.String())
			default:
				m := Mask{Type: d.Key.Type(), Path: join(d.path), Reason: Differs}
				if !slices.Contains(found, m) {
					found = append(found, m)
				}
			}
		}
	}
	if len(unstable) > 0 {
		slices.Sort(unstable)
		return nil, &UnstableError{workload, slices.Compact(unstable)}
	}
	slices.SortFunc(found, func(a, b Mask) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.Path, b.Path))
	})
	ref.Masks = append(found, ref.Masks...)
	return ref, nil
}

// Write writes the reference to a file as JSON, for people and programs to read. It creates the file's directory.
func (ref *Reference) Write(file string) error {
	data, err := json.MarshalIndent(ref, "", "  ")
	if err != nil {
		return fmt.Errorf("write reference: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), record.DirMode); err != nil {
		return fmt.Errorf("write reference: %w", err)
	}
	if err := os.WriteFile(file, data, record.FileMode); err != nil {
		return fmt.Errorf("write reference: %w", err)
	}
	return nil
}

// Objects sums up changes by object.
func Objects(changes []Change) map[Key]*Object {
	all := map[Key]*Object{}
	dying := map[string]bool{} // UIDs of objects that are being deleted, or are gone
	for i := range changes {
		c := &changes[i]
		if c.Cur == nil || has(c.Cur, "deletionTimestamp") {
			for _, object := range []map[string]any{c.Prev, c.Cur} {
				if uid := text(metadataOf(object), "uid"); uid != "" {
					dying[uid] = true
				}
			}
		}
		o := all[c.Key]
		if o == nil {
			o = &Object{Made: 1}
			if c.Event == record.Created {
				o.Made = 0
			}
			all[c.Key] = o
		}
		if c.Event == record.Created && !dying[owner(c.Cur)] {
			o.Made++
		}
		if c.By != "" && (c.Event != record.Updated || c.Marked()) {
			o.Ours = true
		}
		o.End = c.Cur
	}
	return all
}

// owner is the UID of the object's controller, or empty.
func owner(object map[string]any) string {
	owners, _ := metadataOf(object)["ownerReferences"].([]any)
	for _, o := range owners {
		if ref, ok := o.(map[string]any); ok && ref["controller"] == true {
			return text(ref, "uid")
		}
	}
	return ""
}

// Difference is something in which a run differs from the runs without faults.
type Difference struct {
	Key   Key
	Field string // where in the object; empty: the object as a whole
	// Want and Got are the values without faults and in the run. For an object as a whole they are words.
	Want, Got any
	// Count: the object was created more or less often; its end state is compared apart from that.
	Count bool

	path []string
}

// String says it in one line.
func (d Difference) String() string {
	if d.Field == "" {
		return fmt.Sprintf("%s: %v; without faults: %v", d.Key, d.Got, d.Want)
	}
	return fmt.Sprintf("%s: %s is %s; without faults: %s", d.Key, d.Field, value(d.Got), value(d.Want))
}

func value(v any) string {
	if v == nil {
		return "absent"
	}
	return fmt.Sprintf("%#v", v)
}

// Compare lists what a run of the workload did otherwise: it compares the end state of each object by field, and for
// objects that the controllers under test create or delete, how often they were created. Masked fields do not count.
func (ref *Reference) Compare(changes []Change) []Difference {
	return slices.DeleteFunc(ref.compare(Objects(changes)), func(d Difference) bool {
		return d.Field == "" && ref.volatile(d.Key)
	})
}

// volatile are objects whose being there says nothing.
func (ref *Reference) volatile(key Key) bool {
	return masks{ref.Masks}.on(key, []string{"kind"}) != nil
}

func (ref *Reference) compare(objects map[Key]*Object) []Difference {
	var all []Difference
	keys := map[Key]bool{}
	for k := range ref.Objects {
		keys[k] = true
	}
	for k := range objects {
		keys[k] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		want, got := ref.Objects[key], objects[key]
		switch {
		case want == nil:
			want = &Object{}
		case got == nil:
			got = &Object{}
		}
		switch {
		case want.End == nil && got.End != nil:
			all = append(all, Difference{Key: key, Want: gone(want), Got: "exists at the end"})
		case want.End != nil && got.End == nil:
			all = append(all, Difference{Key: key, Want: "exists at the end", Got: gone(got)})
		case want.End != nil:
			all = append(all, ref.fields(key, want.End, got.End)...)
		}
		if want.Made != got.Made && (want.Ours || got.Ours) && (want.End == nil) == (got.End == nil) {
			all = append(all, Difference{Key: key, Want: times(want.Made), Got: times(got.Made), Count: true})
		}
	}
	return all
}

// gone says of an object that is not there why.
func gone(o *Object) string {
	if o.Made == 0 {
		return "never created"
	}
	return "deleted at the end"
}

func times(n int) string {
	switch n {
	case 0:
		return "never created"
	case 1:
		return "created once"
	}
	return fmt.Sprintf("created %d times", n)
}

// fields compares two states of an object.
func (ref *Reference) fields(key Key, want, got map[string]any) []Difference {
	m := masks{ref.Masks}
	collect := func(object map[string]any) map[string]leaf {
		all := map[string]leaf{}
		leaves(object, nil, "", func(l leaf) {
			if m.on(key, l.path) == nil {
				all[l.where] = l
			}
		})
		return all
	}
	wanted, there := collect(want), collect(got)
	var differ []Difference
	for where, w := range wanted {
		if g, ok := there[where]; !ok {
			differ = append(differ, Difference{Key: key, Field: where, Want: w.value, path: w.path})
		} else if !reflect.DeepEqual(w.value, g.value) {
			differ = append(differ, Difference{Key: key, Field: where, Want: w.value, Got: g.value, path: w.path})
		}
	}
	for where, g := range there {
		if _, ok := wanted[where]; !ok {
			differ = append(differ, Difference{Key: key, Field: where, Got: g.value, path: g.path})
		}
	}
	slices.SortFunc(differ, func(a, b Difference) int { return strings.Compare(a.Field, b.Field) })
	return differ
}
