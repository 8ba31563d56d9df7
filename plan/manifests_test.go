package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestManifests(t *testing.T) {
	s, err := ParseSuite([]byte(`
controllers:
  - name: a
    binary: x
    env: {A: a, NS: {valueFrom: {fieldRef: {fieldPath: metadata.namespace}}},
      B: {valueFrom: {secretKeyRef: {name: s, key: k}}}}
manifests:
  - trommel.yaml
  - {path: ., namespace: foo-system}
  - helm: .
    namespace: foo
    release: bar
    values: {replicas: 2, sub: {on: true}}
    valuesFiles: [trommel.yaml]
variants:
  v: {controllers: {a: {env: {NS: other, A: {valueFrom: {fieldRef: {fieldPath: metadata.name}}}}}}}
`), "testdata/s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := []Manifest{
		{Path: "trommel.yaml"},
		{Path: ".", Namespace: "foo-system"},
		{
			Helm: ".", Namespace: "foo", Release: "bar",
			Values:      map[string]any{"replicas": int64(2), "sub": map[string]any{"on": true}},
			ValuesFiles: []string{"trommel.yaml"},
		},
	}
	if diff := cmp.Diff(want, s.Manifests); diff != "" {
		t.Errorf("manifests (-want +got):\n%s", diff)
	}
	field := func(path string) map[string]any { return map[string]any{"fieldRef": map[string]any{"fieldPath": path}} }
	secret := map[string]any{"secretKeyRef": map[string]any{"name": "s", "key": "k"}}
	check := func(c Controller, env map[string]string, from map[string]map[string]any) {
		t.Helper()
		if diff := cmp.Diff(env, c.Env); diff != "" {
			t.Errorf("env (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(from, c.EnvFrom); diff != "" {
			t.Errorf("env from elsewhere (-want +got):\n%s", diff)
		}
	}
	check(s.Controllers[0], map[string]string{"A": "a"},
		map[string]map[string]any{"NS": field("metadata.namespace"), "B": secret})
	v, err := s.WithVariant("v")
	if err != nil {
		t.Fatal(err)
	}
	check(v.Controllers[0], map[string]string{"NS": "other"},
		map[string]map[string]any{"A": field("metadata.name"), "B": secret})
	// The suite itself is as it was.
	check(s.Controllers[0], map[string]string{"A": "a"},
		map[string]map[string]any{"NS": field("metadata.namespace"), "B": secret})
}
