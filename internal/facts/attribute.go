package facts

import (
	"encoding/json"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// late is how long after a write's answer its change may arrive in the history: another connection delivers it.
const late = 500 * time.Millisecond

// attribution finds out which controllers wrote and took in the changes of a run. A write claims a change only if it
// must have made it. A change that another client may have made has no writer.
type attribution struct {
	changes    []Change
	byVersion  map[uint64][]int // indices of changes
	endings    map[string][]int // those that mark an object or delete it, by its name
	anyEndings []int            // all of these
	applied    map[string]*Change
	began      map[[2]uint64]begun // writes, by session and call
	answered   map[[2]uint64]bool  // of these, the ones whose answer was observed
	newest     map[string]uint64   // the newest resource version that an observation has shown so far, by cluster
	reads      reads
}

// begun is a write that has begun. It did not make changes with an older resource version than the newest, or that were
// in the history before.
type begun struct {
	observation *record.Observation
	seq         int
	at          time.Time
	newest      map[string]uint64
}

// attribute notes in the changes which controller wrote and took in each.
func attribute(all []Change, r *record.Run) {
	a := attribution{
		changes: all, byVersion: map[uint64][]int{}, endings: map[string][]int{}, applied: map[string]*Change{},
		began: map[[2]uint64]begun{}, answered: map[[2]uint64]bool{}, newest: map[string]uint64{},
		reads: reads{byReconcile: map[string][]string{}, previous: map[string]string{}, last: map[string]string{}},
	}
	for i := range all {
		c := &all[i]
		a.byVersion[c.Version] = append(a.byVersion[c.Version], i)
		if c.Event == record.Deleted || c.Marked() {
			a.endings[c.Name()], a.anyEndings = append(a.endings[c.Name()], i), append(a.anyEndings, i)
		}
	}
	for i := range r.Events {
		if o := r.Events[i].Observation; o != nil {
			a.observe(o, &r.Events[i])
		} else if end := r.Events[i].SessionEnd; end != nil {
			a.complete(end)
		}
	}
	a.unanswered()
}

func (a *attribution) observe(o *record.Observation, e *record.Event) {
	a.reads.note(o)
	version := metadata.ResourceVersion(o.Object)
	call := [2]uint64{o.Session, o.Call}
	if o.Point == wire.ControllerWrite && o.Phase == wire.After {
		a.answered[call] = true
	}
	switch {
	case o.Point == wire.ControllerRecv && o.Phase == wire.After:
		for _, i := range a.byVersion[version] {
			if c := &a.changes[i]; !slices.Contains(c.Taken, o.By) {
				c.Taken = append(c.Taken, o.By)
			}
		}
	case o.Point != wire.ControllerWrite:
	case o.Phase == wire.Before:
		// A request that is made again may have had its effect the first time.
		if a.began[call].observation == nil {
			a.began[call] = begun{o, e.Seq, e.Time, maps.Clone(a.newest)}
		}
	case !o.Done() || o.Election:
	default:
		a.wrote(o, e.Time)
	}
	if version > a.newest[o.Cluster] {
		a.newest[o.Cluster] = version
	}
}

// wrote attributes what a write has done that was answered at a time.
func (a *attribution) wrote(o *record.Observation, at time.Time) {
	since := a.began[[2]uint64{o.Session, o.Call}]
	if o.Op == wire.DeleteCollection {
		for _, c := range a.collection(o, since, at) {
			a.claim(c, o, since)
		}
		return
	}
	c := a.made(o, since, at)
	if c != nil {
		a.claim(c, o, since)
	}
	object := strings.Join([]string{o.By, o.Cluster, o.Group, o.Kind, o.Namespace, o.Name}, "/")
	if o.Op != wire.Apply || o.Subresource != "" {
		return
	}
	if c != nil {
		a.applied[object] = c
	} else if last := a.applied[object]; last != nil {
		last.AppliedAgain = true
	}
}

// claim notes that a write has made a change.
func (a *attribution) claim(c *Change, o *record.Observation, since begun) {
	c.By, c.Op, c.Subresource = o.By, o.Op, o.Subresource
	c.Reconciler, c.Reconcile, c.Request = o.Reconciler, o.ReconcileID, o.Request
	c.Read = a.reads.before(o.ReconcileID)
	if since.observation != nil {
		c.Sent = body(since.observation)
		c.Origin = record.Origin{Callers: since.observation.Callers, Event: since.seq}
	}
}

// collection are the changes with which the deletion of a collection, which was answered at a time, has ended objects:
// of each one that it selects the first.
func (a *attribution) collection(o *record.Observation, since begun, answered time.Time) []*Change {
	query, err := url.ParseQuery(o.Query)
	if err != nil || since.observation == nil {
		return nil
	}
	selector, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil
	}
	fields, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil
	}
	var all []*Change
	for _, i := range a.anyEndings {
		c := &a.changes[i]
		meta := metadata.Of(c.object())
		has, _ := meta["labels"].(map[string]any)
		labelled := labels.Set{}
		for key := range has {
			labelled[key] = metadata.Text(has, key)
		}
		if c.isOf(o) && (o.Namespace == "" || metadata.Text(meta, "namespace") == o.Namespace) && a.free(c, since) &&
			!c.Time.After(answered.Add(late)) && c.ofDeletion() && selector.Matches(labelled) && selects(fields, meta) {
			all = append(all, c)
		}
	}
	return all
}

