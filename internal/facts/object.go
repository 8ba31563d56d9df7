package facts

import "github.com/trommel-dev/trommel/internal/metadata"

// Object is what became of the objects of a key in one run, or in several.
type Object struct {
	// End is the object's state at the end; nil: it is gone.
	End map[string]any `json:"end,omitempty"`
	// Made is how many objects of the key there were, one after the other. It is the least of all runs, and MostMade
	// the most. Objects that were created for an owner that was being deleted or gone do not count: a controller that
	// sees the past creates them, and the garbage collector deletes them. An object that takes over what one before it
	// had owned, which was deleted without its dependents, does not count either.
	Made     int `json:"made"`
	MostMade int `json:"mostMade"`
	// OwnerGone and TookOver are how many there were that do not count in Made: those that were created for an owner
	// that was being deleted or gone, and those that took over what an object before them had owned. Each is the most
	// of all runs.
	OwnerGone int `json:"vain,omitempty"`
	TookOver  int `json:"instead,omitempty"`
	// Deleted is how often it was deleted, at most in a run; to be marked for deletion does not count.
	Deleted int `json:"deleted,omitempty"`
	// Returned is how often each field that counts changed back to the value before the last, at most in a run. Only a
	// Baseline and its alternatives have it.
	Returned map[string]int `json:"returned,omitempty"`
	// Ours: a controller under test has made or deleted it at least once.
	Ours bool `json:"ours,omitempty"`
	// OwnerGeneration is the generation of the object's controlling owner when the object was created; 0: unknown, or
	// not the same in all runs.
	OwnerGeneration int `json:"born,omitempty"`
	// Renewed is how often random values were replaced, by field, and Versions the resource versions that a Secret or
	// ConfigMap has had with the contents that it has in the end. A run that is being followed has neither.
	Renewed  map[string]Renewed `json:"renewed,omitempty"`
	Versions []string           `json:"versions,omitempty"`
	// Rewritten are the texts of End that name other objects as only this run does.
	Rewritten map[string]Rewritten `json:"rewritten,omitempty"`

	past
	inRun
	maker string // the controller under test that created the last one; empty: another client did
	// unchanged: the object existed before the workload, and nothing has happened to it.
	unchanged bool
	// manifest: the manifests of one of the builds have it, in a run in which another build is installed.
	manifest bool
}

// past are an object's former states.
type past struct {
	initial map[string]any    // that of an object that existed before the workload and has changed
	last    map[string]any    // that of an object that is gone; nil: it is not gone, or was read from a file
	states  []State           // of the last object of that key; nil: what is known of them is in Renewed
	trails  map[string]*trail // see Replacements
}

// inRun is what an object needs of its run.
type inRun struct {
	generations map[string]int // of all objects, by UID
	names       *names         // nil: Rewritten is complete
	cluster     string         // in which the object is, if there are several
	rewrittenAt int            // the version of names for which Rewritten is complete
}

// Last is the object's state at the end, or its last one if it is gone; nil: unknown, which is so for a gone object
// that was read from a file.
func (o *Object) Last() map[string]any {
	if o.End == nil {
		return o.last
	}
	return o.End
}

// Existed reports whether the object was there before the workload. The object may be nil.
func (o *Object) Existed() bool { return o != nil && (o.unchanged || o.initial != nil) }

// Unchanged reports whether the object existed before the workload, and nothing has happened to it.
func (o *Object) Unchanged() bool { return o.unchanged }

// Before is an object that existed before the workload as it was then. If its first state is unknown, as of one that
// another build's manifests took away, it is the last one.
func (o *Object) Before() *Object {
	end := o.initial
	if end == nil {
		end = o.Last()
	}
	return &Object{
		End: end, Made: 1, MostMade: 1, inRun: inRun{names: o.names, cluster: o.cluster, rewrittenAt: -1},
	}
}

// Maker is the controller under test that created the last object of the key; empty: another client did.
func (o *Object) Maker() string { return o.maker }

// OfManifests reports whether the manifests of one of the builds have it, in a run in which another build is installed.
func (o *Object) OfManifests() bool { return o.manifest }

// Owner is the key of the first owner of the object; empty: it has none, or the run does not know the owner.
func (o *Object) Owner() Key {
	all := metadata.Owners(o.Last())
	if len(all) == 0 || o.names == nil {
		return ""
	}
	return o.names.uids[metadata.Text(all[0], "uid")]
}

// Owned reports whether the object has an owner, which the run need not know.
func (o *Object) Owned() bool { return len(metadata.Owners(o.Last())) > 0 }

// OwnerName names the object that this one belongs to, as it is called in each run; empty: none, or unknown.
func (o *Object) OwnerName() string {
	owners := metadata.Owners(o.End)
	if len(owners) == 0 {
		return ""
	}
	return o.Texts()[metadata.Text(owners[0], "uid")].Text
}
