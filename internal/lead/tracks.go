package lead

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// tracks are a run's events and history, with what is looked up in them.
type tracks struct {
	events   []record.Event
	history  []record.HistoryEntry
	versions []uint64          // of the objects that the events show; 0: none
	begun    map[[2]uint64]int // events before calls, by session and call
	answers  map[[2]uint64]int // events after calls
	writers  map[uint64]string // by resource version
}

func newTracks(r *record.Run) *tracks {
	t := &tracks{
		events: r.Events, history: r.History, versions: make([]uint64, len(r.Events)), answers: map[[2]uint64]int{},
		begun: map[[2]uint64]int{}, writers: map[uint64]string{},
	}
	for i := range r.Events {
		o := r.Events[i].Observation
		if o == nil {
			continue
		}
		t.versions[i] = metadata.ResourceVersion(o.Object)
		if id := [2]uint64{o.Session, o.Call}; o.Phase == wire.After {
			t.answers[id] = i
		} else {
			t.begun[id] = i
		}
	}
	for _, h := range r.History {
		if len(h.Writers) > 0 && h.Event != record.Deleted {
			t.writers[h.ResourceVersion] = h.Writers[0].Manager
		}
	}
	if changes, err := facts.Changes(r); err == nil {
		for i := range changes {
			if changes[i].By != "" {
				t.writers[changes[i].Version] = changes[i].By
			}
		}
	}
	return t
}

// reconcile is one call of a reconciler.
type reconcile struct {
	id, by, reconciler, request string
	session                     uint64
	from, to                    int // the events at its begin and its end; to: the number of events if it has none
}

// reconcileOf is the reconcile that made a call; nil: there was none, or the run was not traced.
func (t *tracks) reconcileOf(o *record.Observation) *reconcile {
	if o.ReconcileID == "" {
		return nil
	}
	for i := range t.events {
		if begins(t.events[i].Observation) && t.events[i].Observation.ReconcileID == o.ReconcileID {
			return t.from(i)
		}
	}
	return nil
}

func begins(o *record.Observation) bool {
	return o != nil && o.Point == wire.Reconcile && o.Phase == wire.Before
}

// from is the reconcile that begins with an event.
func (t *tracks) from(at int) *reconcile {
	o := t.events[at].Observation
	c := &reconcile{o.ReconcileID, o.By, o.Reconciler, o.Request, o.Session, at, len(t.events)}
	for i := at + 1; i < len(t.events); i++ {
		e := t.events[i].Observation
		if e != nil && e.Point == wire.Reconcile && e.Phase == wire.After && e.ReconcileID == c.id {
			c.to = i
			break
		}
	}
	return c
}

// same reports whether an event begins another reconcile of the same request.
func (c *reconcile) same(o *record.Observation) bool {
	return begins(o) && o.By == c.by && o.Reconciler == c.reconciler && o.Request == c.request
}

// next is the first reconcile of the same request by a later process; nil: there is none.
func (t *tracks) next(c *reconcile) *reconcile {
	for i := c.from + 1; i < len(t.events); i++ {
		if o := t.events[i].Observation; c.same(o) && o.Session != c.session {
			return t.from(i)
		}
	}
	return nil
}

// restarted reports whether another process of the controller began to reconcile after a reconcile.
func (t *tracks) restarted(c *reconcile) bool {
	return slices.ContainsFunc(t.events[c.from:], func(e record.Event) bool {
		return begins(e.Observation) && e.Observation.By == c.by && e.Observation.Session != c.session
	})
}

// after is the next reconcile of the same request; nil: there is none.
func (t *tracks) after(c *reconcile) *reconcile {
	for i := c.from + 1; i < len(t.events); i++ {
		if c.same(t.events[i].Observation) {
			return t.from(i)
		}
	}
	return nil
}

// received says what the process had received since it began to reconcile the same request before: one of these events
// has woken it, or time has passed.
func (t *tracks) received(c *reconcile) []Step {
	since, before := 0, ""
	for i := range c.from {
		if o := t.events[i].Observation; c.same(o) && o.Session == c.session {
			since, before = i, "since the reconcile before"
			if end := t.from(i).to; end < c.from && t.events[end].Observation.Error != "" {
				before = "since the reconcile before, which failed"
			}
		}
	}
	var all []Step
	for i := since; i < c.from; i++ {
		o := t.events[i].Observation
		if o == nil || o.Point != wire.ControllerRecv || o.Phase != wire.After || o.Session != c.session || o.Election {
			continue
		}
		all = append(all, Step{At: t.events[i].Time, Text: fmt.Sprintf("%s receives the %s of %s%s", c.by,
			record.Noun(o.Op), object(o, o.Namespace, o.Name), version(t.versions[i]))})
	}
	if left := len(all) - maxReceived; left > 0 {
		all = all[left:]
		all[0].Text = fmt.Sprintf("(after %s) %s", wording.Count(left, "other"), all[0].Text)
	}
	switch {
	case len(all) > 0:
	case before == "":
		all = []Step{{Text: "nothing is received before; it is the first reconcile of it by this process"}}
	default:
		all = []Step{{Text: "nothing is received " + before + ": it comes again, or is tried again"}}
	}
	if all[0].At.IsZero() {
		all[0].At = t.events[c.from].Time
	}
	return all
}

