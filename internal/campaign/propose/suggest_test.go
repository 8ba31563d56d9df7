package propose

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
)

// A workload that waits for little gets a suggestion what it could wait for.
func TestSuggestWait(t *testing.T) {
	const (
		sample  = "database.example.com/default/db"
		created = "created " + sample + " {}"
		set     = "statefulset.apps/default/db"
	)
	key := plan.ResourceKey{Type: "database", Namespace: "default", Name: "db"}
	guessed := plan.Step{Wait: &plan.WaitStep{ResourceKey: key,
		Condition: "has(object.status) && size(object.status) > 0"}}
	for _, tt := range []struct {
		name  string
		steps []plan.Step
		runs  [][]string // what follows the sample's creation; "op " begins what the controllers write
		want  string
	}{
		{
			"the sample's status", []plan.Step{guessed},
			[][]string{{
				`op updated ` + sample + ` {"status": {"ready": 2, ` +
					`"conditions": [{"type": "Ready", "status": "True"}]}}`,
			}},
			`- {name: it is ready, wait: {resourceKey: database.example.com/default/db, condition: ` +
				`'object.status.ready == 2 && ` +
				`object.status.conditions.exists(c, c.type == "Ready" && c.status == "True")'}}`,
		},
		{
			"what differs between runs is left out", []plan.Step{{Sleep: 5}},
			[][]string{
				{`op updated ` + sample + ` {"status": {"ready": 2, "seen": 7}}`},
				{`op updated ` + sample + ` {"status": {"ready": 2, "seen": 8}}`},
			},
			`- {name: it is ready, wait: {resourceKey: database.example.com/default/db, ` +
				`condition: object.status.ready == 2}}`,
		},
		{
			"no status: the last of its children that has one", []plan.Step{{Sleep: 5}},
			[][]string{{
				`op created ` + set + ` {}`, `op created service/default/db {"status": {"loadBalancer": {}}}`,
				`updated ` + set + ` {"status": {"readyReplicas": 3}}`,
			}},
			`- {name: statefulset db is ready, wait: {resourceKey: statefulset.apps/default/db, ` +
				`condition: object.status.readyReplicas == 3}}`,
		},
		{
			"a status that tells of a failure: a child", []plan.Step{guessed},
			[][]string{{
				`op updated ` + sample + ` {"status": {"phase": "CreateFailed"}}`, `op created service/default/db {}`,
			}},
			`- {name: service db exists, wait: {resourceKey: service/default/db, condition: has(object.metadata)}}`,
		},
		{
			"a child that is gone at the end of one run", []plan.Step{guessed},
			[][]string{{`op created service/default/db {}`},
				{`op created service/default/db {}`, `op deleted service/default/db`}}, "",
		},
		{
			"it waits for something already",
			[]plan.Step{guessed, {Wait: &plan.WaitStep{ResourceKey: key, Condition: "object.status.ready == 2"}}},
			[][]string{{`op updated ` + sample + ` {"status": {"ready": 2}}`}}, "",
		},
		{
			"it waits for a child",
			[]plan.Step{{Sleep: 5}, {Wait: &plan.WaitStep{ResourceKey: plan.ResourceKey{Type: "service", Name: "db"},
				Condition: "has(object.metadata)"}}},
			[][]string{{`op updated ` + sample + ` {"status": {"ready": 2}}`}}, "",
		},
		{
			"it waits for nothing: its steps follow rest", nil,
			[][]string{{`op updated ` + sample + ` {"status": {"ready": 2}}`}}, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var runs [][]facts.Change
			for _, lines := range tt.runs {
				plain, ours := []string{created}, []bool{false}
				for _, line := range lines {
					line, by := strings.CutPrefix(line, "op ")
					plain, ours = append(plain, line), append(ours, by)
				}
				changes := history(t, plain...)
				for i := range changes {
					if ours[i] {
						changes[i].By = "op"
					}
				}
				runs = append(runs, changes)
			}
			got := ""
			if s := SuggestWait(tt.steps, runs...); s != nil {
				var err error
				if got, err = StepText(s); err != nil {
					t.Fatal(err)
				}
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if got == "" {
				return
			}
			suite := "controllers: [{name: op, build: {dir: .}}]\nworkloads:\n  w:\n  " + got + "\n"
			if _, err := plan.ParseSuite([]byte(suite), "trommel.yaml"); err != nil {
				t.Errorf("it cannot be pasted: %v", err)
			}
		})
	}
	if SuggestWait([]plan.Step{{Sleep: 5}}, history(t, "created configmap/default/a {}")) != nil {
		t.Error("a workload without a custom resource")
	}
}

