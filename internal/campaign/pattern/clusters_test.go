package pattern

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/testing/golden"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func suiteOfTwo(t *testing.T) *plan.Suite {
	t.Helper()
	file := filepath.Join(t.TempDir(), plan.SuiteFile)
	const text = `
clusters:
  east: {apiServers: 1, nodes: 0}
  west: {apiServers: 2, nodes: 0}
controllers:
- {name: op, cluster: east, kubeconfigs: {west: {}}, build: {dir: .}}
workloads: {w: [{sleep: 1s}]}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := plan.LoadSuite(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// copied is what the workload pin of examples/copy-operator does without faults: an object and its copy in another
// cluster have one name.
func copied() []facts.Change {
	const (
		original = facts.Key("east: configmap/default/settings")
		copied   = facts.Key("west: configmap/default/settings")
	)
	meta := func(fields object) object {
		all := object{"name": "settings", "namespace": "default"}
		for field, v := range fields {
			all[field] = v
		}
		return object{"metadata": all}
	}
	asks := meta(nil)
	claimed := meta(object{"finalizers": []any{"example.trommel.dev/copy"}})
	marked := meta(object{
		"finalizers": []any{"example.trommel.dev/copy"}, "deletionTimestamp": "2026-01-01T00:00:00Z",
	})
	pinned := meta(object{"annotations": object{"example.trommel.dev/pinned": "true"}})
	all := []facts.Change{
		change("", "", original, record.Created, nil, asks),
		sending(change("op", wire.Update, original, record.Updated, asks, claimed), "7"),
		change("op", wire.Create, copied, record.Created, nil, asks),
		change("", "", copied, record.Updated, asks, pinned),
		change("", "", original, record.Updated, claimed, marked),
		sending(change("op", wire.Update, original, record.Deleted, marked, nil), "9"),
		change("op", wire.Delete, copied, record.Deleted, pinned, nil),
	}
	for i := range all {
		all[i].Time = time.Unix(int64(i), 0)
		if all[i].By != "" {
			all[i].Read = []string{"configmap/default/settings", "west: configmap/default/settings"}
		}
	}
	all[1].Reconcile, all[2].Reconcile, all[5].Reconcile, all[6].Reconcile = "1", "1", "2", "2"
	return all
}

// Plans for a suite with two clusters name the cluster of what they wait for and act on.
func TestPlansOfSeveralClusters(t *testing.T) {
	suite, changes := suiteOfTwo(t), copied()
	var text bytes.Buffer
	for _, c := range Generate(suite, baselines(changes, changes)) {
		if c.Plan == nil {
			fmt.Fprintf(&text, "# %s: %s\n# dropped: %s\n", c.Pattern, c.Why, c.Dropped)
			continue
		}
		yaml, err := plan.Marshal(c.Plan)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "p.yaml")
		if err := os.WriteFile(file, yaml, 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := plan.LoadWith(file, suite)
		if err != nil {
			t.Fatalf("%v\n%s", err, yaml)
		}
		if same, err := plan.Marshal(again); err != nil || !bytes.Equal(yaml, same) {
			t.Errorf("written and read again, it is another plan: %v\n%s\n%s", err, yaml, same)
		}
		fmt.Fprintf(&text, "---\n%s", yaml)
	}
	golden.Compare(t, filepath.Join("testdata", "clusters.yaml"), text.Bytes())
}

// A read in one cluster is not a cause of what may follow from an object of that name in the other.
func TestCausesAcrossClusters(t *testing.T) {
	changes := copied()
	pin, last := &changes[3], &changes[5]
	for _, tt := range []struct {
		read []string
		want bool
	}{
		{nil, true},
		{[]string{"west: configmap/default/settings"}, true},
		{[]string{"west: configmap/default/*"}, true},
		{[]string{"configmap/default/settings"}, true}, // the cluster is unknown
		{[]string{"east: configmap/default/settings"}, false},
		{[]string{"west: configmap/other/settings"}, false},
	} {
		if last.Read = tt.read; last.MayFollowFrom(pin) != tt.want {
			t.Errorf("after reading %v, it may follow: %t", tt.read, !tt.want)
		}
	}
}

// A state of another cluster that is undone later is shown to a controller that is restarted: its connection to that
// cluster is moved, and that to its own cluster stays.
func TestPastOfAnotherCluster(t *testing.T) {
	const (
		flag = facts.Key("west: configmap/default/flag")
		made = facts.Key("east: configmap/default/made")
	)
	changes := []facts.Change{
		change("", "", flag, record.Created, nil, object{}),
		reading(change("op", wire.Create, made, record.Created, nil, object{}), string(flag)),
		change("", "", flag, record.Deleted, object{}, nil),
		reading(change("op", wire.Delete, made, record.Deleted, object{}, nil), string(flag)),
	}
	apart(changes)
	var got []string
	for _, c := range Generate(suiteOfTwo(t), baselines(changes, changes), "stale") {
		if c.Plan == nil {
			continue
		}
		for i := range c.Plan.Actions {
			a := &c.Plan.Actions[i]
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s in %s %s", a, a.Cluster, a.ReconnectAPIServer)))
		}
	}
	want := []string{
		"pauseAPIServer west/apiserver-2 in west", "reconnectController op in  west/apiserver-2",
		"resumeAPIServer west/apiserver-2 in west",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