// steps lists what a reconcile did until an event, which it includes, or -1: until its end. Stale says, for what it
// read that was not the newest, what it should have seen.
func (t *tracks) steps(c *reconcile, until int) (all []Step, stale []string) {
	for i := c.from + 1; i < c.to && (until < 0 || i <= until); i++ {
		o := t.events[i].Observation
		if o == nil || o.Election {
			continue
		}
		mine := o.ReconcileID == c.id
		switch {
		case mine && o.Point == wire.ControllerRead && o.Phase == wire.After:
			s, missed := t.read(i)
			if n := len(all); n > 0 && all[n-1].Text == s.Text {
				continue // the same again
			}
			all, stale = append(all, s), append(stale, missed...)
		case mine && o.Point == wire.ControllerWrite && o.Phase == wire.Before:
			all = append(all, t.wrote(i, i == until))
		}
	}
	if left := len(all) - maxSteps; left > 0 {
		all = all[left:]
		all[0].Text = fmt.Sprintf("(after %s) %s", wording.Count(left, "other"), all[0].Text)
	}
	return all, stale
}

// wrote is the step of a write, with what came of it.
func (t *tracks) wrote(at int, named bool) Step {
	o := t.events[at].Observation
	s := Step{At: t.events[at].Time, Text: "it " + did(o), Place: place(o), Wrong: named, write: true}
	answer, ok := t.answers[[2]uint64{o.Session, o.Call}]
	switch {
	case !ok || answer < at:
		s.Text += ", and gets no answer"
	default:
		a := t.events[answer].Observation
		switch {
		case a.Failed == wire.Lost:
			s.Text += fmt.Sprintf(": done%s, but the plan makes the answer get lost", version(t.versions[answer]))
		case a.Failed != "":
			s.Text += ": the plan has it refused"
		case a.Error != "":
			s.Text += ": " + wording.FirstLine(a.Error)
		default:
			s.Text += version(t.versions[answer])
		}
	}
	return s
}

// read is the step of a read, and what it should have seen.
func (t *tracks) read(at int) (s Step, missed []string) {
	o := t.events[at].Observation
	how := ""
	if o.Live {
		how = ", from the API server"
	}
	s = Step{At: t.events[at].Time, Place: place(o)}
	if o.Name == "" {
		s.Text = fmt.Sprintf("it lists %s%s", of(o), how)
		if o.Live {
			return s, nil // what it saw is not in the record
		}
		for _, name := range t.names(o) {
			got := t.cached(at, o, name)
			if text := t.behind(at, o, name.namespace, name.name, got); text != "" {
				missed = append(missed, text)
			}
		}
		if n := len(missed); n > 0 {
			s.Wrong = true
			are := "one of them is"
			if n > 1 {
				are = fmt.Sprintf("%d of them are", n)
			}
			s.Text += ": " + are + " not the newest"
			missed = missed[:min(n, maxObjects)]
		}
		return s, missed
	}
	got := t.versions[at]
	if got == 0 && o.Code != http.StatusNotFound {
		s.Text = fmt.Sprintf("it reads %s%s: %s", object(o, o.Namespace, o.Name), how, wording.FirstLine(o.Error))
		return s, nil
	}
	s.Text = fmt.Sprintf("it reads %s%s%s", object(o, o.Namespace, o.Name), version(got), how)
	if got == 0 {
		s.Text += ": there is none"
	} else {
		s.read = nameOf(o)
	}
	if from, ok := t.begun[[2]uint64{o.Session, o.Call}]; ok {
		if d := t.events[at].Time.Sub(t.events[from].Time); d >= long {
			s.Text += ", held for " + roughly(d)
		}
	}
	if text := t.behind(at, o, o.Namespace, o.Name, got); text != "" {
		s.Wrong = true
		s.Text += ", which is not the newest"
		return s, []string{text}
	}
	return s, nil
}

