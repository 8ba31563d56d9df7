package facts

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

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

// reads records a cached read: before it, the cluster is unknown.
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

// writes records a write that has an effect in a cluster. Before it, and if the answer has no object also after it, the
// cluster is unknown.
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
// the other. A write whose cluster is unknown is attributed if it can have been in one only.
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

// In an object of one cluster there may be the authority of another one.
func TestAuthoritiesOfClusters(t *testing.T) {
	n := newNames()
	for cluster, ca := range map[string]string{"east": "-- east's --", "west": "-- west's --"} {
		n.note(KeyIn(cluster, "configmap/default/kube-root-ca.crt"), map[string]any{
			"metadata": map[string]any{"name": "kube-root-ca.crt"}, "data": map[string]any{"ca.crt": ca + "\n"},
		})
	}
	got, _ := n.rewrite("east", "-- east's --\n-- west's --\n")
	if want := "(certificate of the cluster's authority)\n(certificate of west's authority)\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	encoded := base64.StdEncoding.EncodeToString([]byte("server: west, ca: -- west's --"))
	got, _ = n.rewrite("east", encoded)
	if want := "base64 of server: west, ca: (certificate of west's authority)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
