// Package baseline describes what the runs of a workload without faults have in common: which objects there are in the
// end, which fields of them are always the same, and how other values relate to each other. Runs with faults are
// compared with it, and plans are generated from it.
//
// The idea of judging a run by a fault-free one is Sieve's (OSDI '22, section 5): it compares the end states and counts
// what was done to each object.
package baseline

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

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Baseline is what a workload does when nothing goes wrong. The file has the fields of the embedded structs beside the
// others.
type Baseline struct {
	Workload string `json:"workload"`
	Runs     int    `json:"runs"`
	// Source is what the baseline was made from. The caller of Learn sets it.
	Source Source `json:"source"`
	// Begun are the records of the runs if there are to be more: the baseline is good enough to make plans, but a
	// difference from it may have an excuse that only the others show. The caller of Learn sets it.
	Begun []string `json:"begun,omitempty"`
	// Objects are those that the workload had to do with.
	Objects map[facts.Key]*facts.Object `json:"objects"`
	// Existed are the objects that were there when a run's recording began, and to which nothing happened, sorted. A
	// controller may make them as it starts: another run's recording then begins before they are there.
	Existed []facts.Key `json:"existed,omitempty"`
	// Changes are those of the first run, Others those of each further run.
	Changes []facts.Change   `json:"changes"`
	Others  [][]facts.Change `json:"others,omitempty"`
	// Relations are those of values that differ in each run.
	Relations Relations `json:"relations,omitempty"`
	Masks
	Naming
	Variations
	Setup
	Timing
	Recorded
	Usual
}

// Usual is what happens in runs without faults, and is worth a finding otherwise.
type Usual struct {
	// Siblings is how many objects of a type an owner had at a time, at most: of all owners and types with two or more.
	Siblings []facts.Siblings `json:"siblings,omitempty"`
	// Errors are the errors that the controllers have logged.
	Errors []facts.LoggedError `json:"errors,omitempty"`
	// Loops are what the controllers do again and again.
	Loops []facts.Loop `json:"loops,omitempty"`
}

// Timing is when things happened in the runs, and how fast. The caller of Learn sets all but Virtual and Courses.
type Timing struct {
	// Virtual: the runs had a clock that moved ahead while nothing happened, so that times between changes mean
	// something. Courses is when the workload went on in each run, that of Changes first.
	Virtual bool           `json:"virtual,omitempty"`
	Courses []facts.Course `json:"courses,omitempty"`
	// Rested: all runs came to rest, but for Polls: what the controllers look at again and again.
	Rested bool          `json:"rested,omitempty"`
	Polls  []record.Poll `json:"polls,omitempty"`
	// Startup is how long the controllers took at most to come to rest after their start; 0: unknown.
	Startup time.Duration `json:"startup,omitempty"`
	// Uneventful are the times that the clock was moved ahead after the workload, after each of which the controllers
	// changed nothing.
	Uneventful []time.Duration `json:"uneventful,omitempty"`
	// Took is how long a run usually took, by the machine's clock; 0: unknown.
	Took time.Duration `json:"nanoseconds,omitempty"`
	// Pace is that of the runs. The plans that are compared with the baseline keep it.
	Pace plan.Pace `json:"pace,omitempty"`
}

// UnstableError says that fault-free runs of a workload end differently, so that nothing can be compared with them.
type UnstableError struct {
	Workload string
	Lines    []string    // what differs
	Keys     []facts.Key // of the objects that are not there in the end of every run
}

func (e *UnstableError) Error() string {
	return fmt.Sprintf("the workload %q ends differently each time, without any fault:\n  %s", e.Workload,
		strings.Join(e.Lines, "\n  "))
}

// Differs is the reason of masks that Learn has found.
const Differs = "differs between runs without faults"

