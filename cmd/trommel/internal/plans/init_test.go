package plans

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/run/preflight"
	"github.com/trommel-dev/trommel/internal/testing/operators"
	"github.com/trommel-dev/trommel/plan"
)

// TestInitOperators runs init on the source of third-party operators. It skips if their archives are not beside the
// repository.
func TestInitOperators(t *testing.T) {
	for _, tt := range []struct {
		name, pkg, deployment string
		manifests             []plan.Manifest
		sample                string // empty: no sample of the repository
	}{
		{"jobset", ".", "jobset-system/jobset-controller-manager", []plan.Manifest{{Path: "config/default"}}, ""},
		{
			"lws", "./cmd", "lws-system/lws-controller-manager", []plan.Manifest{{Path: "config/default"}},
			"config/samples/leaderworkerset_v1_leaderworkerset.yaml",
		},
		{
			"mpi-operator", "./cmd/mpi-operator", "mpi-operator/mpi-operator",
			[]plan.Manifest{{Path: "manifests/overlays/standalone"}},
			"examples/v2beta1/horovod/tensorflow-mnist.yaml",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := operators.Unpack(t, tt.name)
			var out, stderr strings.Builder
			if err := initialize(t.Context(), output.Streams{Out: &out, Err: &stderr}, dir, false); err != nil {
				t.Fatalf("%v\n%s", err, stderr.String())
			}
			suite, err := plan.LoadSuite(filepath.Join(dir, plan.SuiteFile))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := new(preflight.Suites).CheckObjects(suite); err != nil {
				t.Error(err)
			}
			c := suite.Controllers[0]
			deployment := c.Deployment.Namespace + "/" + c.Deployment.Name
			if c.Build.Package != tt.pkg || deployment != tt.deployment || c.Image != "" {
				t.Errorf("package %s, deployment %s, image %q", c.Build.Package, deployment, c.Image)
			}
			if diff := cmp.Diff(tt.manifests, suite.Manifests); diff != "" {
				t.Errorf("manifests (-want +got):\n%s", diff)
			}
			steps := suite.Workloads["create"].Steps
			if continues := steps[1].OnTimeout == plan.OnTimeoutContinue; continues != (tt.sample == "") {
				t.Errorf("the workload continues without a status: %t", continues)
			}
			if file := steps[0].Apply.File; file != tt.sample {
				t.Errorf("sample %q, want %q", file, tt.sample)
			}
		})
	}
}

// Regression: in a repository with hundreds of files, init said nothing for minutes.
func TestInitSaysWhatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		said := func(w *slowWork) string {
			w.mu.Lock()
			defer w.mu.Unlock()
			return out.String()
		}
		slow := showSlow(&out, initPatience)
		slow.begin("reading")
		time.Sleep(initPatience - time.Millisecond)
		if text := said(slow); text != "" {
			t.Errorf("too early: %q", text)
		}
		time.Sleep(2 * time.Millisecond)
		slow.begin("building")
		slow.stop()
		if text, want := said(slow), "init: reading\ninit: building\n"; text != want {
			t.Errorf("got %q, want %q", text, want)
		}
		out.Reset()
		quick := showSlow(&out, initPatience)
		quick.begin("reading")
		quick.stop()
		time.Sleep(2 * initPatience)
		if text := said(quick); text != "" {
			t.Errorf("after the end: %q", text)
		}
	})
}
