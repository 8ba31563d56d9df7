package judge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// leftFor is how long something must have been left as it is to count as left for good.
const leftFor = 5 * time.Second

// finalizers finds objects that are marked for deletion and stay because a finalizer is not removed, after the
// controllers were undisturbed for a while. It is a bug only if the record shows that the finalizer's controller was
// running, had nothing left to do, and had no reason to wait; see [stuck.excuse]. If there is a baseline, its judge
// reports that the object should be gone.
type finalizers struct{}

func (finalizers) Is() Traits { return is("finalizers", eachCluster, wholeRun) }

func (finalizers) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	if e.Baseline != nil || e.writes() || e.calm() == 0 {
		return nil, nil
	}
	f, err := e.follower()
	if err != nil {
		return nil, err
	}
	found := stuckIn(e, f.Changes())
	if len(found) == 0 {
		return nil, nil
	}
	owners := findings.NewOwners(f.Changes(), f.Objects())
	var all []record.Finding
	for _, s := range found {
		excuse, due := s.excuse(e, f, owners, found)
		if due {
			continue
		}
		name := findings.Name(nameOf(s.last))
		if owner := owners.Of(s.last.Key); owner != "" {
			name += " of " + findings.Name(string(owner))
		}
		finding := record.Finding{
			Severity: record.SeverityBug, Judge: record.JudgeFinalizer, Subject: string(s.last.Key), Time: s.mark.Time,
			Cause: earliest(s.set, s.last), Origin: origin(s.set),
			Title: fmt.Sprintf("%s%s, which %s set and does not remove: marked for deletion %s", name,
				findings.Stays(s.finalizer), s.setter, e.moment(s.mark.Time)),
			Detail: "the finalizer: " + e.happened(s.set) + "\nits last change: " + e.happened(s.last),
		}
		if excuse != "" {
			finding.Severity = record.SeverityNote
			finding.Detail += "\nit is not called a bug, because " + excuse
		}
		all = append(all, finding)
	}
	return all, nil
}

// stuck is an object that is marked for deletion in the end and still has a finalizer that was set in the run.
type stuck struct {
	finalizer       string
	set, mark, last *facts.Change
	setter          string   // who set the finalizer
	controllers     []string // those under test that set it, or removed it from other objects
}

// stuckIn lists what is stuck in the end of a run, and has been for a while.
func stuckIn(e Evidence, changes []facts.Change) []*stuck {
	last, mark := map[facts.Key]*facts.Change{}, map[facts.Key]*facts.Change{}
	set := map[facts.Key]map[string]*facts.Change{} // by finalizer
	removers := map[string]map[string]bool{}        // controllers, by finalizer
	var keys []facts.Key
	for i := range changes {
		c := &changes[i]
		known := last[c.Key] != nil
		if !known {
			keys = append(keys, c.Key)
		}
		last[c.Key] = c
		// The history of an object can begin with an update.
		if !known || c.Event != record.Updated {
			delete(mark, c.Key)
			set[c.Key] = map[string]*facts.Change{}
		}
		if c.Marked() {
			mark[c.Key] = c
		}
		before, after := finalizersOf(c.Prev), finalizersOf(c.Cur)
		for _, f := range after {
			if !slices.Contains(before, f) {
				set[c.Key][f] = c
			}
		}
		for _, f := range before {
			if c.By != "" && !slices.Contains(after, f) {
				if removers[f] == nil {
					removers[f] = map[string]bool{}
				}
				removers[f][c.By] = true
			}
		}
	}
	var all []*stuck
	for _, key := range keys {
		c := last[key]
		if c.Cur == nil || mark[key] == nil {
			continue
		}
		for _, f := range finalizersOf(c.Cur) {
			s := &stuck{finalizer: f, set: set[key][f], mark: mark[key], last: c}
			if s.watched(e) < leftFor || s.set == nil {
				continue // it was set before the workload, by an unknown client
			}
			if s.setter = e.setter(s.set); s.setter == "" || s.set.By == "" && isOthers(s.setter) {
				continue
			}
			controllers := maps.Clone(removers[f])
			if controllers == nil {
				controllers = map[string]bool{}
			}
			if s.set.By != "" {
				controllers[s.set.By] = true
			}
			s.controllers = slices.Sorted(maps.Keys(controllers))
			all = append(all, s)
		}
	}
	return all
}

// others are the first words of the field managers of users, of Trommel, and of Kubernetes' own components. They set
// finalizers that other controllers remove, or for what a suite's cluster lacks, such as a cloud.
var others = []string{record.PlanManager, "kubectl", "helm", "Helm", "kube-"}

// isOthers reports whether a field manager does not belong to a controller of the suite.
func isOthers(manager string) bool {
	return slices.ContainsFunc(others, func(other string) bool { return strings.HasPrefix(manager, other) })
}