// selects reports whether a field selector selects an object, as far as its metadata shows it. Selectors of other
// fields work on states that are not recorded. They select nothing here: such a deletion claims no changes.
func selects(s fields.Selector, meta map[string]any) bool {
	for _, r := range s.Requirements() {
		field, ok := strings.CutPrefix(r.Field, "metadata.")
		if !ok || (metadata.Text(meta, field) == r.Value) == (r.Operator == selection.NotEquals) {
			return false
		}
	}
	return true
}

// made is the change that a write has made; nil: none, or none that was recorded.
func (a *attribution) made(o *record.Observation, since begun, answered time.Time) *Change {
	var answer map[string]any
	_ = json.Unmarshal(o.Object, &answer)
	switch deletes := o.Op == wire.Delete || o.Subresource == "eviction"; {
	case since.observation == nil && o.Op != wire.Create:
		return nil // it may have had no effect
	case o.Op == wire.Delete && metadata.Marked(answer):
		return nil // it was marked before; the observation shows that state
	case deletes:
		return a.ending(o, since, answered, metadata.UID(answer), true)
	}
	// An update that removes the last finalizer of a marked object deletes it. Its answer has the version of the state
	// before, which another client has written.
	meta := metadata.Of(answer)
	ends := metadata.Marked(answer) && meta["finalizers"] == nil &&
		(meta["deletionGracePeriodSeconds"] == nil || meta["deletionGracePeriodSeconds"] == 0.0)
	for _, i := range a.byVersion[metadata.ResourceVersion(o.Object)] {
		c := &a.changes[i]
		if ends && metadata.Of(c.Cur)["finalizers"] != nil {
			continue // the state before
		}
		if c.names(o) && a.free(c, since) && couldHaveMade(o, since, c) {
			return c
		}
	}
	if ends {
		return a.ending(o, since, answered, metadata.UID(answer), false)
	}
	return nil
}

// ending is the first change with which a write that was answered at a time has ended its object, by a deletion or by
// an update of a marked object. The UID is the object's; empty: unknown. If the cluster of the write is unknown, and it
// may have ended objects of several clusters, there is none.
func (a *attribution) ending(o *record.Observation, since begun, answered time.Time, uid string, deletes bool) *Change {
	var first *Change
	for _, i := range a.endings[o.Name] {
		c := &a.changes[i]
		if !c.names(o) || !a.free(c, since) || c.Time.After(answered.Add(late)) || c.ofDeletion() != deletes ||
			uid != "" && uid != metadata.UID(c.object()) {
			continue
		}
		switch {
		case uid != "" || o.Cluster != record.UnknownCluster:
			return c
		case first == nil:
			first = c
		case first.Key.Cluster() != c.Key.Cluster():
			return nil
		}
	}
	return first
}

// free reports whether a write that began then may have made the change, and no other write is known to have.
func (a *attribution) free(c *Change, since begun) bool {
	return c.By == "" && c.Version > since.newest[c.Key.Cluster()] && !c.Time.Before(since.at)
}

// ofDeletion reports whether a deletion makes such changes: it marks the object, or deletes one that is not marked.
func (c *Change) ofDeletion() bool { return c.Marked() || c.Event == record.Deleted && !c.wasMarked }

// couldHaveMade reports whether a write other than a deletion, which was answered with the version of a change, has
// made it. A write without effect is answered with the version that it finds, perhaps one that another client has
// written since the write began.
func couldHaveMade(o *record.Observation, since begun, c *Change) bool {
	if o.Op == wire.Create || c.Event == record.Deleted {
		return c.Event == record.Created // a creation has an effect, or fails
	}
	sent := body(since.observation)
	if based := metadata.ParseVersion(metadata.Text(metadata.Of(sent), "resourceVersion")); based != 0 {
		// It succeeds only on this version, so what has changed since is its effect.
		return c.Version != based
	}
	if !c.maybeBy(o, nil) {
		return false
	}
	return o.Op != wire.Patch || sent == nil || touches(sent, c.Prev, c.Cur)
}

