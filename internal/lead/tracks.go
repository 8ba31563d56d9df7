package lead

import (
	"slices"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
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
	takes    map[reception]bool
	ordered  bool // the plan has a schedule
}

// reception is that a process receives events of a type.
type reception struct {
	session uint64
	kind    string
}

func newTracks(r *record.Run) *tracks {
	t := &tracks{
		events: r.Events, history: r.History, versions: make([]uint64, len(r.Events)), answers: map[[2]uint64]int{},
		begun: map[[2]uint64]int{}, writers: map[uint64]string{}, takes: map[reception]bool{},
	}
	for i := range r.Events {
		t.ordered = t.ordered || r.Events[i].Ordered
		o := r.Events[i].Observation
		if o == nil {
			continue
		}
		t.versions[i] = metadata.ResourceVersion(o.Object)
		if isDelivery(o, wire.After, o.Session) {
			t.takes[reception{o.Session, o.Kind}] = true
		}
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

// next is the next reconcile of the same request, or the next one by another process; nil: there is none.
func (t *tracks) next(c *reconcile, otherProcess bool) *reconcile {
	for i := c.from + 1; i < len(t.events); i++ {
		if o := t.events[i].Observation; c.same(o) && !(otherProcess && o.Session == c.session) {
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

// cached is the version of an object in a process's cache when an event happened; 0: it is not there. If the process
// has received nothing of the object until then, but does later, it was not there. Otherwise nothing is known of it,
// and it counts as new enough.
func (t *tracks) cached(at int, o *record.Observation, name objectName) (version uint64) {
	known := false
	for i := range t.events {
		e := t.events[i].Observation
		if e == nil || e.Point != wire.ControllerRecv || e.Phase != wire.After || e.Session != o.Session ||
			e.Kind != o.Kind || e.Namespace != name.namespace || e.Name != name.name {
			continue
		}
		switch {
		case i < at && e.Op == wire.Delete:
			version, known = 0, true
		case i < at:
			version, known = t.versions[i], true
		case !known && e.Op == wire.Create:
			return 0
		}
	}
	if !known {
		return newEnough
	}
	return version
}

const newEnough = ^uint64(0)

// isOf reports whether an entry is of the type, in the cluster, that a call is about.
func isOf(o *record.Observation, h *record.HistoryEntry) bool {
	kind := o.Kind == h.Type || o.Kind == "" && facts.IsResource(o.Resource, h.Type)
	return kind && (!o.GroupKnown || o.Group == h.Group) &&
		(o.Cluster == h.Cluster || o.Cluster == record.UnknownCluster)
}
