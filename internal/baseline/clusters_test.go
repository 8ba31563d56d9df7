package baseline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

func TestKeysOfClusters(t *testing.T) {
	for _, tt := range []struct {
		key                        Key
		cluster, local, typ, group string
	}{
		{"pod/default/a-1", "", "pod/default/a-1", "pod", "pod/default/a-*"},
		{"west: set.apps/default/a-1", "west", "set.apps/default/a-1", "set.apps", "west: set.apps/default/a-*"},
		{"clusterrole.rbac.authorization.k8s.io//system:node", "", "clusterrole.rbac.authorization.k8s.io//system:node",
			"clusterrole.rbac.authorization.k8s.io", "clusterrole.rbac.authorization.k8s.io//system:node"},
		{"role.rbac.authorization.k8s.io/a/b: c", "", "role.rbac.authorization.k8s.io/a/b: c",
			"role.rbac.authorization.k8s.io", "role.rbac.authorization.k8s.io/a/b: c"},
		{"west: node//n", "west", "node//n", "node", "west: node//n"},
	} {
		got := []string{tt.key.Cluster(), tt.key.Local(), tt.key.Type(), string(tt.key.Group())}
		if diff := cmp.Diff([]string{tt.cluster, tt.local, tt.typ, tt.group}, got); diff != "" {
			t.Errorf("%s: %s", tt.key, diff)
		}
		if again := KeyIn(tt.cluster, tt.local); again != tt.key {
			t.Errorf("%s, want %s", again, tt.key)
		}
	}
}

// fleet is a recorded run in two clusters in the making. Each step takes a second.
type fleet struct {
	run      record.Run
	now      int64
	versions map[string]uint64
	calls    uint64
}

func newFleet() *fleet { return &fleet{versions: map[string]uint64{"west": 1_000_000_000_000}} }

func (f *fleet) see(o record.Observation) {
	f.now++
	o.By, o.Session, o.Kind, o.Resource, o.Namespace, o.Name = "op", 1, "configmap", "configmaps", "default", "a"
	f.run.Events = append(f.run.Events, record.Event{Time: time.Unix(f.now, 0), Observation: &o})
}