// maybeBy reports whether the change's managed fields may name a write's client. If names of the client are given, they
// must name it so; nil: its names are unknown.
func (c *Change) maybeBy(o *record.Observation, names map[string]bool) bool {
	return len(c.writers) == 0 || slices.ContainsFunc(c.writers, func(w record.FieldManager) bool {
		return writes(o, w) && (len(names) == 0 || names[w.Manager])
	})
}

// writes reports whether managed fields name a write's client so.
func writes(o *record.Observation, w record.FieldManager) bool {
	if (w.Operation == "Apply") != (o.Op == wire.Apply) || w.Subresource != o.Subresource {
		return false
	}
	query, err := url.ParseQuery(o.Query)
	manager := query.Get("fieldManager")
	return err != nil || manager == "" || manager == w.Manager
}

// touches reports whether two states differ in something that a patch mentions.
func touches(patch, was, is map[string]any) bool {
	for key, v := range patch {
		if strings.HasPrefix(key, "$") {
			return true // a directive is about what is around it
		}
		if reflect.DeepEqual(was[key], is[key]) {
			continue
		}
		below, _ := v.(map[string]any)
		wasBelow, _ := was[key].(map[string]any)
		isBelow, _ := is[key].(map[string]any)
		if below == nil || wasBelow == nil || isBelow == nil || touches(below, wasBelow, isBelow) {
			return true
		}
	}
	return false
}

// body is what a write sends, if it is a mapping.
func body(o *record.Observation) (m map[string]any) {
	data := o.Object
	switch o.Op {
	case wire.Delete:
		return nil
	case wire.Patch, wire.Apply:
		data = o.Patch
	}
	if json.Unmarshal(data, &m) != nil {
		return nil // a list of operations
	}
	return m
}

// reads tracks what reconciles read.
type reads struct {
	byReconcile map[string][]string
	previous    map[string]string // of a reconcile, the one before it for the same request
	last        map[string]string // reconcile, by controller, reconciler and request
}

func (r *reads) note(o *record.Observation) {
	if o.ReconcileID == "" {
		return
	}
	if _, known := r.byReconcile[o.ReconcileID]; !known {
		line := o.By + "|" + o.Reconciler + "|" + o.Request
		r.byReconcile[o.ReconcileID], r.previous[o.ReconcileID] = []string{}, r.last[line]
		r.last[line] = o.ReconcileID
	}
	if o.Point != wire.ControllerRead || KindOf(o) == "" ||
		o.Phase == wire.Before && o.Cluster == record.UnknownCluster { // what it returns may tell the cluster
		return
	}
	namespace, name := o.Namespace, o.Name
	if name == "" {
		name = "*"
		if namespace == "" {
			namespace = "*"
		}
	}
	key := record.In(o.Cluster, KindOf(o)+"/"+namespace+"/"+name)
	if !slices.Contains(r.byReconcile[o.ReconcileID], key) {
		r.byReconcile[o.ReconcileID] = append(r.byReconcile[o.ReconcileID], key)
	}
}

// before is what a reconcile and the one before it have read so far; nil if there is no reconcile.
func (r *reads) before(reconcile string) []string {
	if reconcile == "" {
		return nil
	}
	all := slices.Concat([]string{}, r.byReconcile[r.previous[reconcile]], r.byReconcile[reconcile])
	slices.Sort(all)
	return slices.Compact(all)
}

// names reports whether the observation is of the change's object. The observation of a delete call knows its resource
// and not its kind. A client may give a namespace for an object that is in none, and the API server takes it.
func (c *Change) names(o *record.Observation) bool {
	meta := metadata.Of(c.object())
	namespace := metadata.Text(meta, "namespace")
	return (namespace == "" || namespace == o.Namespace) && metadata.Text(meta, "name") == o.Name && c.isOf(o)
}

// isOf reports whether the observation is of the type of the change's object, and may be of its cluster.
func (c *Change) isOf(o *record.Observation) bool {
	if o.Cluster != record.UnknownCluster && o.Cluster != c.Key.Cluster() {
		return false
	}
	object := c.object()
	group, _, found := strings.Cut(metadata.Text(object, "apiVersion"), "/")
	if !found {
		group = ""
	}
	if group != o.Group {
		return false
	}
	kind := strings.ToLower(metadata.Text(object, "kind"))
	if o.Kind != "" {
		return kind == strings.ToLower(o.Kind)
	}
	return IsResource(o.Resource, kind)
}
