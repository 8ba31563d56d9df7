package plan

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Writing a suite and reading it gives the same suite.
func TestMarshalSuite(t *testing.T) {
	list := append(files(t, "testdata/trommel.yaml"), files(t, "../examples/*/trommel.yaml")...)
	list = append(list, files(t, "../examples/kubernetes-controllers/*.yaml")...)
	if len(list) < 4 {
		t.Fatalf("only %d suites found", len(list))
	}
	schema := compileSchema(t, SuiteJSONSchema)
	for _, file := range list {
		s, err := LoadSuite(file)
		if err != nil {
			t.Fatal(err)
		}
		text, err := MarshalSuite(s)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		again, err := ParseSuite(text, file)
		if err != nil {
			t.Errorf("%s: %v\n%s", file, err, text)
			continue
		}
		if diff := cmp.Diff(s, again, cmpopts.IgnoreUnexported(Suite{})); diff != "" {
			t.Errorf("%s (-before +after):\n%s", file, diff)
		}
		if err := schema.Validate(yamlValue(t, text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// A suite that was built in Go gets its defaults when it is read, and mistakes in it are reported.
func TestMarshalSuiteBuiltInGo(t *testing.T) {
	no := false
	built := &Suite{
		Controllers: []Controller{{
			Name: "a", Build: &Build{}, WatchList: &no,
			Env:     map[string]string{"A": "yes", "B": "1"},
			EnvFrom: map[string]map[string]any{"C": {"fieldRef": map[string]any{"fieldPath": "metadata.name"}}},
		}},
		Workloads: map[string]Workload{"w": {Steps: []Step{{Go: "f"}}}},
	}
	text, err := MarshalSuite(built)
	if err != nil {
		t.Fatal(err)
	}
	const want = `apiVersion: trommel.dev/v1alpha1
kind: Suite
controllers:
  - name: a
    build: {}
    env:
      A: "yes"
      B: "1"
      C:
        valueFrom:
          fieldRef:
            fieldPath: metadata.name
    watchList: false
workloads:
  w:
    steps:
      - go: f
`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s, err := ParseSuite(text, filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Cluster.APIServers != 3 || s.Controllers[0].Build.Package != "." || s.Timeouts.Plan == 0 {
		t.Errorf("defaults are missing: %+v", s)
	}
	built.Controllers[0].Build.Dir = "missing"
	if text, err = MarshalSuite(built); err != nil {
		t.Fatal(err)
	}
	_, err = ParseSuite(text, filepath.Join(os.TempDir(), "s"))
	if err == nil || !strings.Contains(err.Error(), "missing: no such file beside the suite") {
		t.Errorf("got %v", err)
	}
}
