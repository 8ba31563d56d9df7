package reference

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Reference is what a workload does when nothing goes wrong.
type Reference struct {
	Workload string `json:"workload"`
	Runs     int    `json:"runs"`
	// Objects are those that the workload had to do with.
	Objects map[Key]*Object `json:"objects"`
	// Masks are the fields that never count, but for Found, which were found by comparing the runs.
	Masks []Mask  `json:"masks"`
	Found []Found `json:"found,omitempty"`
	// Written are the groups of the objects that controllers under test write though Kubernetes' own controllers keep
	// others of their type: see followsPods.
	Written []Key `json:"written,omitempty"`
	// Relations are those of values that differ in each run.
	Relations []Relation `json:"relations,omitempty"`
	// Changes are those of the first run, Others those of each further run.
	Changes []Change   `json:"changes"`
	Others  [][]Change `json:"others,omitempty"`
	// Unordered are the lists whose order differs between runs without faults: it never counts.
	Unordered []Mask `json:"unordered,omitempty"`
	// Compared are fields that count although a mask covers them.
	Compared []Mask `json:"compared,omitempty"`
	// Siblings is how many objects of a type an owner had at a time, at most: of all owners and types with two or more.
	Siblings []Siblings `json:"siblings,omitempty"`
	// Errors are the errors that the controllers have logged.
	Errors []LoggedError `json:"errors,omitempty"`
	// Loops are what the controllers do again and again without faults.
	Loops []Loop `json:"loops,omitempty"`
	// Alternatives are the ends of further runs that may end differently: see Allow.
	Alternatives []Alternative `json:"alternatives,omitempty"`
	// Kept are fields that tell of what has happened: see Keep. Tried names the runs that were made to add something
	// after the reference was learned. See Allowed, which has both.
	Kept  []Kept   `json:"-"`
	Tried []string `json:"-"`
	// Controllers are those under test that have hooks.
	Controllers []string `json:"controllers"`
	// Streaming are those of them that fill their caches by a streaming list; see StaleBy.
	Streaming []string `json:"streaming,omitempty"`
	// Replicas is how many processes each of them has, and Leases the leases by which they are elected leader.
	Replicas map[string]int      `json:"replicas"`
	Leases   map[string][]string `json:"leases,omitempty"`
	// Polls is what the controllers look at again and again, when everything is at rest. The caller of Learn sets it.
	Polls []record.Poll `json:"polls,omitempty"`
	// Rested: all runs came to rest, but for Polls. The caller of Learn sets it.
	Rested bool `json:"rested,omitempty"`
	// Virtual: the runs had a clock that moved ahead while nothing happened, so that times between changes mean
	// something. Courses is when the workload went on in each run, that of Changes first.
	Virtual bool     `json:"virtual,omitempty"`
	Courses []Course `json:"courses,omitempty"`
	// Uneventful are the times that the clock was moved ahead after the workload, after each of which the controllers
	// changed nothing. The caller of Learn sets it.
	Uneventful []time.Duration `json:"uneventful,omitempty"`
	// Pace is that of the runs; the plans that are compared with it keep it. The caller of Learn sets it.
	Pace plan.Pace `json:"pace,omitempty"`
	// Source is what the reference was made from, Types what other runs must record to be compared with it, and Reached
	// the points that each controller reached in the first run (see Types and Reached). The caller of Learn sets them.
	Source Source             `json:"source"`
	Types  []plan.ResourceKey `json:"types,omitempty"`
	// Unlisted are the types that could not be recorded when the types were looked for. The caller of Learn sets it.
	Unlisted []string            `json:"unlisted,omitempty"`
	Reached  map[string][]string `json:"reached,omitempty"`
}

// Course is when a workload went on.
type Course struct {
	Steps []record.Step `json:"steps"` // those that began
	Ended time.Time     `json:"ended"`
}

// Object is what became of an object.
type Object struct {
	// End is the object's state at the end; nil: it is gone.
	End map[string]any `json:"end,omitempty"`
	// Made is how many objects of the key there were, one after the other, without those that were created for an owner
	// that was being deleted, or was gone: a controller that sees the past creates such objects, and the garbage
	// collector deletes them. It is the least of all runs, and MostMade the most.
	Made     int `json:"made"`
	MostMade int `json:"mostMade"`
	// Deleted and Updated are how often it was deleted and updated, at most in a run; to be marked for deletion is
	// neither.
	Deleted int `json:"deleted,omitempty"`
	Updated int `json:"updated,omitempty"`
	// Fields is how often each field that counts was changed, at most in a run; Returned, how often it changed back to
	// the value before the last. Only a Reference has them, and of Returned its alternatives.
	Fields   map[string]int `json:"fields,omitempty"`
	Returned map[string]int `json:"returned,omitempty"`
	// Ours: a controller under test has made or deleted it at least once.
	Ours bool `json:"ours,omitempty"`
	// Rewritten are the texts of End that name other objects as only this run does.
	Rewritten map[string]Rewritten `json:"rewritten,omitempty"`

	names       *names // those of the run; nil: Rewritten is complete
	rewrittenAt int    // the version of names
	// unchanged: the object existed before the workload, and nothing has happened to it. initial is the state of one
	// that existed before and has changed.
	unchanged bool
	initial   map[string]any
}

