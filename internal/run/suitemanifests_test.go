package run

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/run/clusters"
	"github.com/trommel-dev/trommel/plan"
)

func TestSuiteManifests(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "all.yaml")
	text := "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: other}}\n---\n" +
		"{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: default}, spec: {containers: []}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var told, kinds []string
	m := &suiteManifests{
		suite: &plan.Suite{
			File: filepath.Join(dir, "trommel.yaml"), Manifests: []plan.Manifest{{Path: "all.yaml"}},
		},
		kubernetes: "v1.36.0", kept: new(clusters.Manifests),
		info: func(text string) { told = append(told, text) },
	}
	found, err := m.install(t.Context(), func(_ context.Context, all []*unstructured.Unstructured) error {
		for _, u := range all {
			kinds = append(kinds, u.GetKind())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"ConfigMap", "Pod", "Namespace"}; !slices.Equal(kinds, want) || !found.runsPods {
		t.Errorf("applied %q, pods: %t", kinds, found.runsPods)
	}
	want := []string{"creating namespace other: the manifests use it, but do not contain it"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	// The session's next run has them already, in the cluster and in memory.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if found, err = m.install(t.Context(), nil); err != nil || found.runsPods || len(told) != 1 {
		t.Errorf("%+v (%v), told %q", found, err, told)
	}
	list, err := m.read()
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	list[0].SetName("changed")
	if again, _ := m.read(); again[0].GetName() != "a" {
		t.Error("a run has changed the manifests of the next one")
	}
}