// becomes records a state of the object "a" in a cluster.
func (f *fleet) becomes(cluster, event, color string) json.RawMessage {
	f.now++
	f.versions[cluster]++
	object := json.RawMessage(fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a",
		"namespace": "default", "uid": %q, "resourceVersion": "%d"}, "data": {"color": %q}}`, "of "+cluster,
		f.versions[cluster], color))
	f.run.History = append(f.run.History, record.HistoryEntry{
		Time: time.Unix(f.now, 0), ResourceVersion: f.versions[cluster], Event: event, Cluster: cluster,
		Type: "configmap", Namespace: "default", Name: "a", Object: object,
	})
	return object
}

// reads records a cached read: before it, nobody knows the cluster.
func (f *fleet) reads(cluster, reconcile string) {
	f.calls++
	o := record.Observation{
		Call: f.calls, Point: wire.ControllerRead, Op: wire.Get, Phase: wire.Before, ReconcileID: reconcile,
		Request: "default/a", Cluster: record.UnknownCluster,
	}
	f.see(o)
	o.Phase, o.Cluster = wire.After, cluster
	f.see(o)
}

// writes records a write that has an effect in a cluster. Before it, and if the answer has no object also after it,
// nobody knows the cluster.
func (f *fleet) writes(op wire.Operation, in, reconcile string, effect func() json.RawMessage) {
	f.calls++
	o := record.Observation{
		Call: f.calls, Point: wire.ControllerWrite, Op: op, Phase: wire.Before, ReconcileID: reconcile,
		Request: "default/a", Cluster: record.UnknownCluster,
	}
	f.see(o)
	answer := effect()
	if o.Phase = wire.After; op != wire.Delete {
		o.Object, o.Cluster = answer, in
	}
	f.see(o)
}

func pairs(r *record.Run, t *testing.T) (all []string) {
	t.Helper()
	changes, err := Changes(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.Key, c.Event, c.By,
			strings.Join(c.Read, ", "))))
	}
	return all
}

// Resource versions of clusters are far apart: what was seen in the one with the greater ones says nothing of writes in
// the other. What nobody knows the cluster of is attributed if it can have been in one only.
func TestWritesInSeveralClusters(t *testing.T) {
	f := newFleet()
	f.becomes("east", record.Created, "blue")
	f.reads("east", "1")
	f.writes(wire.Create, "west", "1", func() json.RawMessage { return f.becomes("west", record.Created, "blue") })
	f.see(record.Observation{Point: wire.ControllerRecv, Phase: wire.After, Op: wire.Create, Cluster: "west",
		Object: f.run.History[1].Object})
	f.writes(wire.Update, "east", "1", func() json.RawMessage { return f.becomes("east", record.Updated, "red") })
	f.reads("west", "2")
	f.writes(wire.Delete, "west", "2", func() json.RawMessage { return f.becomes("west", record.Deleted, "blue") })
	f.becomes("west", record.Created, "green")
	f.writes(wire.Delete, "west", "3", func() json.RawMessage {
		f.becomes("east", record.Deleted, "red")
		return f.becomes("west", record.Deleted, "green")
	})
	want := []string{
		"east: configmap/default/a created",
		"west: configmap/default/a created op east: configmap/default/a",
		"east: configmap/default/a updated op east: configmap/default/a",
		"west: configmap/default/a deleted op east: configmap/default/a, west: configmap/default/a",
		"west: configmap/default/a created",
		"east: configmap/default/a deleted", // either of these
		"west: configmap/default/a deleted",
	}
	if diff := cmp.Diff(want, pairs(&f.run, t)); diff != "" {
		t.Error(diff)
	}
}

// An address in two clusters is of an object in each.
func TestAddressesOfClusters(t *testing.T) {
	n := newNames()
	for _, key := range []Key{"east: pod/default/a", "west: pod/default/b"} {
		n.note(key, map[string]any{"status": map[string]any{"podIP": "10.0.0.1"}})
	}
	for cluster, want := range map[string]string{
		"east": "at (address of east: pod/default/a)", "west": "at (address of west: pod/default/b)",
		"north": "at 10.0.0.1",
	} {
		if got, _ := n.rewrite(cluster, "at 10.0.0.1"); got != want {
			t.Errorf("in %s: %s, want %s", cluster, got, want)
		}
	}
}

// Objects of one name in two clusters are compared each with its own.
func TestCompareSeveralClusters(t *testing.T) {
	run := func(east, west string) *record.Run {
		f := newFleet()
		f.becomes("east", record.Created, east)
		f.becomes("west", record.Created, west)
		return &f.run
	}
	ref, err := Learn("w", []*record.Run{run("blue", "red"), run("blue", "red")})
	if err != nil {
		t.Fatal(err)
	}
	if len(ref.Objects) != 2 || len(ref.Found) != 0 {
		t.Errorf("%d objects, found %v", len(ref.Objects), ref.Found)
	}
	differ := func(ref *Baseline, r *record.Run) (all []string) {
		end, err := Follow(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ref.Compare(end.Objects()) {
			all = append(all, d.String())
		}
		return all
	}
	if got := differ(ref, run("blue", "red")); got != nil {
		t.Error(got)
	}
	want := []string{
		`east: configmap/default/a: data.color is "red"; without faults: "blue"`,
		`west: configmap/default/a: data.color is "blue"; without faults: "red"`,
	}
	if diff := cmp.Diff(want, differ(ref, run("red", "blue"))); diff != "" {
		t.Error(diff)
	}
	// What differs in one cluster without faults counts in the other.
	if ref, err = Learn("w", []*record.Run{run("blue", "red"), run("blue", "green")}); err != nil {
		t.Fatal(err)
	}
	if len(ref.Found) != 1 || ref.Found[0].Object != "west: configmap/default/a" {
		t.Errorf("found %v", ref.Found)
	}
	if diff := cmp.Diff(want[:1], differ(ref, run("red", "blue"))); diff != "" {
		t.Error(diff)
	}
	missing := Difference{Key: "west: configmap/default/a", Want: Existence{There: true, Made: 1, MostMade: 1}}
	if i, _ := ref.Invariant(missing, nil); i == nil ||
		i.Cluster != "west" || strings.Contains(i.Eventually, "west") {
		t.Errorf("invariant %v", i)
	}
	if !slices.Contains(ref.MaskEntries(), MaskEntry{
		Object: "west: configmap/default/a", Path: "data.color", Reason: Differs, Value: true,
	}) {
		t.Error("no mask for the object in west")
	}
}
