package facts

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// Follower turns a history into changes and sums them up by object, one entry after the other. It is not safe for
// concurrent use.
type Follower struct {
	names namer
	last  map[Key]map[string]any // the newest state of each object
	// Upgrades: another build of the controllers is installed in the course of the run. Follow sets it; otherwise it is
	// set before the first Add.
	Upgrades bool
	// Began is until when only the controllers did anything, see [Began]; zero: unknown. What they do to objects that
	// are there, as they start, is taken for how these were. Follow sets it; otherwise it is set before the first Add.
	Began time.Time

	changes []Change
	objects map[Key]*Object
	dying   map[string]bool // UIDs of objects that are being deleted, or are gone
	called  *names
	// ownerGone are the UIDs of objects that were created for such objects. ownerGoneSets are the StatefulSets among
	// them, in their newest states, until another one takes their place: a claim may be created for a StatefulSet that
	// is gone already.
	ownerGone     map[string]bool
	ownerGoneSets map[Key]map[string]any
	// orphaning are the objects that were deleted without what they own, and have not been created again since.
	orphaning map[Key]bool
	// generations are those of all objects, by UID.
	generations map[string]int
	// absences and setbacks are those of the controllers, course that of the workload; only after Follow.
	absences map[string][]absence
	setbacks map[string][]time.Time
	course   Course
}

// NewFollower returns a Follower of a history that has not begun.
func NewFollower() *Follower {
	return &Follower{
		names: namer{keys: map[string]Key{}, numbers: map[string]int{}}, last: map[Key]map[string]any{},
		objects: map[Key]*Object{}, dying: map[string]bool{}, called: newNames(),
		ownerGone: map[string]bool{}, ownerGoneSets: map[Key]map[string]any{}, orphaning: map[Key]bool{},
		generations: map[string]int{},
	}
}

// Follow follows a recorded run to its end, and finds out who made the changes, as far as it was traced.
func Follow(r *record.Run) (*Follower, error) {
	f := NewFollower()
	f.Upgrades = !installed(r).IsZero()
	f.Began = Began(r.Meta.Steps, r.Actions)
	for _, p := range r.Processes {
		f.called.notePod(p.Controller, p.Pod)
	}
	if err := f.Add(r.History...); err != nil {
		return nil, err
	}
	f.absences, f.setbacks, f.course = absences(r), setbacks(r), Course{r.Meta.Steps, r.Meta.WorkloadEnd}
	attribute(f.changes, r)
	for i := range f.changes {
		f.attribute(&f.changes[i])
	}
	return f, nil
}

// Add takes the next entries. The error says that an entry cannot be read; those before it are taken.
func (f *Follower) Add(entries ...record.HistoryEntry) error {
	for i := range entries {
		h := &entries[i]
		var object map[string]any
		if err := json.Unmarshal(h.Object, &object); err != nil {
			return fmt.Errorf("history of %s/%s/%s: %w", h.Type, h.Namespace, h.Name, err)
		}
		if name := controllerOf(object); name != "" {
			f.called.noteController(name, h, object)
			continue
		}
		key, generated := f.names.key(h, object)
		c := Change{Key: key, Event: h.Event, Version: h.ResourceVersion, Time: h.Time, Generated: generated,
			Cur: object, writers: h.Writers}
		if h.Event == record.Existing && f.objects[key] != nil {
			// The recording lacks what came between: the object is known already.
			if c.Event = record.Updated; f.last[key] == nil {
				c.Event = record.Created
			}
		}
		if c.Prev = f.last[key]; c.Event == record.Created {
			c.Prev = nil
		}
		if h.Event == record.Deleted {
			c.Prev, c.Cur, c.wasMarked = object, nil, metadata.Marked(c.Prev)
		}
		f.last[key] = c.Cur
		if c.Event == record.Existing {
			f.called.note(key, object)
			f.grow(object)
			o := &Object{
				End: object, Made: 1, MostMade: 1, unchanged: true, manifest: f.Upgrades && c.Installs(),
				inRun: f.inRun(h.Cluster),
			}
			o.became(f.state(h.ResourceVersion, h.Time, object), true)
			f.objects[key] = o
			continue
		}
		f.changes = append(f.changes, c)
		f.count(&c)
	}
	return nil
}

// orphan is metav1.FinalizerOrphanDependents: the garbage collector takes it away when it has taken the object out of
// the owners of all others. So these stay.
const orphan = "orphan"

// annotationController is cluster.AnnotationController. Judges do not depend on clusters, so it is repeated here.
const annotationController = "trommel.dev/controller"

// controllerOf returns the name of the controller under test of which the object is a pod, or makes pods. What becomes
// of them is Trommel's doing. Empty: there is none.
func controllerOf(object map[string]any) string {
	spec, _ := object["spec"].(map[string]any)
	template, _ := spec["template"].(map[string]any)
	for _, o := range []map[string]any{object, template} {
		annotations, _ := metadata.Of(o)["annotations"].(map[string]any)
		if name := metadata.Text(annotations, annotationController); name != "" {
			return name
		}
	}
	return ""
}

