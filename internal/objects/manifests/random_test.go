package manifests

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/plan"
)

// Regression: Chaos Mesh's chart gives its pods a random annotation, so that a campaign that went on, and rendered the
// chart again, found that the pods differed from the baseline.
func TestChartsAreRenderedAlike(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"Chart.yaml": "{apiVersion: v2, name: random, version: 1.0.0}",
		"templates/a.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, " +
			"data: {a: {{ randAlphaNum 5 | quote }}, b: {{ randAlphaNum 5 | quote }}, " +
			"c: {{ randNumeric 70 | quote }}}}",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	render := func() any {
		list, _, err := helm(plan.Manifest{Helm: dir}, "v1.36.0", func(name string) string { return name })
		if err != nil || len(list) != 1 {
			t.Fatalf("%d objects, %v", len(list), err)
		}
		return list[0].Object["data"]
	}
	first := render()
	if diff := cmp.Diff(first, render()); diff != "" {
		t.Error(diff)
	}
	if data := first.(map[string]any); data["a"] == data["b"] || len(data["c"].(string)) != 70 {
		t.Errorf("%v", data)
	}
	// All else stays random, also meanwhile.
	defer fixRandom()()
	var a, b [16]byte
	_, errA := rand.Read(a[:])
	_, errB := rand.Read(b[:])
	if errA != nil || errB != nil || a == b || a == [16]byte{} {
		t.Errorf("%x and %x (%v, %v)", a, b, errA, errB)
	}
}
