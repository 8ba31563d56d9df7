package baseline_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/cel"
	"github.com/trommel-dev/trommel/internal/facts"
)

// An invariant that is derived from a difference does not hold in the run with the difference, and holds in the one
// without.
func TestInvariant(t *testing.T) {
	const owned = `"ownerReferences": [{"controller": true, "uid": "u", "kind": "Database", "apiVersion": "e.com/v1"}]`
	without := []string{
		`created database/default/db {"metadata": {"uid": "u"}, "spec": {"size": 1}}`,
		`db: created secret/default/db {"data": {"user": "u"}, "status": {` +
			`"conditions": [{"type": "Ready", "status": "True"}], "names": ["a", "b"], "in": {"x.y/z": 2}}}`,
		`db: created pod/default/old {}`, `db: deleted pod/default/old {}`,
		`db: created set/default/db {"metadata": {` + owned + `}}`,
	}
	ref := baseline.LearnStories(t, baseline.Story(t, without...), baseline.Story(t, without...))
	change := func(i int, line ...string) []string { return slices.Concat(without[:i], line, without[i+1:]) }
	secret := func(data, status string) []string {
		return change(1, `created secret/default/db {"data": `+data+`, "status": `+status+`}`)
	}
	const status = `{"conditions": [{"type": "Ready", "status": "True"}], "names": ["a", "b"], "in": {"x.y/z": 2}}`
	const is = `o.kind == "Secret" && o.metadata.namespace == "default" && o.metadata.name == "db"`
	for _, tt := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"never created", change(1), `objects.exists(o, ` + is + `)`},
		{"kept", change(3),
			`!objects.exists(o, o.kind == "Pod" && o.metadata.namespace == "default" && o.metadata.name == "old")`},
		{"another value", secret(`{"user": "x\"y"}`, status),
			`objects.exists(o, ` + is + ` && has(o.data) && has(o.data.user) && o.data.user == "u")`},
		{"a value is missing", secret(`{}`, status),
			`objects.exists(o, ` + is + ` && has(o.data) && has(o.data.user) && o.data.user == "u")`},
		{"a value too many", secret(`{"user": "u", "more": true}`, status),
			`objects.exists(o, ` + is + ` && !(has(o.data) && has(o.data.more)))`},
		{"a named item", secret(`{"user": "u"}`,
			`{"conditions": [{"type": "Ready", "status": "False"}], "names": ["a", "b"], "in": {"x.y/z": 2}}`),
			`objects.exists(o, ` + is + ` && has(o.status) && has(o.status.conditions) && ` +
				`o.status.conditions.exists(x1, has(x1.type) && x1.type == "Ready" && ` +
				`has(x1.status) && x1.status == "True"))`},
		{"an item", secret(`{"user": "u"}`,
			`{"conditions": [{"type": "Ready", "status": "True"}], "names": ["a"], "in": {"x.y/z": 2}}`),
			`objects.exists(o, ` + is + ` && has(o.status) && has(o.status.names) && size(o.status.names) > 1 && ` +
				`o.status.names[1] == "b")`},
		{"a number, and names that CEL has no dots for", secret(`{"user": "u"}`,
			`{"conditions": [{"type": "Ready", "status": "True"}], "names": ["a", "b"], "in": {"x.y/z": 3}}`),
			`objects.exists(o, ` + is + ` && has(o.status) && "in" in o.status && "x.y/z" in o.status["in"] && ` +
				`o.status["in"]["x.y/z"] == 2)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := baseline.Story(t, tt.lines...)
			changes, err := facts.Changes(r)
			if err != nil {
				t.Fatal(err)
			}
			differ := ref.Compare(facts.Objects(changes))
			if len(differ) == 0 {
				t.Fatal("nothing differs")
			}
			i, recorded := findings.Invariant(ref, differ[0], changes)
			if i == nil {
				t.Fatalf("none for %v", differ[0])
			}
			if i.Eventually != tt.want {
				t.Errorf("got\n%s\nwant\n%s", i.Eventually, tt.want)
			}
			if len(recorded) != 1 || recorded[0].Name != "*" {
				t.Errorf("recorded: %v", recorded)
			}
			e, err := cel.Objects.Compile(i.Eventually)
			if err != nil {
				t.Fatal(err)
			}
			for _, run := range []struct {
				lines []string
				want  bool
			}{{tt.lines, false}, {without, true}} {
				changes, err := facts.Changes(baseline.Story(t, run.lines...))
				if err != nil {
					t.Fatal(err)
				}
				var objects []any
				for _, o := range facts.Objects(changes) {
					if o.End != nil {
						objects = append(objects, o.End)
					}
				}
				// Reading what is missing counts as false, as it does in a run.
				if holds, _ := e.Holds(map[string]any{"objects": objects}); holds != run.want {
					t.Errorf("holds: %t, want %t", holds, run.want)
				}
			}
		})
	}
	// An object that is made again although its owner lives.
	again := slices.Concat(without, []string{
		`db: deleted set/default/db {"metadata": {` + owned + `}}`,
		`db: created set/default/db {"metadata": {` + owned + `}}`,
	})
	changes, err := facts.Changes(baseline.Story(t, again...))
	if err != nil {
		t.Fatal(err)
	}
	differ := ref.Compare(facts.Objects(changes))
	if len(differ) != 1 {
		t.Fatalf("differences: %v", differ)
	}
	i, recorded := findings.Invariant(ref, differ[0], changes)
	if i == nil || i.On.String() != "set/default/db" || len(recorded) != 2 ||
		recorded[1].String() != "database.e.com/*/*" {
		t.Fatalf("%v, %v", i, recorded)
	}
	e, err := cel.History.Compile(i.Never)
	if err != nil {
		t.Fatal(err)
	}
	less := baseline.Difference{Key: "set/default/db", Count: true,
		Want: facts.Existence{Count: true, Made: 2, MostMade: 2},
		Got:  facts.Existence{Count: true, Made: 1, MostMade: 1}}
	if i, _ := findings.Invariant(ref, less, changes); i != nil {
		t.Errorf("an object that was created less often: %v", i)
	}
	less = baseline.Difference{Key: "set/default/db", Count: true,
		Want: facts.Existence{Count: true, Made: 2, MostMade: 3},
		Got:  facts.Existence{Count: true, Made: 1, MostMade: 1}}
	if i, _ := findings.Invariant(ref, less, changes); i != nil {
		t.Errorf("an object that was created less often than ever: %v", i)
	}
	generated := baseline.Difference{
		Key: "pod/default/web-#1", Want: facts.Existence{There: true, Made: 1, MostMade: 1},
		Got: facts.Existence{}}
	if i, _ := findings.Invariant(ref, generated, changes); i != nil {
		t.Errorf("a generated name: %v", i)
	}
	deleted := changes[len(changes)-2]
	for _, tt := range []struct {
		owner map[string]any
		want  bool
	}{
		{map[string]any{"metadata": map[string]any{"uid": "u"}}, true},
		{map[string]any{"metadata": map[string]any{"uid": "u", "deletionTimestamp": "now"}}, false},
		{map[string]any{"metadata": map[string]any{"uid": "another"}}, false},
	} {
		holds, err := e.Holds(map[string]any{
			"object": deleted.Prev, "oldObject": nil, "event": "deleted", "objects": []any{tt.owner},
		})
		if err != nil || holds != tt.want {
			t.Errorf("owner %v: %t, %v", tt.owner, holds, err)
		}
	}
}

// The invariant about an object of one of several clusters names the cluster, and not in its condition.
func TestInvariantOfACluster(t *testing.T) {
	object := map[string]any{"kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "default"}}
	const key = "west: configmap/default/a"
	ref := &baseline.Baseline{
		Objects: map[facts.Key]*facts.Object{key: {End: object}}, Changes: []facts.Change{{Key: key, Cur: object}},
	}
	missing := baseline.Difference{Key: key, Want: facts.Existence{There: true, Made: 1, MostMade: 1}}
	if i, _ := findings.Invariant(ref, missing, nil); i == nil ||
		i.Cluster != "west" || strings.Contains(i.Eventually, "west") {
		t.Errorf("invariant %v", i)
	}
}