// Changes are those so far. The follower owns the result.
func (f *Follower) Changes() []Change { return f.changes }

// Objects sums up what happened so far, by object, also for objects to which nothing happened. It knows who did it only
// after Follow. The follower owns the result.
func (f *Follower) Objects() map[Key]*Object { return f.objects }

// Objects sums up changes by object. It does not know objects to which nothing happened. Others are changes of the same
// run, whose objects the values of these may name.
func Objects(changes []Change, others ...Change) map[Key]*Object {
	f := NewFollower()
	for i := range others {
		f.called.note(others[i].Key, others[i].object())
	}
	for i := range changes {
		f.count(&changes[i])
		f.attribute(&changes[i])
	}
	return f.objects
}

// count adds a change to the sums.
func (f *Follower) count(c *Change) {
	f.called.note(c.Key, c.object())
	if c.Cur == nil || metadata.Marked(c.Cur) {
		for _, object := range []map[string]any{c.Prev, c.Cur} {
			if uid := metadata.UID(object); uid != "" {
				f.dying[uid] = true
			}
		}
	}
	o := f.objects[c.Key]
	if o == nil {
		o = &Object{inRun: f.inRun(c.Key.Cluster())}
		if c.Event != record.Created {
			o.Made = 1 // the history lacks its beginning
		}
		f.objects[c.Key] = o
	}
	if o.unchanged {
		o.unchanged, o.initial = false, o.End
	}
	if o.initial != nil && c.Event == record.Updated && c.Time.Before(f.Began) {
		o.initial = c.Cur
	}
	o.manifest = o.manifest || f.Upgrades && c.Installs()
	if finalizers, _ := metadata.Of(c.Cur)["finalizers"].([]any); metadata.Marked(c.Cur) &&
		slices.Contains(finalizers, any(orphan)) {
		f.orphaning[c.Key] = true
	}
	switch {
	case c.Event == record.Created:
		delete(f.ownerGoneSets, c.Key)
		switch {
		case f.forGoneOwner(c):
			o.OwnerGone++
			f.ownerGone[metadata.UID(c.Cur)] = true
			if c.Key.Type() == StatefulSet {
				f.ownerGoneSets[c.Key] = c.Cur
			}
		case f.orphaning[c.Key]:
			o.TookOver++
		default:
			o.Made++
		}
		delete(f.orphaning, c.Key)
	case c.Event == record.Deleted:
		o.Deleted++
	case f.ownerGoneSets[c.Key] != nil:
		f.ownerGoneSets[c.Key] = c.Cur
	}
	if c.Event == record.Created {
		o.OwnerGeneration = f.generations[metadata.Text(metadata.Controller(c.Cur), "uid")]
	}
	f.grow(c.Cur)
	o.became(f.state(c.Version, c.Time, c.Cur), c.Event == record.Created)
	o.MostMade = o.Made
	o.End, o.last, o.rewrittenAt = c.Cur, c.Prev, -1
}

// forGoneOwner reports whether an object is created for an owner that is being deleted or gone, or that was itself
// created for such an owner: the garbage collector deletes it. A claim of a StatefulSet has no owner, and is known by
// its name.
func (f *Follower) forGoneOwner(c *Change) bool {
	uid := metadata.Text(metadata.Controller(c.Cur), "uid")
	if uid == "" && c.Key.Type() == "persistentvolumeclaim" {
		namespace := metadata.Text(metadata.Of(c.Cur), "namespace")
		for key, set := range f.ownerGoneSets {
			if key.Cluster() == c.Key.Cluster() && metadata.Text(metadata.Of(set), "namespace") == namespace &&
				IsClaimOf(c.Name(), set) {
				return true
			}
		}
	}
	return uid != "" && (f.dying[uid] || f.ownerGone[uid])
}

// inRun is what an object in a cluster needs of the run.
func (f *Follower) inRun(cluster string) inRun {
	return inRun{generations: f.generations, names: f.called, cluster: cluster, rewrittenAt: -1}
}

// state is the state of an object from then on.
func (f *Follower) state(version uint64, at time.Time, object map[string]any) State {
	return State{version, at, f.generations[metadata.Text(metadata.Controller(object), "uid")], object}
}

// grow notes an object's generation.
func (f *Follower) grow(object map[string]any) {
	if n, ok := metadata.Of(object)["generation"].(float64); ok {
		f.generations[metadata.UID(object)] = int(n)
	}
}

// attribute notes who made a change.
func (f *Follower) attribute(c *Change) {
	if c.Event == record.Created {
		f.objects[c.Key].maker = c.By
	}
	if c.By != "" && (c.Event != record.Updated || c.Marked()) {
		f.objects[c.Key].Ours = true
	}
}
