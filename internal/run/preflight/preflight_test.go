package preflight

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/trommel-dev/trommel/plan"
)

// What only another workload has wrong does not keep a plan from being run.
func TestCheckPlan(t *testing.T) {
	suite := writtenSuite(t, `
-- trommel.yaml --
controllers: [{name: op, clusterRole: view, build: {dir: .}}]
workloads:
  good: [{wait: {resourceKey: pod/default/a, condition: "true"}}]
  bad: [{delete: poddd/default/a}]
  invalid: [{apply: {apiVersion: v1, kind: Pod, metadata: {name: a}, specs: {}}}]
`)
	var read Suites
	for _, tt := range []struct{ workload, want string }{
		{"good", ""},
		{"bad", `trommel.yaml:4:18: the cluster serves no type "poddd"; did you mean "pod"?`},
		{"invalid", `workload "invalid", step 1: Pod a: unknown field "specs"`},
		{"invalid", "has mistakes"}, // they are reported once
		{"good", ""},
	} {
		err := read.CheckPlan(t.Context(), suite, &plan.Plan{Workload: tt.workload})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.workload, err, tt.want)
		}
	}
	if err := read.CheckPlan(t.Context(), suite, &plan.Plan{Workload: "invalid", Build: "v1"}); err != nil {
		t.Errorf("another build has other manifests: %v", err)
	}
}

// writtenSuite writes files and reads their trommel.yaml.
func writtenSuite(t *testing.T, archive string) *plan.Suite {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	suite, err := plan.LoadSuite(filepath.Join(dir, plan.SuiteFile))
	if err != nil {
		t.Fatal(err)
	}
	return suite
}
