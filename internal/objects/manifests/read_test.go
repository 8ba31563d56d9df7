package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/plan"
)

func TestReadFolder(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml": "apiVersion: v1\nkind: B\n", "a/z.yml": "apiVersion: v1\nkind: A\n",
		"c.json": `{"apiVersion": "v1", "kind": "C"}`, "README.md": "no",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range list {
		got = append(got, u.GetKind())
	}
	if strings.Join(got, " ") != "A B C" {
		t.Errorf("got %q", got)
	}
}

func TestReadKustomization(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"default/kustomization.yaml": "namespace: system\nnamePrefix: op-\nresources: [../manager]\n",
		"manager/kustomization.yaml": "resources: [manager.yaml]\nimages: [{name: controller, newName: op, " +
			"newTag: v1}]\n",
		"manager/manager.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: manager}\nspec:\n " +
			" template:\n" +
			"    spec: {containers: [{name: manager, image: controller}]}\n",
	} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list, err := Read(filepath.Join(dir, "default"))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].GetNamespace() != "system" || list[0].GetName() != "op-manager" {
		t.Fatalf("got %v", list)
	}
	containers, _, _ := unstructured.NestedSlice(list[0].Object, "spec", "template", "spec", "containers")
	if got := containers[0].(map[string]any)["image"]; got != "op:v1" {
		t.Errorf("image %v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "default", "kustomization.yaml"), []byte("resources: [nowhere]\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(filepath.Join(dir, "default")); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a broken kustomization: %v", err)
	}
}

// A kustomization without what it and its bases would load from the network.
func TestSkipRemote(t *testing.T) {
	dir := unpack(t, `
-- all/kustomization.yaml --
namespace: system
resources: [../own, ../jobs, github.com/a/b, "https://a.b/c.yaml"]
helmCharts: [{name: d, repo: "https://e"}]
-- jobs/kustomization.yaml --
resources: ["https://a.b/c.yaml"]
-- own/kustomization.yaml --
resources: [own.yaml]
-- own/own.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: own}
`)
	suite, m := filepath.Join(dir, plan.SuiteFile), plan.Manifest{Path: "all", SkipRemote: true}
	list, notes, err := One(suite, m, "v1.36.0")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].GetNamespace() != "system" || list[0].GetName() != "own" {
		t.Errorf("got %v", list)
	}
	var want []string
	for _, what := range []string{"github.com/a/b", "https://a.b/c.yaml", "chart d"} {
		want = append(want, what+" is left out: "+filepath.Join(dir, "all")+" would load it from the network")
	}
	if diff := cmp.Diff(want, notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	m.Path = "own/own.yaml"
	if _, _, err := One(suite, m, "v1.36.0"); err == nil || !strings.Contains(err.Error(), "no kustomization") {
		t.Errorf("a file: %v", err)
	}
	_, remote, err := ReadLocal(filepath.Join(dir, "all"))
	if diff := cmp.Diff([]string{"github.com/a/b", "https://a.b/c.yaml", "chart d"}, remote); err != nil || diff != "" {
		t.Errorf("remote (-want +got), %v:\n%s", err, diff)
	}
}
