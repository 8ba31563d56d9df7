// Package facts describes what happened in one recorded run: the changes of its objects, who made them, how the objects
// are named, and what became of each. It knows no other run, and no masks: package baseline decides what counts.
package facts

import (
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// Change is one change of an object.
type Change struct {
	Key     Key       `json:"key"`
	Event   string    `json:"event"` // see the record's constants; record.Existing does not occur
	Version uint64    `json:"version"`
	Time    time.Time `json:"time"`
	// Prev and Cur are the states before and after; nil: there was none.
	Prev map[string]any `json:"prev,omitempty"`
	Cur  map[string]any `json:"cur,omitempty"`
	// By is the controller under test that wrote the change; empty: another client did.
	By string         `json:"by,omitempty"`
	Op wire.Operation `json:"op,omitempty"` // of that write
	// Subresource is that of the write: "eviction".
	Subresource string `json:"subresource,omitempty"`
	Reconciler  string `json:"reconciler,omitempty"`
	Reconcile   string `json:"reconcile,omitempty"` // the ID of the reconcile that wrote it
	Request     string `json:"request,omitempty"`   // namespace/name for which that reconcile was
	// Sent is what the controller has sent: an object, or a patch that is a mapping. Nil: something else, or unknown.
	Sent map[string]any `json:"sent,omitempty"`
	// Origin is where the write comes from. Baselines lack it.
	Origin record.Origin `json:"-"`
	// Read is what the reconcile that wrote it, and the one before it for the same request, had read until then, each
	// as kind/namespace/name, or with the resource instead of the kind; a list has the name "*", and "*" as its
	// namespace if it is of all namespaces. With several clusters it begins with the cluster, as a key does, unless
	// that is unknown. Nil: unknown.
	Read []string `json:"read,omitempty"`
	// AppliedAgain: the controller has later applied the object again (server-side apply), without effect.
	AppliedAgain bool `json:"appliedAgain,omitempty"`
	// Generated: the object's name was generated, so no plan can name it.
	Generated bool `json:"generated,omitempty"`
	// Taken names the controllers under test that took the change in.
	Taken []string `json:"taken,omitempty"`

	writers   []record.FieldManager // see record.HistoryEntry
	wasMarked bool                  // the state before was marked for deletion
}

// object is the state after the change, or the last one.
func (c *Change) object() map[string]any {
	if c.Cur == nil {
		return c.Prev
	}
	return c.Cur
}

// Marked reports whether the change marks the object for deletion.
func (c *Change) Marked() bool {
	return c.Event == record.Updated && !metadata.Marked(c.Prev) && metadata.Marked(c.Cur)
}

// MayFollowFrom reports whether the write that made the change may follow from another change of an object: the
// reconcile that made the write, or the one before it, had read the object. It is true if what was read is unknown.
func (c *Change) MayFollowFrom(cause *Change) bool {
	return c.Read == nil || slices.ContainsFunc(c.Read, cause.IsReadBy)
}

// IsReadBy reports whether a read, as in Read, may have been of the change's object.
func (c *Change) IsReadBy(read string) bool {
	if in := Key(read).Cluster(); in != "" && in != c.Key.Cluster() {
		return false
	}
	kind, _, _ := strings.Cut(c.Key.Type(), ".")
	_, rest, _ := strings.Cut(string(c.Key), "/")
	namespace, _, _ := strings.Cut(rest, "/")
	parts := strings.SplitN(Key(read).Local(), "/", 3)
	return (parts[0] == kind || IsResource(parts[0], kind)) &&
		(parts[1] == namespace || parts[1] == "*") && (parts[2] == c.Name() || parts[2] == "*")
}

// Name is the object's name in the run, which may be generated.
func (c *Change) Name() string {
	if name := metadata.Text(metadata.Of(c.object()), "name"); name != "" {
		return name
	}
	return string(c.Key[strings.LastIndex(string(c.Key), "/")+1:])
}

// Changes lists what happened to the objects of a traced run, in the order of resource versions, without what was
// before the workload.
func Changes(r *record.Run) ([]Change, error) {
	f, err := Follow(r)
	if err != nil {
		return nil, err
	}
	return f.changes, nil
}

// String says what the change is, in words.
func (c *Change) String() string {
	switch {
	case c.Event == record.Updated && c.Marked():
		return "marked for deletion"
	default:
		return c.Event
	}
}
