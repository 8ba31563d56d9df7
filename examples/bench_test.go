package examples

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkFreshToWarm compares each example's workloads on a fresh cluster with the same on one that has carried them
// out before. What is slower on the fresh one waits for a resync of some part of the control plane, and not for an
// event. The metric is the ratio.
func BenchmarkFreshToWarm(b *testing.B) {
	trommel := filepath.Join(b.TempDir(), "trommel")
	command(b, "..", "go", "build", "-o", trommel, "./cmd/trommel")
	for _, w := range []struct{ example, workload string }{
		{"database-operator", "create"}, {"database-operator", "recreate"}, {"database-operator", "scale-down-up"}, {"database-operator", "resize"},
		{"statefulset-controller", "create"}, {"statefulset-controller", "scale-down-up"},
	} {
		b.Run(w.example+"/"+w.workload, func(b *testing.B) {
			dir := b.TempDir()
			file := filepath.Join(dir, "quiet.yaml")
			if err := os.WriteFile(file, fmt.Appendf(nil, "testName: quiet\nworkload: %s\nactions: []\n", w.workload), 0o644); err != nil {
				b.Fatal(err)
			}
			var fresh, warm time.Duration
			for b.Loop() {
				name := fmt.Sprintf("fresh-to-warm-%d", os.Getpid())
				command(b, w.example, trommel, "cluster", "up", "--name", name)
				var times []time.Duration
				for i := range 3 {
					folder := filepath.Join(dir, fmt.Sprint("record-", time.Now().UnixNano(), i))
					command(b, w.example, trommel, "-p", file, "--suite", "trommel.yaml", "--cluster", name, "--record", folder)
					times = append(times, workloadTime(b, folder))
				}
				command(b, w.example, trommel, "cluster", "down", "--name", name)
				fresh += times[0]
				warm += min(times[1], times[2])
			}
			b.ReportMetric(fresh.Seconds()/warm.Seconds(), "fresh/warm")
			b.ReportMetric(warm.Seconds()/float64(b.N), "s-warm")
		})
	}
}

func command(b *testing.B, dir, name string, args ...string) {
	b.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// workloadTime reads from a run record how long its workload took.
func workloadTime(b *testing.B, folder string) time.Duration {
	b.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "meta.json"))
	if err != nil {
		b.Fatal(err)
	}
	var meta struct{ WorkloadStart, WorkloadEnd time.Time }
	if err := json.Unmarshal(data, &meta); err != nil {
		b.Fatal(err)
	}
	return meta.WorkloadEnd.Sub(meta.WorkloadStart)
}
