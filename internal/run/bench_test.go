package run_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// benchmarkPlan restarts the controller of instrumentation/testdata after its write, and waits for the new process's
// first reconcile.
const benchmarkPlan = `
testName: restart
actions:
- actionType: restartController
  trigger:
    definitions:
    - triggerName: reconciled
      condition: {triggerType: onObjectCreation, resourceKey: configmap/default/first}
      observationPoint: {timing: afterControllerRecv, observeBy: controller}
    expression: reconciled
- actionType: patch
  resourceKey: configmap/default/first
  patch: {data: {seen: "true"}}
  trigger:
    definitions:
    - triggerName: successor
      condition: {triggerType: onReconcile}
      observationPoint: {timing: beforeReconcile, observeBy: controller}
    expression: successor
`

const benchmarkSuite = `
controllers:
- name: controller
  build: {dir: %s}
  watchList: false
workloads:
  create:
  - apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: first, namespace: default}, data: {seen: "false"}}
  - wait:
      resourceKey: configmap/default/first
      condition: object.data.seen == "true"
      timeout: 30s
`

// BenchmarkPlan runs a whole plan on its own cluster, with everything built. It reports the run's overhead outside the
// workload, and the time from a controller's SIGKILL to the new process's first reconcile: the total, and the part up
// to the new process's handshake, which is Trommel and the start of the process. The rest is the controller itself.
func BenchmarkPlan(b *testing.B) {
	ctx := context.Background()
	controlPlane, err := instrumentation.BuildControlPlane(ctx, instrumentation.ControlPlaneConfig{})
	if err != nil {
		b.Fatal(err)
	}
	controller, err := instrumentation.Build(ctx,
		instrumentation.BuildConfig{Dir: "../../instrumentation/testdata/controller"})
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	source, err := filepath.Abs("../../instrumentation/testdata/controller")
	if err != nil {
		b.Fatal(err)
	}
	suiteFile := filepath.Join(dir, plan.SuiteFile)
	planFile := filepath.Join(dir, "restart.yaml")
	write(b, suiteFile, fmt.Sprintf(benchmarkSuite, source))
	write(b, planFile, benchmarkPlan)

	var overhead, total, own time.Duration
	n := 0
	for b.Loop() {
		suite, err := plan.LoadSuite(suiteFile)
		if err != nil {
			b.Fatal(err)
		}
		p, err := plan.LoadWith(planFile, suite)
		if err != nil {
			b.Fatal(err)
		}
		recordDir := filepath.Join(b.TempDir(), "record")
		session, err := run.Open(ctx, suite, run.Options{
			Fresh: true, ControlPlane: controlPlane.Binary,
			Binaries: []builds.Binary{{Path: controller.Binary, Manifest: &controller.Manifest}},
		})
		if err != nil {
			b.Fatal(err)
		}
		meta, err := session.Run(ctx, p, recordDir)
		if err != nil {
			b.Fatal(err)
		}
		if err := session.Close(ctx); err != nil {
			b.Fatal(err)
		}
		if meta.Verdict != record.Pass {
			b.Fatalf("%s: %s", meta.Verdict, meta.Reason)
		}
		r, err := record.Open(recordDir)
		if err != nil {
			b.Fatal(err)
		}
		overhead += meta.Ended.Sub(meta.Started) - meta.WorkloadEnd.Sub(meta.WorkloadStart)
		total += r.Actions[1].Fired.Sub(r.Actions[0].Began)
		own += r.Actions[0].Done.Sub(r.Actions[0].Began)
		n++
	}
	b.ReportMetric(overhead.Seconds()/float64(n), "s-overhead/plan")
	b.ReportMetric(float64(total.Milliseconds())/float64(n), "ms-SIGKILL-to-reconcile")
	b.ReportMetric(float64(own.Milliseconds())/float64(n), "ms-SIGKILL-to-handshake")
}

func write(b *testing.B, file, text string) {
	b.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
}
