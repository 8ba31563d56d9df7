// Package baseline describes what a workload does when nothing goes wrong: which objects there are in the end, what
// was done to each of them, and who did it. Runs with faults are compared with it, and plans are generated from it.
//
// The idea of judging a run by a fault-free one is Sieve's (OSDI '22, section 5): it compares the end states and counts
// what was done to each object.
package baseline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Key names an object over all runs of a workload: type[.group]/namespace/name. The name of an object that the API
// server has generated is replaced by its beginning and its number among those of its owner, in the order of their
// creation: "web-#1". In a suite with several clusters, the name of the object's cluster comes first, as in records:
// "west: pod/default/web". What is derived from the key of an object by its name is in the same cluster.
type Key string

// clusterEnd ends the name of a cluster at the beginning of a key; see [record.In].
const clusterEnd = ": "

// KeyIn returns the key of an object of a cluster by its key there; an empty name is the only cluster.
func KeyIn(cluster, key string) Key { return Key(record.In(cluster, key)) }

// Cluster is the name of the object's cluster; empty: there is only one.
func (k Key) Cluster() string {
	cluster, _ := k.split()
	return cluster
}

// Local is the key without the cluster: type[.group]/namespace/name.
func (k Key) Local() string {
	_, local := k.split()
	return local
}

// split separates the cluster, which has no slash, from the object, whose name may have the same separator.
func (k Key) split() (cluster, local string) {
	cluster, local, several := strings.Cut(string(k), clusterEnd)
	if !several || strings.Contains(cluster, "/") {
		return "", string(k)
	}
	return cluster, local
}

