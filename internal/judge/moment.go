package judge

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// read follows the history.
func (e Evidence) read() (*facts.Follower, error) {
	return facts.Follow(&record.Run{
		Meta: e.Meta, Actions: e.Actions, History: e.History, Events: e.Events, Processes: e.Processes,
	})
}

// follower has followed the history.
func (e Evidence) follower() (*facts.Follower, error) {
	if e.followed == nil {
		return e.read()
	}
	return e.followed()
}

// Changes returns the changes of the history, with who made them. The caller must not change them.
func (e Evidence) Changes() ([]facts.Change, error) {
	f, err := e.follower()
	if err != nil {
		return nil, err
	}
	return f.Changes(), nil
}

// moment says when something happened, and after which of the plan's actions.
func (e Evidence) moment(at time.Time) string {
	text := "at +" + at.Sub(e.Meta.WorkloadStart).Round(10*time.Millisecond).String()
	if after := e.after(at); after != "" {
		text += " " + after
	}
	return text
}

// after names the last action of the plan that had begun by then. It is empty if the plan has none.
func (e Evidence) after(at time.Time) string {
	if e.Plan == nil || len(e.Plan.Actions) == 0 {
		return ""
	}
	var last *record.Action
	for i := range e.Actions {
		a := &e.Actions[i]
		if !a.Began.IsZero() && !a.Began.After(at) && (last == nil || !a.Began.Before(last.Began)) {
			last = a
		}
	}
	if last == nil {
		return "before the plan's first action"
	}
	return "after " + last.String()
}

// earliest is when the first of these changes happened.
func earliest(changes ...*facts.Change) (at time.Time) {
	for _, c := range changes {
		if at.IsZero() || c.Time.Before(at) {
			at = c.Time
		}
	}
	return at
}

// happened says what a change did, when, and who did it, as far as that is known.
func (e Evidence) happened(c *facts.Change) string {
	who := e.who(c)
	if who != "" {
		who = " by " + who
	}
	text := fmt.Sprintf("%s%s %s (resource version %d)", c, who, e.moment(c.Time), c.Version)
	if c.Origin.Callers.Known() {
		text += ", " + c.Origin.Callers[0].String()
	}
	return text
}

// origin is where the newest of the changes comes from, among those of which the source is known.
func origin(changes ...*facts.Change) record.Origin {
	var newest *facts.Change
	for _, c := range changes {
		if c != nil && c.Origin.Callers.Known() && (newest == nil || newest.Time.Before(c.Time)) {
			newest = c
		}
	}
	if newest == nil {
		return record.Origin{}
	}
	return newest.Origin
}

// who made a change: a controller under test, or else the clients that the object's managed fields name.
func (e Evidence) who(c *facts.Change) string {
	if c.By != "" {
		return c.By
	}
	var writers []string
	for _, w := range e.writers(c) {
		writers = append(writers, w.String())
	}
	return strings.Join(writers, ", ")
}

// writers are the clients that made a change, as far as the object's managed fields name them.
func (e Evidence) writers(c *facts.Change) []record.FieldManager {
	// Those of several clusters are not in the order of their versions, but each version is of one.
	at := slices.IndexFunc(e.History, func(h record.HistoryEntry) bool { return h.ResourceVersion == c.Version })
	if at < 0 || c.Event == record.Deleted {
		return nil
	}
	return e.History[at].Writers
}

// writes reports whether the plan itself writes or deletes objects. Controllers then do what they would not do
// otherwise. A conflict's own annotation means nothing to them, unless they have copied it to another object.
func (e Evidence) writes() bool {
	if e.Plan == nil || !writes(e.Plan) {
		return e.Plan != nil && slices.ContainsFunc(e.History, func(h record.HistoryEntry) bool {
			return bytes.Contains(h.Object, []byte(baseline.ConflictAnnotation)) &&
				!patched(e.Plan, h.Cluster, h.Type, h.Namespace, h.Name)
		})
	}
	return true
}

// writes reports whether a plan writes more than the annotation of conflicts.
func writes(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Actions, func(a plan.Action) bool {
		return plan.Has[*plan.Write](&a) && !Conflicts(&a)
	})
}

// Conflicts reports whether all that an action does is to change an object's version by an annotation that means
// nothing.
func Conflicts(a *plan.Action) bool {
	only := func(value any, key string) any {
		m, _ := value.(map[string]any)
		if len(m) != 1 {
			return nil
		}
		return m[key]
	}
	return plan.Has[*plan.Write](a) && a.Subresource == "" &&
		only(only(only(a.Patch, "metadata"), "annotations"), baseline.ConflictAnnotation) != nil
}

// patched reports whether a plan patches an object of a cluster.
func patched(p *plan.Plan, cluster, typ, namespace, name string) bool {
	return slices.ContainsFunc(p.Actions, func(a plan.Action) bool {
		key := a.ResourceKey
		return a.Patch != nil && a.Cluster == cluster && key.Type == typ && key.Name == name &&
			(key.Namespace == namespace || key.Namespace == "" && namespace == "default")
	})
}

// severity is that of a finding which is a bug only if runs without faults are known not to do the same, and nothing
// that the plan has written explains it.
func (e Evidence) severity() record.Severity {
	if e.Baseline == nil || e.writes() {
		return record.SeverityNote
	}
	return record.SeverityBug
}

// calm is how long nothing had disturbed the controllers when the recording ended.
func (e Evidence) calm() time.Duration {
	if e.Meta.Calm.IsZero() {
		return 0
	}
	return e.Meta.Observed.Sub(e.Meta.Calm)
}

// nameOf is how an object is called in the run: its key, with the name that was generated.
func nameOf(c *facts.Change) string {
	return string(c.Key[:strings.LastIndex(string(c.Key), "/")+1]) + c.Name()
}
