package invariant

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trommel-dev/trommel/internal/cel"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// history parses lines of "event type/namespace/name object"; resource versions count from 1.
func history(t *testing.T, lines string) []record.HistoryEntry {
	t.Helper()
	var all []record.HistoryEntry
	for i, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		key, err := plan.ParseResourceKey(f[1])
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid([]byte(f[2])) {
			t.Fatalf("line %d: not JSON: %s", i+1, f[2])
		}
		all = append(all, record.HistoryEntry{
			Time: time.Unix(int64(i), 0), ResourceVersion: uint64(i + 1), Event: f[0], Type: key.Type, Group: key.Group,
			Namespace: key.Namespace, Name: key.Name, Object: json.RawMessage(f[2]),
		})
	}
	return all
}

const threeEvents = `
	existing database/default/old {"kind": "Database", "spec": {"replicas": 1}}
	created database/default/db {"kind": "Database", "spec": {"replicas": 1}}
	created statefulset.apps/default/db {"kind": "StatefulSet", "spec": {"replicas": 1}}
	updated database/default/db {"kind": "Database", "spec": {"replicas": 3}, "status": {"phase": "Ready"}}
	updated statefulset.apps/default/db {"kind": "StatefulSet", "spec": {"replicas": 3}}
	deleted database/default/db {"kind": "Database", "spec": {"replicas": 3}, "status": {"phase": "Ready"}}
`

func TestCheck(t *testing.T) {
	database := &plan.ResourceKey{Type: "database", Namespace: "*", Name: "*"}
	sets := &plan.ResourceKey{Type: "statefulset", Namespace: "default", Name: "d*"}
	for _, test := range []struct {
		name      string
		invariant plan.Invariant
		want      []string // judge, subject, resource version's time: title
		detail    string
	}{
		{"never, not met", plan.Invariant{On: database, Never: "object.spec.replicas > 3"}, nil, ""},
		{
			"never, met on an update", plan.Invariant{On: database, Never: "object.spec.replicas > 1",
				Message: "too many"},
			[]string{"invariant database/default/db 3: invariant i: too many"},
			"database/default/db was updated at resource version 4\nnever: object.spec.replicas > 1\nand 1 more times",
		},
		{
			"the old object", plan.Invariant{On: sets,
				Never:   `event == "updated" && object.spec.replicas > oldObject.spec.replicas`,
				Message: `string(oldObject.spec.replicas) + " -> " + string(object.spec.replicas)`},
			[]string{"invariant statefulset/default/db 4: invariant i: 1 -> 3"}, "",
		},
		{"a creation has no old object", plan.Invariant{On: database, Never: `event == "created" && oldObject != null`},
			nil, ""},
		{
			"a deletion has its last state and its old one",
			plan.Invariant{On: database,
				Never: `event == "deleted" && object.spec.replicas == 3 && oldObject.spec.replicas == 3`},
			[]string{"invariant database/default/db 5: invariant i: violated when database/default/db was deleted"},
			"",
		},
		{
			"objects as of after the event",
			plan.Invariant{On: database,
				Never: `event == "deleted" && objects.exists(o, o.kind == "StatefulSet") && objects.filter(o, ` +
					`o.kind == "Database").size() == 1`},
			[]string{"invariant database/default/db 5: invariant i: violated when database/default/db was deleted"},
			"",
		},
		{"always, holds", plan.Invariant{On: sets, Always: "object.spec.replicas >= 1"}, nil, ""},
		{
			"always, broken", plan.Invariant{On: sets, Always: "object.spec.replicas == 1"},
			[]string{"invariant statefulset/default/db 4: invariant i: violated when statefulset/default/db " +
				"was updated"}, "resource version 5\nalways: object.spec.replicas == 1",
		},
		{"an object that existed before is not an event",
			plan.Invariant{On: &plan.ResourceKey{Type: "database", Namespace: "default", Name: "old"}, Never: "true"},
			nil, ""},
		{"another group",
			plan.Invariant{On: &plan.ResourceKey{Type: "statefulset", Group: "other.io", Namespace: "*", Name: "*"},
				Never: "true"}, nil, ""},
		{
			"without on, it applies to all objects",
			plan.Invariant{Never: "object != null || oldObject != null || objects.size() == 3"},
			[]string{"invariant statefulset/default/db 2: invariant i: violated when statefulset/default/db " +
				"was created"}, "and 2 more times",
		},
		{"a field that is missing in some states",
			plan.Invariant{On: database, Never: `object.status.phase == "Failed"`},
			[]string{"invariant error i -62135596800: invariant i could not be evaluated on 1 of 3 events: " +
				"no such key: status"}, "first on database/default/db\nnever: object.status"},
		{
			"a field that is missing in some states, always",
			plan.Invariant{On: database, Always: `object.status.phase == "Failed"`},
			[]string{"invariant database/default/db 3: invariant i: violated when database/default/db " +
				"was updated", "invariant error i -62135596800: invariant i could not be evaluated on 1 of 3 events: " +
				"no such key: status"}, "",
		},
		{
			"a field that is missing all the time", plan.Invariant{On: database, Never: "object.spec.replica > 1"},
			[]string{"invariant error i -62135596800: invariant i could never be evaluated: no such key: replica"},
			"it failed on all of 3 events, first on database/default/db\nnever: object.spec.replica > 1\nif a field " +
				"may be missing, use has(object.a.b) or object.?a.?b.orValue(…)",
		},
		{
			"a message that fails", plan.Invariant{On: sets, Always: "object.spec.replicas == 1",
				Message: "object.metadata.name"},
			[]string{"invariant statefulset/default/db 4: invariant i: object.metadata.name (its message failed: no " +
				"such key: metadata)"}, "",
		},
		{"eventually is not for Check", plan.Invariant{Eventually: "false"}, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.invariant.Name = "i"
			compiled, err := Compile([]plan.Invariant{test.invariant})
			if err != nil {
				t.Fatal(err)
			}
			findings := compiled.Check(history(t, threeEvents))
			var got []string
			for _, f := range findings {
				got = append(got, fmt.Sprintf("%s %s %d: %s", f.Judge, f.Subject, f.Time.Unix(), f.Title))
			}
			if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			if test.detail != "" && len(findings) > 0 && !strings.Contains(findings[0].Detail, test.detail) {
				t.Errorf("detail\n%s\nwant\n%s", findings[0].Detail, test.detail)
			}
		})
	}
}