// Change is one change of an object.
type Change struct {
	Key     Key       `json:"key"`
	Event   string    `json:"event"` // see the record's constants; record.Existing does not occur
	Version uint64    `json:"version"`
	Time    time.Time `json:"time"`
	// Prev and Cur are the states before and after; nil: there was none.
	Prev map[string]any `json:"prev,omitempty"`
	Cur  map[string]any `json:"cur,omitempty"`
	// By is the controller under test that wrote the change; empty: somebody else did.
	By string         `json:"by,omitempty"`
	Op wire.Operation `json:"op,omitempty"` // of that write
	// Subresource is that of the write: "eviction".
	Subresource string `json:"subresource,omitempty"`
	Reconciler  string `json:"reconciler,omitempty"`
	Reconcile   string `json:"reconcile,omitempty"` // the ID of the reconcile that wrote it
	Request     string `json:"request,omitempty"`   // namespace/name for which that reconcile was
	// Sent is what the controller has sent: an object, or a patch that is a mapping. Nil: something else, or unknown.
	Sent map[string]any `json:"sent,omitempty"`
	// Read is what the reconcile that wrote it, and the one before it for the same request, had read until then, each
	// as kind/namespace/name, or with the resource in place of the kind; a list has the name "*", and "*" as its
	// namespace if it is of all namespaces. With several clusters it begins with the cluster, as a key does, unless
	// nobody knows that. Nil: unknown.
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
	return (parts[0] == kind || isResource(parts[0], kind)) &&
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

// namer gives objects their keys.
type namer struct {
	keys    map[string]Key // by UID
	numbers map[string]int // of generated names, by owner and beginning
}

func (n *namer) key(h *record.HistoryEntry, object map[string]any) (key Key, generated bool) {
	typ := h.Type
	if h.Group != "" {
		typ += "." + h.Group
	}
	typ = record.In(h.Cluster, typ)
	meta := metadata.Of(object)
	name, beginning := h.Name, metadata.Text(meta, "generateName")
	beginning = beginning[:min(len(beginning), maxBeginning)]
	if !isGenerated(strings.TrimPrefix(name, beginning)) {
		beginning = ""
	}
	if beginning == "" {
		beginning = numbered(name, object)
	}
	if beginning == "" || !strings.HasPrefix(name, beginning) {
		return Key(typ + "/" + h.Namespace + "/" + name), false
	}
	uid := metadata.Text(meta, "uid")
	if k, ok := n.keys[uid]; ok {
		return k, true
	}
	owner := ""
	if owners := metadata.Owners(object); len(owners) > 0 {
		if k, ok := n.keys[metadata.Text(owners[0], "uid")]; ok {
			owner = string(k)
		}
	}
	// The name that a generated one begins with may be generated itself, as that of a ReplicaSet's pods is.
	if i := strings.LastIndex(owner, "/"); i >= 0 {
		beginning = owner[i+1:] + "-"
	}
	group := owner + "|" + typ + "/" + h.Namespace + "/" + beginning
	n.numbers[group]++
	key = Key(fmt.Sprintf("%s/%s/%s#%d", typ, h.Namespace, beginning, n.numbers[group]))
	n.keys[uid] = key
	return key, true
}

// maxBeginning is how much of generateName the API server keeps, to have room for what it adds.
const maxBeginning = 58

// numbered is the beginning of the name of a Job that a CronJob has made: the rest is the time. Empty: it is none.
func numbered(name string, object map[string]any) string {
	for _, ref := range metadata.Owners(object) {
		beginning := metadata.Text(ref, "name") + "-"
		rest, ok := strings.CutPrefix(name, beginning)
		if ref["kind"] == "CronJob" && ok && strings.Trim(rest, "0123456789") == "" {
			return beginning
		}
	}
	return ""
}

// isGenerated reports whether the API server has made the end of a name: five letters or digits, none that could be
// read as another one or make a word. StatefulSets set generateName too, but name their pods themselves.
func isGenerated(suffix string) bool {
	return len(suffix) == 5 && strings.Trim(suffix, "bcdfghjklmnpqrstvwxz2456789") == ""
}

// Types lists the types of objects that the controllers under test take in, read or write, and that other runs should
// record, as resource keys of all their objects.
func Types(r *record.Run) []plan.ResourceKey {
	var all []plan.ResourceKey
	for _, e := range r.Events {
		if key, ok := TypeOf(e.Observation); ok && !slices.Contains(all, key) {
			all = append(all, key)
		}
	}
	// A deletion names only the resource of what is otherwise known by its kind.
	return slices.DeleteFunc(slices.Clone(all), func(key plan.ResourceKey) bool {
		return slices.ContainsFunc(all, func(o plan.ResourceKey) bool {
			return o.Group == key.Group && isResource(key.Type, o.Type)
		})
	})
}

// TypeOf is the type that an observation adds to Types, by its kind if that is known, otherwise by its resource; not
// ok: none. The observation may be nil.
func TypeOf(o *record.Observation) (key plan.ResourceKey, ok bool) {
	if o == nil || o.Kind == "" && o.Resource == "" || o.Election {
		return plan.ResourceKey{}, false
	}
	switch o.Point {
	case wire.ControllerRecv, wire.ControllerRead, wire.ControllerWrite:
	default:
		return plan.ResourceKey{}, false
	}
	key = plan.ResourceKey{Type: typeOf(o), Group: o.Group, Namespace: "*", Name: "*"}
	return key, Counts(key) && (o.Point == wire.ControllerWrite || !masksKind(key, unlessWritten))
}

// typeOf is the kind, or else the resource, of what an observation is about.
func typeOf(o *record.Observation) string { return strings.ToLower(cmp.Or(o.Kind, o.Resource)) }

// isResource reports whether a name is that of a kind's resource: as API conventions have it, the plural.
func isResource(name, kind string) bool {
	y, ok := strings.CutSuffix(kind, "y")
	return name == kind+"s" || name == kind+"es" || ok && name == y+"ies"
}

// Counts reports whether anything of a type's objects may count when runs are compared. Nothing of messages does, and
// of locks and what follows pods only what a controller under test writes. The type may be named by its resource.
func Counts(key plan.ResourceKey) bool {
	return !masksKind(key, func(reason string) bool { return !unlessWritten(reason) })
}

// masksKind reports whether a standard mask of such a reason masks a type completely.
func masksKind(key plan.ResourceKey, because func(reason string) bool) bool {
	kinds := []string{key.Type}
	for _, m := range standard {
		if kind, _, _ := strings.Cut(m.Type, "."); isResource(key.Type, kind) {
			kinds = append(kinds, kind)
		}
	}
	return slices.ContainsFunc(kinds, func(kind string) bool {
		key.Type = kind
		m := masks{standard}.on(Key(key.String()), []string{"kind"})
		return m != nil && because(m.Reason)
	})
}

// Reached lists, by controller under test, the points that it reached in a traced run, and by name the annotated calls.
func Reached(r *record.Run) map[string][]string {
	all := map[string][]string{}
	for _, e := range r.Events {
		o := e.Observation
		if o == nil || o.Point == wire.APIServerRecv {
			continue
		}
		name := PointName(o.Point, o.CallName)
		if at, found := slices.BinarySearch(all[o.By], name); !found {
			all[o.By] = slices.Insert(all[o.By], at, name)
		}
	}
	return all
}

// Calls counts, by controller under test and name, the annotated calls that returned in each traced run. Of each it has
// the number of the run with the fewest.
func Calls(runs []*record.Run) map[string]map[string]int {
	var least map[string]map[string]int
	for n, r := range runs {
		all := map[string]map[string]int{}
		for _, e := range r.Events {
			o := e.Observation
			if o == nil || o.Point != wire.AnnotatedCall || o.Phase != wire.After {
				continue
			}
			if all[o.By] == nil {
				all[o.By] = map[string]int{}
			}
			all[o.By][o.CallName]++
		}
		if n == 0 {
			least = all
			continue
		}
		for by, calls := range least {
			for name, count := range calls {
				calls[name] = min(count, all[by][name])
			}
		}
	}
	return least
}

// PointName names a point in Reached; call is the name of an annotated call.
func PointName(p wire.Point, call string) string {
	if p == wire.AnnotatedCall {
		return string(p) + " " + call
	}
	return string(p)
}
