package operators

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/record"
)

// BenchmarkFreshToWarm compares the workloads of the examples and of third-party operators on a fresh cluster with the
// same workloads on a cluster that has run them before. A workload that is slower on the fresh one waits for a resync
// of some part of the control plane instead of an event. The metrics are the ratio and the seconds on the warm cluster.
func BenchmarkFreshToWarm(b *testing.B) {
	trommel := buildTrommel(b)
	for _, w := range []struct{ example, workload string }{
		{"database-operator", "create"}, {"database-operator", "recreate"},
		{"database-operator", "scale-down-up"}, {"database-operator", "resize"},
		{"statefulset-controller", "create"}, {"statefulset-controller", "scale-down-up"},
	} {
		b.Run(w.example+"/"+w.workload, func(b *testing.B) {
			freshToWarm(b, trommel, filepath.Join(Root(b), "examples", w.example), w.workload)
		})
	}
	for _, o := range operators {
		b.Run(o.name, func(b *testing.B) { freshToWarm(b, trommel, prepare(b, trommel, o), "create") })
	}
}

// freshToWarm runs a plan without an action three times on each fresh cluster, in the directory of a suite.
func freshToWarm(b *testing.B, trommel, dir, workload string) {
	scratch := b.TempDir()
	plan := filepath.Join(scratch, "quiet.yaml")
	text := fmt.Sprintf("testName: quiet\nworkload: %s\nactions: []\n", workload)
	if err := os.WriteFile(plan, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	var fresh, warm time.Duration
	for n := 0; b.Loop(); n++ {
		times := onOneCluster(b, trommel, dir, plan, filepath.Join(scratch, fmt.Sprint("records-", n)))
		fresh += times[0]
		warm += min(times[1], times[2])
	}
	b.ReportMetric(fresh.Seconds()/warm.Seconds(), "fresh/warm")
	b.ReportMetric(warm.Seconds()/float64(b.N), "s-warm")
}

// onOneCluster runs the plan three times on its own cluster and returns how long the workload took each time.
func onOneCluster(b *testing.B, trommel, dir, plan, records string) (times []time.Duration) {
	name := fmt.Sprintf("fresh-to-warm-%d", os.Getpid())
	command(b, dir, trommel, "cluster", "up", "--name", name)
	defer command(b, dir, trommel, "cluster", "down", "--name", name)
	for i := range 3 {
		recordDir := filepath.Join(records, fmt.Sprint(i))
		command(b, dir, trommel, "-p", plan, "--suite", "trommel.yaml", "--cluster", name, "--record", recordDir)
		r, err := record.Open(recordDir)
		if err != nil {
			b.Fatal(err)
		}
		times = append(times, r.Meta.WorkloadEnd.Sub(r.Meta.WorkloadStart))
	}
	return times
}