// Learn makes a baseline of traced, fault-free runs of a workload, at least two. Fields that differ between the runs
// are masked, in addition to those of masks. The error is an *UnstableError where more than fields differ, or that of
// a run that cannot be read.
func Learn(workload string, runs []*record.Run, masks ...Mask) (*Baseline, error) {
	if len(runs) < 2 {
		return nil, errors.New("a baseline needs two runs or more")
	}
	ref := &Baseline{Workload: workload, Runs: len(runs), Masks: Masks{
		Given: slices.Concat(masks, standard), Unordered: slices.Clone(withoutOrder),
	}}
	ref.Setup = setupOf(runs[0])
	ref.Virtual = true
	for _, r := range runs {
		ref.Virtual = ref.Virtual && r.Meta.Clock != nil && r.Meta.Clock.Virtual
	}
	var found []Found
	var ends []map[facts.Key]*facts.Object
	var unstable []string
	followed := make([]*facts.Follower, len(runs))
	var differ []facts.Key // which of these are about
	for i, r := range runs {
		var err error
		if followed[i], err = facts.Follow(r); err != nil {
			return nil, err
		}
	}
	for _, run := range followed {
		ref.Courses = append(ref.Courses, run.Course())
	}
	ref.write(followed, ref.Setup)
	var all []map[facts.Key]*facts.Object
	for _, run := range followed {
		all = append(all, run.Objects())
	}
	ref.Naming.learn(all, ref.Objects)
	for i, run := range followed {
		objects := run.Objects()
		to := ref.renames(objects, ref.Objects)
		if i == 0 {
			objects, _, _ = renamed(objects, to)
			ref.noteExisting(objects)
			ref.Changes, ref.Objects = numberedChanges(run.Changes(), to), maps.Clone(objects)
			maps.DeleteFunc(ref.Objects, func(_ facts.Key, o *facts.Object) bool { return o.Unchanged() })
			ends = append(ends, objects)
			continue
		}
		ref.Others = append(ref.Others, numberedChanges(run.Changes(), to))
		objects = ref.filter().matched(objects)
		ref.noteExisting(objects)
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
	var until []time.Time
	for _, r := range runs {
		until = append(until, untilWhen(r, runs))
	}
	ref.relate(ends, until)
	for _, o := range ref.Objects {
		o.Detach()
	}
	return ref, ref.summarize(runs)
}

// noteExisting adds those of a run's objects that were there from the beginning.
func (ref *Baseline) noteExisting(objects map[facts.Key]*facts.Object) {
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if at, found := slices.BinarySearch(ref.Existed, key); objects[key].Unchanged() && !found {
			ref.Existed = slices.Insert(ref.Existed, at, key)
		}
	}
}

// fromBefore reports whether an object was there when a run's recording began, and nothing happened to it.
func (ref *Baseline) fromBefore(key facts.Key) bool {
	_, found := slices.BinarySearch(ref.Existed, key)
	return found
}

// Write writes the reference to a file as JSON, for people and programs to read. It creates the file's directory.
func (ref *Baseline) Write(file string) error {
	own := *ref
	own.Alternatives = slices.DeleteFunc(slices.Clone(ref.Alternatives), func(a Alternative) bool { return a.Later })
	data, err := json.MarshalIndent(own, "", "  ")
	if err != nil {
		return fmt.Errorf("write baseline: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), record.DirMode); err != nil {
		return fmt.Errorf("write baseline: %w", err)
	}
	if err := os.WriteFile(file, data, record.FileMode); err != nil {
		return fmt.Errorf("write baseline: %w", err)
	}
	return nil
}

// Compare lists what a run of the workload did otherwise: it compares the end state of each object by field, and how
// often it was created. Masked fields do not count.
func (ref *Baseline) Compare(objects map[facts.Key]*facts.Object) []Difference {
	differ, _ := ref.compare(objects)
	return differ
}

// volatile are objects whose being there says nothing.
func (ref *Baseline) volatile(key facts.Key) bool { return ref.masked(key, []string{"kind"}) }

func (f *filter) compare(objects map[facts.Key]*facts.Object) []Difference {
	var all []Difference
	keys := map[facts.Key]bool{}
	for k := range f.ref.Objects {
		keys[k] = true
	}
	for k := range objects {
		keys[k] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		want, got := f.ref.Objects[key], objects[key]
		switch {
		case want == nil && got.Unchanged():
			continue
		case want == nil && got.OfManifests() && (got.End != nil || !got.Ours):
			// The upgrade has made it, changed it or taken it away, and perhaps a controller has then put something
			// into it, as the certificate of a webhook. Without faults that is done before the workload.
			continue
		case want == nil && (got.Existed() || got.OfManifests()):
			// Without faults, nothing happened to it.
			want = got.Before()
		case want == nil && f.ref.fromBefore(key):
			// It was made before that run was recorded. How it was then is unknown.
			want = got.Before()
		case want == nil:
			want = &facts.Object{}
		case got == nil:
			got = &facts.Object{}
		}
		switch {
		case (want.End == nil) != (got.End == nil):
			all = append(all, Difference{Key: key, Want: facts.EndOf(want), Got: facts.EndOf(got)})
		case want.End != nil:
			all = append(all, f.fields(key, want, got)...)
			all = append(all, f.renewals(key, want, got)...)
		}
		if d := incarnations(key, want, got); d != nil {
			all = append(all, *d)
		}
	}
	return all
}