// behind says what is newer than a version that was read; empty: nothing is, or it is not known.
func (t *tracks) behind(at int, o *record.Observation, namespace, name string, got uint64) string {
	newest, missed := t.newest(at, o, namespace, name, got)
	if newest == nil {
		return ""
	}
	did := map[string]string{
		record.Created: "created", record.Updated: "written", record.Deleted: "deleted",
	}[newest.Event]
	by := ""
	if who := t.writers[newest.ResourceVersion]; who != "" {
		by = " by " + who
	}
	ago := ""
	if d := t.events[at].Time.Sub(newest.Time); d > 0 {
		ago = " " + roughly(d) + " before"
	}
	key := object(o, namespace, name)
	if newest.Event == record.Deleted {
		return fmt.Sprintf("It should have seen that %s is gone: it had been deleted%s%s.", key, by, ago)
	}
	how := fmt.Sprintf("%s behind", wording.Count(missed, "version"))
	if got == 0 {
		how = "it saw none"
	}
	return fmt.Sprintf("It should have seen %s%s, %s%s%s: %s.", key, version(newest.ResourceVersion), did, by, ago, how)
}

// newest is the newest state of an object that had been stored when an event happened, if it is newer than a version
// (0: absent), and how many versions were missed. Resource versions grow: a state whose version is not above one that
// an event has shown before had been stored by then.
func (t *tracks) newest(
	at int, o *record.Observation, namespace, name string, got uint64,
) (newest *record.HistoryEntry, missed int) {
	stored := t.shown(at, o.Cluster)
	for i := range t.history {
		h := &t.history[i]
		if !isOf(o, h) || h.Namespace != namespace || h.Name != name || h.ResourceVersion <= got ||
			h.ResourceVersion > stored && h.Time.After(t.events[at].Time) {
			continue
		}
		newest, missed = h, missed+1
	}
	if newest != nil && newest.Event == record.Deleted && got == 0 {
		return nil, 0
	}
	return newest, missed
}

// shown is the newest resource version of a cluster that the events before one have shown.
func (t *tracks) shown(at int, cluster string) (newest uint64) {
	for i := range at {
		if o := t.events[i].Observation; o != nil && (o.Cluster == cluster || cluster == record.UnknownCluster) {
			newest = max(newest, t.versions[i])
		}
	}
	return newest
}

type objectName struct{ namespace, name string }

// names lists the objects of the type that a list reads, in its namespace.
func (t *tracks) names(o *record.Observation) (all []objectName) {
	for i := range t.history {
		h := &t.history[i]
		n := objectName{h.Namespace, h.Name}
		if isOf(o, h) && (o.Namespace == "" || o.Namespace == h.Namespace) && !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all
}

// cached is the version of an object in a process's cache when an event happened; 0: it is not there. What the cache
// was filled with at first is not known, so that it counts as the newest state until then.
func (t *tracks) cached(at int, o *record.Observation, name objectName) (version uint64) {
	known := false
	for i := range at {
		e := t.events[i].Observation
		if e == nil || e.Point != wire.ControllerRecv || e.Phase != wire.After || e.Session != o.Session ||
			e.Kind != o.Kind || e.Namespace != name.namespace || e.Name != name.name {
			continue
		}
		known = true
		if version = t.versions[i]; e.Op == wire.Delete {
			version = 0
		}
	}
	if !known {
		return ^uint64(0)
	}
	return version
}

// isOf reports whether an entry is of the type, in the cluster, that a call is about.
func isOf(o *record.Observation, h *record.HistoryEntry) bool {
	kind := o.Kind == h.Type || o.Kind == "" && facts.IsResource(o.Resource, h.Type)
	return kind && (!o.GroupKnown || o.Group == h.Group) &&
		(o.Cluster == h.Cluster || o.Cluster == record.UnknownCluster)
}

func of(o *record.Observation) string {
	kind := o.Kind
	if kind == "" {
		kind = o.Resource
	}
	if o.Namespace == "" {
		return record.In(o.Cluster, kind+"s")
	}
	return record.In(o.Cluster, kind+"s in "+o.Namespace)
}

func object(o *record.Observation, namespace, name string) string {
	kind := o.Kind
	if kind == "" {
		kind = o.Resource
	}
	return record.In(o.Cluster, kind+"/"+namespace+"/"+name)
}

// did is "updates the status of database/default/db".
func did(o *record.Observation) string {
	what := map[wire.Operation]string{
		wire.Create: "creates", wire.Update: "updates", wire.Patch: "patches", wire.Apply: "applies",
		wire.Delete: "deletes", wire.DeleteCollection: "deletes a collection of",
	}[o.Op]
	if o.Subresource != "" {
		what += " the " + o.Subresource + " of"
	}
	return what + " " + object(o, o.Namespace, o.Name)
}

func version(v uint64) string {
	if v == 0 {
		return ""
	}
	return " (version " + strconv.FormatUint(v, 10) + ")"
}

func place(o *record.Observation) string {
	if !o.Callers.Known() {
		return ""
	}
	return o.Callers[0].String()
}

// roughly is a short time, too.
func roughly(d time.Duration) string {
	if d < 100*time.Millisecond {
		return strings.Replace(d.Round(100*time.Microsecond).String(), "ms", " ms", 1)
	}
	return wording.Roughly(d)
}
