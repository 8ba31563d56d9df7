package propose

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/plan"
)

// Other samples are those that workloads apply, and those in the repository, but not others' and not other kinds.
func TestOtherSamples(t *testing.T) {
	dir := t.TempDir()
	database := func(version string) string {
		return "apiVersion: example.dev/v1\nkind: Database\nmetadata: {name: db}\nspec: {version: '" + version + "'}\n"
	}
	for file, text := range map[string]string{
		"deploy/trommel.yaml": `apiVersion: trommel.dev/v1alpha1
kind: Suite
controllers: [{name: db, build: {dir: ..}}]
manifests: [crd.yaml, {helm: chart}]
workloads:
  create:
  - apply: db.yaml
  other:
  - apply: {apiVersion: example.dev/v1, kind: Database, metadata: {name: db}, spec: {version: '2'}}
`,
		"deploy/crd.yaml": `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: databases.example.dev}
spec:
  group: example.dev
  scope: Namespaced
  names: {kind: Database, plural: databases, singular: database}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {version: {type: string}}}}}}
`,
		"deploy/chart/Chart.yaml": "apiVersion: v2\nname: chart\nversion: 1.0.0\nkubeVersion: '>=1.30.0-0'\n",
		"deploy/db.yaml":          database("1"),
		"config/samples/one.yaml": "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n---\n" + database("3"),
		"examples/two.yml":        database("4"),
		"examples/broken.yaml":    "kind: Database\n\t",
		"examples/old.yaml":       "apiVersion: example.dev/v0\nkind: Database\nmetadata: {name: db}\n",
		"config/three.yaml":       database("5"),
		"vendor/samples/of.yaml":  database("6"),
		".git/samples/of.yaml":    database("7"),
		"examples/readme.md":      database("8"),
	} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	suite, err := plan.LoadSuite(filepath.Join(dir, "deploy", "trommel.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"", filepath.Join(dir, "deploy", "db.yaml")} {
		s, err := findSample(suite, "", file)
		if err != nil {
			t.Fatal(err)
		}
		var versions []string
		for _, other := range s.others {
			version, _ := lookup(other, []string{"spec", "version"}).(string)
			versions = append(versions, version)
		}
		slices.Sort(versions)
		if diff := cmp.Diff([]string{"1", "2", "3", "4"}, versions); diff != "" {
			t.Errorf("sample %q (-want +got):\n%s", file, diff)
		}
	}
}