// setter names the controller under test, or else the clients, that made a change; empty: unknown.
func (e Evidence) setter(c *facts.Change) string {
	if c.By != "" {
		return c.By
	}
	var managers []string
	for _, w := range e.writers(c) {
		if !slices.Contains(managers, w.Manager) {
			managers = append(managers, w.Manager)
		}
	}
	return strings.Join(managers, " or ")
}

// excuse says why it may be right that the object stays; empty: nothing is known that explains it. Due: it is right, or
// another finding says it.
func (s *stuck) excuse(
	e Evidence, f *facts.Follower, owners *findings.Owners, all []*stuck,
) (text string, due bool) {
	// An owner waits for what belongs to it. What keeps that is the reason.
	waits := ""
	for key, o := range f.Objects() {
		if !metadata.Marked(o.End) || !slices.Contains(owners.All(key), s.last.Key) {
			continue
		}
		if slices.ContainsFunc(all, func(other *stuck) bool { return other.last.Key == key }) {
			return "", true
		}
		if name := findings.Name(string(key)); waits == "" || name < waits {
			waits = name
		}
	}
	excuse := func(why string) {
		if text == "" {
			text = why
		}
	}
	if len(s.controllers) == 0 {
		excuse("no controller under test set it, or removed one like it")
	}
	if waits != "" {
		excuse(waits + ", which belongs to it, is marked for deletion and stays, too")
	}
	for _, name := range s.controllers {
		running, planned := e.running(name)
		switch {
		case !running && planned, running && f.Away(name, e.Meta.Observed, leftFor):
			return "", true // it had no chance
		case !running:
			excuse(name + " was not running in the end")
		case f.SetBack(name, facts.Life{From: s.mark.Time, To: e.Meta.Observed}):
			excuse("a call of " + name + " was made to fail, and it may try again later")
		case s.polls(e, name):
			excuse(name + " puts something off for longer than it was watched, and may remove it then")
		}
	}
	if watched := s.watched(e); watched < facts.Patience {
		excuse("it was watched for only " + watched.Round(time.Second/10).String())
	}
	if !e.Meta.Rested {
		excuse("the controllers were not known to be at rest in the end")
	}
	if user := s.user(f, owners); user != "" {
		excuse(findings.Name(user) + ", which still exists, names it")
	}
	if !slices.ContainsFunc(e.Actions, func(a record.Action) bool { return !a.Began.IsZero() }) {
		excuse("the plan did nothing, so it is so without faults, too")
	}
	return text, false
}

// watched is for how long the object stayed as it is while nothing disturbed the controllers.
func (s *stuck) watched(e Evidence) time.Duration {
	return e.Meta.Observed.Sub(later(s.last.Time, e.Meta.Calm))
}

// polls reports whether a controller has put something off for longer than the object was watched.
func (s *stuck) polls(e Evidence, controller string) bool {
	return slices.ContainsFunc(e.Meta.Polls, func(p record.Poll) bool {
		return p.Controller == controller && max(p.Delay, p.Longest) > s.watched(e)
	})
}

// user is an object that lives, belongs neither to the stuck one nor to a controller under test, and names it: the
// finalizer may be there to protect what is in use. Empty: there is none.
func (s *stuck) user(f *facts.Follower, owners *findings.Owners) string {
	made := map[facts.Key]bool{} // by controllers
	for _, c := range f.Changes() {
		if c.Event == record.Created {
			made[c.Key] = c.By != ""
		}
	}
	name := s.last.Name()
	for _, key := range slices.Sorted(maps.Keys(f.Objects())) {
		o := f.Objects()[key].End
		if o == nil || metadata.Marked(o) || made[key] || key == s.last.Key ||
			slices.Contains(owners.All(key), s.last.Key) {
			continue
		}
		for field, value := range o {
			if field == "metadata" {
				meta := maps.Clone(metadata.Of(o))
				delete(meta, "name")
				delete(meta, "namespace")
				delete(meta, "managedFields")
				value = meta
			}
			if field != "status" && metadata.Holds(value, name) {
				return string(key)
			}
		}
	}
	return ""
}

// running reports whether a process of a controller was running in the end, and if not, whether the plan ended the last
// one.
func (e Evidence) running(controller string) (running, planned bool) {
	var last time.Time
	for _, p := range e.Processes {
		switch {
		case p.Controller != controller:
		case p.Running():
			return true, false
		case !p.Ended.Before(last):
			last, planned = p.Ended, p.Planned
		}
	}
	return false, planned
}

// finalizersOf lists an object's finalizers without those of Kubernetes itself, which waits for pods that use a volume,
// or for what belongs to the object.
func finalizersOf(object map[string]any) []string {
	list, _ := metadata.Of(object)["finalizers"].([]any)
	var all []string
	for _, f := range list {
		s, ok := f.(string)
		if ok && !strings.HasPrefix(s, "kubernetes.io/") && s != "foregroundDeletion" && s != "orphan" {
			all = append(all, s)
		}
	}
	return all
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