func TestCheckLimitsFindings(t *testing.T) {
	compiled, err := Compile([]plan.Invariant{{Name: "i", On: &plan.ResourceKey{Type: "pod", Namespace: "*", Name: "*"},
		Never: "true"}})
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for i := range 3 * maxObjects {
		fmt.Fprintf(&lines, "created pod/default/p%d {}\n", i)
	}
	if got := len(compiled.Check(history(t, lines.String()))); got != maxObjects {
		t.Errorf("%d findings", got)
	}
}

func TestCompile(t *testing.T) {
	_, err := Compile([]plan.Invariant{
		{Name: "a", Never: "object.x =="},
		{Name: "b", Always: "true", Message: "It's plain text"},
		{Name: "c", Eventually: "object.x"},
		{Name: "d"},
	})
	var list interface{ Unwrap() []error }
	if !errors.As(err, &list) {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list.Unwrap() {
		var c *CompileError
		if !errors.As(e, &c) {
			t.Fatalf("%T", e)
		}
		got = append(got, fmt.Sprintf("%s %s %d", c.Invariant, c.Field, c.Offset))
	}
	if want := "a never 11, c eventually 0, d never 0"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	const want = `invariant "c": eventually: column 1: undeclared reference to 'object' (in container '')`
	if !strings.Contains(err.Error(), want) {
		t.Errorf("got %s", err)
	}
}

// The expressions in the examples compile in the environment that evaluates them.
func TestExamplesCompile(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*/trommel.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		s, err := plan.LoadSuite(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := Compile(s.Invariants); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for name, w := range s.Workloads {
			for _, step := range w.Steps {
				if step.Wait == nil || step.Wait.Condition == "" {
					continue
				}
				if _, err := cel.Object.Compile(step.Wait.Condition); err != nil {
					t.Errorf("%s: workload %s: %s: %v", file, name, step.Wait.Condition, err)
				}
			}
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	compiled, err := Compile([]plan.Invariant{{Name: "i", On: &plan.ResourceKey{Type: "pod", Namespace: "*", Name: "*"},
		Never: `objects.exists(o, o.kind == "x")`}})
	if err != nil {
		b.Fatal(err)
	}
	var all []record.HistoryEntry
	for i := range 1000 {
		all = append(all, record.HistoryEntry{Event: record.Created, Type: "pod", Name: fmt.Sprint(i % 100),
			Object: json.RawMessage(`{"kind": "Pod", "spec": {"a": 1}}`)})
	}
	for b.Loop() {
		compiled.Check(all)
	}
}