// UnstableError says that fault-free runs of a workload end differently, so that nothing can be compared with them.
type UnstableError struct {
	Workload string
	Lines    []string // what differs
	Keys     []Key    // of the objects that are not there in the end of every run
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
	ref.Replicas = map[string]int{}
	for _, c := range runs[0].Meta.Controllers {
		if !c.Hooks {
			continue
		}
		ref.Controllers = append(ref.Controllers, c.Name)
		if c.WatchList {
			ref.Streaming = append(ref.Streaming, c.Name)
		}
		ref.Replicas[c.Name] = c.Replicas
		for _, lock := range c.Locks {
			if key, err := plan.ParseResourceKey(lock); err == nil && key.Type == "lease" {
				if ref.Leases == nil {
					ref.Leases = map[string][]string{}
				}
				ref.Leases[c.Name] = append(ref.Leases[c.Name], lock)
			}
		}
	}
	ref.Virtual = true
	for _, r := range runs {
		ref.Virtual = ref.Virtual && r.Meta.Clock != nil && r.Meta.Clock.Virtual
		ref.Courses = append(ref.Courses, Course{r.Meta.Steps, r.Meta.WorkloadEnd})
	}
	ref.Unordered = slices.Clone(withoutOrder)
	var found []Found
	var ends []map[Key]*Object
	var unstable []string
	followed := make([]*Follower, len(runs))
	var differ []Key // which of these are about
	for i, r := range runs {
		var err error
		if followed[i], err = Follow(r); err != nil {
			return nil, err
		}
		ref.write(followed[i].Changes())
	}
	for i, run := range followed {
		objects := run.Objects()
		if i == 0 {
			ref.Changes, ref.Objects = run.Changes(), maps.Clone(objects)
			maps.DeleteFunc(ref.Objects, func(_ Key, o *Object) bool { return o.unchanged })
			ends = append(ends, objects)
			continue
		}
		ref.Others = append(ref.Others, run.Changes())
		objects = ref.filter().matched(objects)
		ref.unorder(objects)
		ends = append(ends, objects)
		f := ref.filter()
		for _, d := range f.compare(objects) {
			switch {
			case d.Count || d.Field == "" && ref.volatile(d.Key):
			case d.Field == "":
				unstable = append(unstable, d.String())
				differ = append(differ, d.Key)
			default:
				found = append(found, Found{
					Object: d.Key.Group(), Path: f.foundPath(d, ref.Objects[d.Key], objects[d.Key]), Reason: Differs,
					Value: d.Want != nil && d.Got != nil,
				})
			}
		}
		ref.widen(objects)
	}
	if len(unstable) > 0 {
		slices.Sort(unstable)
		slices.Sort(differ)
		return nil, &UnstableError{workload, slices.Compact(unstable), slices.Compact(differ)}
	}
	for _, m := range found {
		ref.find(m)
	}
	ref.relate(ends)
	for _, o := range ref.Objects {
		o.keep()
	}
	return ref, ref.summarize(runs)
}

// Write writes the reference to a file as JSON, for people and programs to read. It creates the file's directory.
func (ref *Reference) Write(file string) error {
	own := *ref
	own.Alternatives = slices.DeleteFunc(slices.Clone(ref.Alternatives), func(a Alternative) bool { return a.Later })
	data, err := json.MarshalIndent(own, "", "  ")
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

// Difference is something in which a run differs from the runs without faults.
type Difference struct {
	Key   Key
	Field string // where in the object; empty: the object as a whole
	// Want and Got are the values without faults and in the run. For an object as a whole they are words.
	Want, Got any
	// Count: the object was created more or less often; its end state is compared apart from that.
	Count bool
	// Note: it is worth to be known, and no mistake.
	Note bool
	// Relation no longer holds; nil: the value itself differs.
	Relation *Relation
	// Own is the object's key among the run's changes. It differs from Key where the run numbers generated names
	// differently; see Key.
	Own Key
}

// String says it in one line.
func (d Difference) String() string {
	if d.Field == "" {
		return fmt.Sprintf("%s: %v; without faults: %v", d.Key, d.Got, d.Want)
	}
	if r := d.Relation; r != nil {
		return fmt.Sprintf("%s: %s is not %s %s; without faults: it is", d.Key, d.Field, r.Is, r.Of)
	}
	return fmt.Sprintf("%s: %s is %s; without faults: %s", d.Key, d.Field, Value(d.Got), Value(d.Want))
}

// Value says a field's value.
func Value(v any) string {
	switch v := v.(type) {
	case nil:
		return "absent"
	case present:
		return "present"
	case lag:
		return string(v)
	case several:
		var all []string
		for _, value := range v {
			all = append(all, Value(value))
		}
		return strings.Join(all, " and ")
	}
	return fmt.Sprintf("%#v", v)
}

// Compare lists what a run of the workload did otherwise: it compares the end state of each object by field, and how
// often it was created. Masked fields do not count.
func (ref *Reference) Compare(objects map[Key]*Object) []Difference {
	differ, _ := ref.compare(objects)
	return differ
}

// volatile are objects whose being there says nothing.
func (ref *Reference) volatile(key Key) bool { return ref.masked(key, []string{"kind"}) }

func (f *filter) compare(objects map[Key]*Object) []Difference {
	var all []Difference
	keys := map[Key]bool{}
	for k := range f.ref.Objects {
		keys[k] = true
	}
	for k := range objects {
		keys[k] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		want, got := f.ref.Objects[key], objects[key]
		switch {
		case want == nil && got.unchanged:
			continue
		case want == nil && got.initial != nil:
			// Without faults, nothing happened to it.
			want = &Object{End: got.initial, Made: 1, MostMade: 1, names: got.names, rewrittenAt: -1}
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
			all = append(all, f.fields(key, want, got)...)
		}
		if d := incarnations(key, want, got); d != nil {
			all = append(all, *d)
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

// times says how often the object was created.
func (o *Object) times() string {
	if o.MostMade > o.Made {
		return fmt.Sprintf("created %d to %d times", o.Made, o.MostMade)
	}
	switch o.Made {
	case 0:
		return "never created"
	case 1:
		return "created once"
	}
	return fmt.Sprintf("created %d times", o.Made)
}
