package journal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Regression: a record did not contain the files that its plan names, so it could not be replayed elsewhere.
func TestRecordHoldsTheManifestsOfThePlan(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := "# kept as it is\n{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}\n"
	absolute := write("elsewhere/pod.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: three}}\n")
	write("manifests/one.yaml", one)
	write("folder/a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: \"1\"}}\n")
	write("folder/b/b.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n")
	suite := write("trommel.yaml", "controllers: [{name: db, binary: db}]\n")
	now := "trigger: {definitions: [{triggerName: a, condition: {triggerType: none}}]}}\n"
	file := write("plans/p.yaml", "testName: p\nsuite: ..\nactions:\n"+
		"- {actionType: apply, manifestFile: ../manifests/one.yaml, "+now+
		"- {actionType: apply, manifestFile: ../folder, "+now+
		"- {actionType: apply, manifestFile: "+absolute+", "+now+
		"- {actionType: apply, manifestFile: ../manifests/one.yaml, "+now)
	p, err := plan.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	w := &PlanFiles{Dir: filepath.Join(dir, "record"), Plan: p, Suite: &plan.Suite{File: suite}}
	if err := os.MkdirAll(w.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(); err != nil {
		t.Fatal(err)
	}
	if p.Suite != ".." || p.Actions[0].ManifestFile != "../manifests/one.yaml" {
		t.Errorf("the run's own plan was changed: %+v", p)
	}
	for i, name := range []string{"manifests", "folder", "elsewhere", "plans"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(i, err)
		}
	}
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(w.Dir, moved); err != nil {
		t.Fatal(err)
	}
	kept, err := plan.Load(filepath.Join(moved, record.PlanFile))
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		file    string
		objects int
	}{{"manifests/1-one.yaml", 1}, {"manifests/2-folder.yaml", 2}, {"manifests/3-pod.yaml", 1},
		{"manifests/1-one.yaml", 1}}
	for i, w := range want {
		got := kept.Actions[i].ManifestFile
		list, err := manifests.Read(plan.Beside(kept.File, got))
		if err != nil || got != w.file || len(list) != w.objects {
			t.Errorf("action %d: %s with %d objects (%v), want %s with %d", i+1, got, len(list), err, w.file, w.objects)
		}
	}
	if text, err := os.ReadFile(filepath.Join(moved, "manifests", "1-one.yaml")); err != nil || string(text) != one {
		t.Errorf("%q (%v)", text, err)
	}
	if kept.Suite != "" {
		t.Errorf("the record's plan names the suite %q instead of the one in the record", kept.Suite)
	}
}
