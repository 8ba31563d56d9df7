package pattern

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/testing/golden"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// suiteFrom is a suite with this text.
func suiteFrom(t *testing.T, text string) *plan.Suite {
	t.Helper()
	file := filepath.Join(t.TempDir(), plan.SuiteFile)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := plan.LoadSuite(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The plans of all patterns, their order, and the reasons why there are none stay as they are, byte for byte.
func TestAllPlans(t *testing.T) {
	const text = `
cluster: {apiServers: 2}
controllers: [{name: op, build: {dir: .}, annotatedCalls: [{name: backup, package: example.com/op, function: backup}]}]
builds: {old: {}}
workloads: {w: [{sleep: 1s}, {sleep: 10s}, {advanceTime: 24h}, {sleep: 10s}, {advanceTime: 24h}]}
`
	s := suiteFrom(t, text)
	names := make([]string, 0, len(Patterns()))
	for _, p := range Patterns() {
		names = append(names, p.Name)
	}
	database := facts.Key("database.example.com/default/db")
	asked := func(replicas int) object {
		o := spec(replicas)
		o["apiVersion"], o["kind"] = "example.com/v1", "Database"
		o["metadata"] = object{"name": "db", "namespace": "default"}
		return o
	}
	token := func(from, to string) facts.Change {
		return change("op", wire.Update, key, record.Updated, object{"data": object{"token": from}},
			object{"data": object{"token": to}})
	}
	recreated := func(first, second string) []facts.Change {
		pod := change("op", wire.Create, "pod/default/db-#1", record.Created, nil, object{
			"metadata": object{"name": "db-" + first, "generateName": "db-"},
		})
		pod.Generated = true
		all := []facts.Change{
			change("", "", database, record.Created, nil, asked(2)),
			sending(change("op", wire.Update, database, record.Updated, asked(2), finalized(asked(2))), "7"),
			change("op", wire.Create, set, record.Created, nil, spec(2)),
			change("op", wire.Create, key, record.Created, nil, object{"data": object{"token": first}}),
			pod,
			change("", "", database, record.Updated, asked(2), asked(1)),
			sending(change("op", wire.Update, set, record.Updated, spec(2), spec(1)), "8"),
			change("op", wire.Update, database, record.Updated, ready(1, 1), ready(1, 2)),
			change("", "", database, record.Updated, asked(1), asked(2)),
			sending(change("op", wire.Update, set, record.Updated, spec(1), spec(2)), "9"),
			change("", "", database, record.Updated, asked(2), marked(asked(2))),
			change("op", wire.Delete, key, record.Deleted, object{"data": object{"token": first}}, nil),
			change("op", wire.Update, database, record.Deleted, marked(asked(2)), nil),
			change("", "", database, record.Created, nil, asked(2)),
			change("op", wire.Create, key, record.Created, nil, object{"data": object{"token": second}}),
		}
		for i := range all {
			all[i] = at(time.Duration(i)*300*time.Millisecond, all[i])
			all[i].Reconcile = fmt.Sprint(i / 3)
		}
		return append(all, at(24*time.Hour+11*time.Second, token(first, second)),
			at(48*time.Hour+20*time.Second, token(second, first)))
	}
	began := []time.Duration{
		0, time.Second, 11*time.Second - 1, 24*time.Hour + 11*time.Second + 1, 48*time.Hour + 20*time.Second - 1,
	}
	whole := timed(48*time.Hour+20*time.Second, began, recreated("a", "b"), recreated("c", "d"))
	whole.Controllers, whole.Replicas = []string{"op"}, map[string]int{"op": 2}
	whole.Leases = map[string][]string{"op": {opLease}}
	whole.Calls = map[string]map[string]int{"op": {"backup": 2}}
	whole.Failing = map[string][]string{"op": {"backup"}}
	run := traced(t, 150)
	learned, err := baseline.Learn("w", []*record.Run{run, run, run})
	if err != nil {
		t.Fatal(err)
	}
	deleting := suiteFrom(t, `
controllers: [{name: op, build: {dir: .}}]
workloads: {w: [{delete: pod/default/a}, {delete: pod/default/b}, {delete: pod/default/c}, {delete: pod/default/d}]}
`)
	steps := timed(5*time.Second, []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second},
		recreated("a", "b")[:15], recreated("c", "d")[:15])
	steps.Virtual = false
	var out bytes.Buffer
	for _, tt := range []struct {
		name       string
		candidates []Candidate
	}{
		{"each pattern", Generate(s, whole, names...)},
		{"steps of its own", GenerateFor(s, s.Workloads["w"].Steps, whole)},
		{"users' steps", Generate(deleting, steps)},
		{"harmless", Harmless(s, nil, whole)},
		{"upgrade", Upgrades(s, Upgrade, "old", "", whole)},
		{"rollback", Upgrades(s, Rollback, "", "old", whole)},
		{"two clusters", Generate(suiteOfTwo(t), baselines(copied(), copied()), names...)},
		{"a learned baseline", Generate(s, learned, names...)},
	} {
		fmt.Fprintf(&out, "== %s\n", tt.name)
		for _, c := range tt.candidates {
			if c.Plan == nil {
				fmt.Fprintf(&out, "%s, %s, %s: %s\n", c.Pattern, c.Signature, c.Why, c.Dropped)
				continue
			}
			yaml, err := plan.Marshal(c.Plan)
			if err != nil {
				t.Fatal(err)
			}
			hash := sha256.Sum256(yaml)
			fmt.Fprintf(&out, "%s, %s: %x %s\n", c.Plan.TestName, c.Signature, hash[:6], c.again)
		}
	}
	golden.Compare(t, filepath.Join("testdata", "all.golden"), out.Bytes())
}