// A pod that no node takes is the sample's fault: simulated nodes have no labels or devices of special machines.
func TestTroubleOfPod(t *testing.T) {
	const pod = "pod/default/db-0"
	changes := func(condition string) []facts.Change {
		return history(t, "created database.example.com/default/db {}", "created "+pod+" {}",
			`updated `+pod+` {"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", `+condition+`}]}}`)
	}
	pending := changes(`"status": "False", "message": "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."`)
	want := pod + " ended without a node: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
	if got := Trouble(pending, pending); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	placed := changes(`"status": "True"`)
	gone := append(changes(`"status": "False"`), history(t, "created "+pod+" {}", "deleted "+pod)...)
	for _, runs := range [][][]facts.Change{{placed, pending}, {pending, placed}, {pending, gone}} {
		if got := Trouble(runs...); got != "" {
			t.Errorf("it is not so in all runs, and yet: %q", got)
		}
	}
}

// Pods without a service account are never created.
func TestTroubleOfPodsThatAreNotThere(t *testing.T) {
	const set = "statefulset.apps/default/db"
	changes := func(replicas int, set, status string) []facts.Change {
		return history(t, "created database.example.com/default/db {}", fmt.Sprintf(`created %s {"spec": {`+
			`"replicas": %d, "template": {"spec": {"serviceAccountName": "db"}}}, "status": {%s}}`,
			set, replicas, status))
	}
	const seen = `"observedGeneration": 1, "replicas": 0`
	want := set + ` ended without a pod (is there a service account "db"?)`
	if got := Trouble(changes(2, set, seen), changes(1, set, seen)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, other := range [][]facts.Change{
		changes(0, set, seen), changes(2, set, `"observedGeneration": 1, "replicas": 1`), changes(2, set, ""),
		changes(2, "deployment.apps/default/db", seen),
	} {
		if got := Trouble(changes(2, set, seen), other); got != "" {
			t.Errorf("it is not so in all runs, and yet: %q", got)
		}
	}
}

// Learning says what is wrong with a sample: little can be shown with one that its controller rejects.
func TestTrouble(t *testing.T) {
	const sample = "database.example.com/default/db"
	for _, tt := range []struct {
		name, status string
		want         string // after the name of the sample
	}{
		{"a condition", `{"phase": "Degraded", "conditions": [` +
			`{"type": "Ready", "status": "Unknown"},` +
			`{"type": "InvalidSpec", "status": "True", "message": "service \"a\" not found\nmore"}]}`,
			`condition InvalidSpec=True: service "a" not found`},
		{"what must hold does not", `{"conditions": [{"type": "Available", "status": "False"}]}`,
			"condition Available=False"},
		{"why, in one word", `{"conditions": [{"type": "Available", "status": "False", "reason": "NoPodReady"}]}`,
			"condition Available=False (NoPodReady)"},
		{"a word for the state", `{"phase": "CreateFailed"}`, "status.phase CreateFailed"},
		{"conditions that say that nothing is wrong", `{"phase": "Running", "conditions": [` +
			`{"type": "Failed", "status": "False"}, {"type": "Ready", "status": "True"}]}`, ""},
		{"it is not done yet", `{"phase": "Pending", "conditions": [{"type": "Progressing", "status": "False"}]}`, ""},
		{"no status", `null`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changes := history(t, "created "+sample+" {}", `updated `+sample+` {"status": `+tt.status+`}`)
			want := tt.want
			if want != "" {
				want = sample + " ended with " + want
			}
			if got := Trouble(changes, changes); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			gone := append(slices.Clone(changes), history(t, "created "+sample+" {}", "deleted "+sample)...)
			if got := Trouble(changes, gone); got != "" {
				t.Errorf("it is gone at the end of a run, and yet: %q", got)
			}
		})
	}
}
