package run_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

const thing = "thing.made.example.com"

// TestTypeServedDuringTheRun runs an operator that defines types while it runs: their history begins and ends with
// them, a plan can wait for what happens to their objects, and the next run on the same cluster begins without them.
func TestTypeServedDuringTheRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	var e example
	var s *run.Session
	things := func(r *record.Run) (states []string) {
		for _, h := range r.History {
			if h.Type != "thing" {
				continue
			}
			var o struct{ Spec struct{ Size string } }
			if err := json.Unmarshal(h.Object, &o); err != nil {
				t.Fatal(err)
			}
			states = append(states, fmt.Sprintf("%s %s %s", h.Name, h.Event, o.Spec.Size))
		}
		slices.Sort(states) // the operator makes them one after the other; the test is about none being lost
		return states
	}
	parse := func(text string) plan.ResourceKey {
		key, err := plan.ParseResourceKey(text)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	key, zebra := parse(thing+"/*/*"), parse("zebra.made.example.com/*/*")
	for _, tt := range []struct {
		suite   string // empty: that of the row before, on the same cluster
		name    string
		plan    string
		options run.RunOptions
		want    []string
		actions int
		finding string // why the run is inconclusive; empty: it passes
	}{
		{
			suite: "trommel.yaml", name: "all types are recorded", plan: "workload: make",
			options: run.RunOptions{Trace: true, FindTypes: true},
			want:    []string{"one created small", "one updated large", "two created small", "two updated large"},
		},
		{
			name: "the type is named, after a reset", plan: "workload: make",
			options: run.RunOptions{History: []plan.ResourceKey{key}},
			want:    []string{"one created small", "one updated large", "two created small", "two updated large"},
		},
		{
			name: "triggers on the type", plan: `workload: make
actions:
- actionType: restartController
  actionTarget: type-operator
  trigger:
    definitions:
    - triggerName: first
      condition: {triggerType: onObjectCreation, resourceKey: ` + thing + `/default/one}
      observationPoint: {timing: afterControllerWrite, observeBy: type-operator}
    expression: first
- actionType: restartController
  actionTarget: type-operator
  trigger:
    definitions:
    - triggerName: changed
      condition:
        triggerType: onObjectUpdate
        resourceKey: ` + thing + `/default/two
        curState: {spec: {size: large}}
      observationPoint: {timing: beforeAPIServerRecv, observeBy: apiserver-2}
    expression: changed
`,
			want:    []string{"one created small", "one updated large", "two created small", "two updated large"},
			actions: 2,
		},
		{
			name: "the type goes again", plan: "workload: make-and-remove",
			options: run.RunOptions{Trace: true, FindTypes: true},
			want:    []string{"one created small", "one deleted small"},
		},
		{
			name: "the type goes again, named", plan: "workload: make-and-remove",
			options: run.RunOptions{History: []plan.ResourceKey{key}},
			want:    []string{"one created small", "one deleted small"},
		},
		{
			name: "a type that is never served", plan: "workload: make\nhistory: [zebra.made.example.com/*/*]",
			finding: `no state of zebra.made.example.com/*/* was recorded: the cluster serves no type ` +
				`"zebra.made.example.com"; is its CustomResourceDefinition among the suite's manifests?`,
		},
		{
			name: "one that other runs have seen", plan: "workload: make",
			options: run.RunOptions{History: []plan.ResourceKey{zebra, key}},
			want:    []string{"one created small", "one updated large", "two created small", "two updated large"},
		},
		{
			suite: "defined.yaml", name: "the manifests define the type, and it goes",
			plan:    "workload: make-and-remove",
			options: run.RunOptions{Trace: true, FindTypes: true},
			want:    []string{"one created small", "one deleted small"},
		},
		{
			name: "it is back after a reset", plan: "workload: make-and-remove",
			options: run.RunOptions{History: []plan.ResourceKey{key}},
			want:    []string{"one created small", "one deleted small"},
		},
	} {
		if tt.suite != "" {
			suite, err := plan.LoadSuite(filepath.Join("../../examples/testdata/type-operator", tt.suite))
			if err != nil {
				t.Fatal(err)
			}
			e = example{suite: suite}
			s = open(t, e, run.Options{})
		}
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(filepath.Dir(e.suite.File), "p.yaml")
			p, err := plan.Parse([]byte("testName: types\n"+tt.plan), file)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Validate(e.suite); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.ArtifactDir(), strconv.Itoa(rand.Int()))
			meta, err := s.RunWith(t.Context(), p, dir, tt.options)
			if err != nil {
				t.Fatal(err)
			}
			r, err := record.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if tt.finding != "" {
				if meta.Verdict != record.Inconclusive || !slices.ContainsFunc(r.Findings, func(f record.Finding) bool {
					return f.Title == tt.finding
				}) {
					t.Errorf("%s, %+v, want %q", meta.Verdict, r.Findings, tt.finding)
				}
				return
			}
			if meta.Verdict != record.Pass || meta.ActionsFired != tt.actions {
				t.Errorf("%s, %d actions: %s", meta.Verdict, meta.ActionsFired, meta.Reason)
				for _, f := range r.Findings {
					t.Logf("%s %s: %s\n%s", f.Severity, f.Judge, f.Title, f.Detail)
				}
			}
			if diff := cmp.Diff(tt.want, things(r)); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
			t.Logf("%s, cluster %s", meta.Verdict, meta.Cluster)
		})
	}
}
