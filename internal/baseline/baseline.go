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

// Baseline is what a workload does when nothing goes wrong.
type Baseline struct {
	Workload string `json:"workload"`
	Runs     int    `json:"runs"`
	// Objects are those that the workload had to do with.
	Objects map[facts.Key]*facts.Object `json:"objects"`
	// Masks are the fields that never count, but for Found, which were found by comparing the runs.
	Masks []Mask  `json:"masks"`
	Found []Found `json:"found,omitempty"`
	// Written are the groups of the objects that controllers under test write though others of their type never count:
	// see followsPods and isLock.
	Written []facts.Key `json:"written,omitempty"`
	// Random is how objects are named that clients name at random.
	Random []Random           `json:"random,omitempty"`
	chosen map[facts.Key]bool // names that are the same in all runs; only while they are learned
	// Relations are those of values that differ in each run.
	Relations []Relation `json:"relations,omitempty"`
	// Changes are those of the first run, Others those of each further run.
	Changes []facts.Change   `json:"changes"`
	Others  [][]facts.Change `json:"others,omitempty"`
	// Unordered are the lists whose order differs between runs without faults: it never counts.
	Unordered []Mask `json:"unordered,omitempty"`
	// Compared are fields that count although a mask covers them.
	Compared []Mask `json:"compared,omitempty"`
	// Siblings is how many objects of a type an owner had at a time, at most: of all owners and types with two or more.
	Siblings []facts.Siblings `json:"siblings,omitempty"`
	// Errors are the errors that the controllers have logged.
	Errors []facts.LoggedError `json:"errors,omitempty"`
	// Loops are what the controllers do again and again without faults.
	Loops []facts.Loop `json:"loops,omitempty"`
	// Alternatives are the ends of further runs that may end differently: see Allow.
	Alternatives []Alternative `json:"alternatives,omitempty"`
	// Kept are fields that tell of what has happened: see Keep. Tried names the runs that were made to add something
	// after the baseline was learned. See Allowed, which has both.
	Kept  []Kept   `json:"-"`
	Tried []string `json:"-"`
	// Controllers are those under test that have hooks.
	Controllers []string `json:"controllers"`
	// Streaming are those of them that fill their caches by a streaming list; see StaleBy.
	Streaming []string `json:"streaming,omitempty"`
	// Replicas is how many processes each of them has, and Leases the leases by which they are elected leader.
	Replicas map[string]int      `json:"replicas"`
	Leases   map[string][]string `json:"leases,omitempty"`
	// LeaseLasts is how long the lease of each of them lasts without being renewed.
	LeaseLasts map[string]time.Duration `json:"leaseLasts,omitempty"`
	// Polls is what the controllers look at again and again, when everything is at rest. The caller of Learn sets it.
	Polls []record.Poll `json:"polls,omitempty"`
	// Startup is how long the controllers took at most to come to rest after their start; zero: nobody knows. The
	// caller of Learn sets it.
	Startup time.Duration `json:"startup,omitempty"`
	// Rested: all runs came to rest, but for Polls. The caller of Learn sets it.
	Rested bool `json:"rested,omitempty"`
	// Virtual: the runs had a clock that moved ahead while nothing happened, so that times between changes mean
	// something. Courses is when the workload went on in each run, that of Changes first.
	Virtual bool           `json:"virtual,omitempty"`
	Courses []facts.Course `json:"courses,omitempty"`
	// Uneventful are the times that the clock was moved ahead after the workload, after each of which the controllers
	// changed nothing. The caller of Learn sets it.
	Uneventful []time.Duration `json:"uneventful,omitempty"`
	// Took is how long a run usually took, by the machine's clock; 0: unknown. The caller of Learn sets it.
	Took time.Duration `json:"nanoseconds,omitempty"`
	// Pace is that of the runs; the plans that are compared with it keep it. The caller of Learn sets it.
	Pace plan.Pace `json:"pace,omitempty"`
	// Source is what the baseline was made from, Types what other runs must record to be compared with it, and Reached
	// the points that each controller reached in the first run (see Types and Reached). The caller of Learn sets them.
	Source  Source              `json:"source"`
	Types   []plan.ResourceKey  `json:"types,omitempty"`
	Reached map[string][]string `json:"reached,omitempty"`
	// Unlisted are the types that could not be recorded when the types were looked for. The caller of Learn sets it.
	Unlisted []string `json:"unlisted,omitempty"`
	// Calls is how often each controller made an annotated call at least in a run, by controller and call; see Calls.
	Calls map[string]map[string]int `json:"calls,omitempty"`
	// Failing names the annotated calls of each controller that a plan can make fail, by controller.
	Failing map[string][]string `json:"failing,omitempty"`
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
	ref := &Baseline{Workload: workload, Runs: len(runs), Masks: slices.Concat(masks, standard)}
	ref.Replicas, ref.Failing = map[string]int{}, map[string][]string{}
	for _, c := range runs[0].Meta.Controllers {
		if !c.Hooks {
			continue
		}
		ref.Controllers = append(ref.Controllers, c.Name)
		if c.WatchList {
			ref.Streaming = append(ref.Streaming, c.Name)
		}
		ref.Replicas[c.Name] = c.Replicas
		if len(c.FailingCalls) > 0 {
			ref.Failing[c.Name] = c.FailingCalls
		}
		if c.LeaseLasts > 0 {
			if ref.LeaseLasts == nil {
				ref.LeaseLasts = map[string]time.Duration{}
			}
			ref.LeaseLasts[c.Name] = c.LeaseLasts
		}
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
	}
	ref.Unordered = slices.Clone(withoutOrder)
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
	ref.write(followed)
	var all []map[facts.Key]*facts.Object
	for _, run := range followed {
		all = append(all, run.Objects())
	}
	ref.name(all)
	for i, run := range followed {
		objects := run.Objects()
		to := ref.renames(objects)
		if i == 0 {
			objects, _ = ref.filter().renamed(objects)
			ref.Changes, ref.Objects = numberedChanges(run.Changes(), to), maps.Clone(objects)
			maps.DeleteFunc(ref.Objects, func(_ facts.Key, o *facts.Object) bool { return o.Unchanged() })
			ends = append(ends, objects)
			continue
		}
		ref.Others = append(ref.Others, numberedChanges(run.Changes(), to))
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
