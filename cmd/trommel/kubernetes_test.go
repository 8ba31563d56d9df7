package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/record"
)

// TestKubernetesVersionOfSuite runs a plan on the Kubernetes version that its suite selects: each one that
// TROMMEL_TEST_KUBERNETES lists, see TestKubernetesVersions in instrumentation.
func TestKubernetesVersionOfSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	t.Parallel()
	trommel := buildTrommel(t)
	copier, err := filepath.Abs("../../testdata/controllers/copier")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range strings.Split(os.Getenv("TROMMEL_TEST_KUBERNETES"), ",") {
		want, err := instrumentation.ResolveKubernetesVersion(v)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(want, func(t *testing.T) {
			dir := t.TempDir()
			picks := "cluster: {apiServers: 1, nodes: 0, kubernetesVersion: '" + v + "'}\n"
			if v == "" {
				picks = "cluster: {apiServers: 1, nodes: 0}\n"
			}
			for name, text := range map[string]string{"trommel.yaml": picks + suite(copier), "passing.yaml": passing} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			run := exec.Command(trommel, "-p", "passing.yaml", "--record", "record")
			run.Dir = dir
			if out, err := run.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			r, err := record.Open(filepath.Join(dir, "record"))
			if err != nil {
				t.Fatal(err)
			}
			if r.Meta.Kubernetes != want {
				t.Errorf("the run was on Kubernetes %q, want %q", r.Meta.Kubernetes, want)
			}
		})
	}
}
