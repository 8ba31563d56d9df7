package examples

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestHotWriter checks what becomes of a workload in which the controller wakes itself by each of its writes: the run
// that should teach it ends early and names the object and the field. If the workload comes to its end, it is learned.
func TestHotWriter(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("here time is real")
	}
	trommel := buildTrommel(t)
	dir := t.TempDir()
	const names = "without any fault, later-operator writes configmap/default/a again and again: "
	const fields = "; from one write to the next, these fields change: metadata.annotations.count"
	for _, tt := range []struct {
		workload string
		want     int
		says     string
		runs     int
	}{
		{"hot", cannotRun, "it does not pass without faults: bug: " + names, 1},
		{"hot-and-done", pass, "hot-and-done: " + names, 3},
	} {
		t.Run(tt.workload, func(t *testing.T) {
			campaign := filepath.Join(dir, tt.workload)
			code, out := runTrommel(t, trommel, "testdata/later-operator", 20*time.Minute, "learn",
				"--workload", tt.workload, "--runs", "2", "--dir", campaign,
				"--baseline", filepath.Join(dir, "baselines"))
			if code != tt.want || !strings.Contains(string(out), tt.says) || !strings.Contains(string(out), fields) {
				t.Errorf("exit code %d, want %d, %q and %q\n%s", code, tt.want, tt.says, fields, out)
			}
			runs, err := filepath.Glob(filepath.Join(campaign, "runs", "*", "*", "meta.json"))
			if err != nil || len(runs) != tt.runs {
				t.Fatalf("%v: %d runs, want %d", err, len(runs), tt.runs)
			}
			for _, file := range runs {
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				var meta struct{ WorkloadStart, Ended time.Time }
				if err := json.Unmarshal(data, &meta); err != nil {
					t.Fatal(err)
				}
				if lasted := meta.Ended.Sub(meta.WorkloadStart); lasted > 2*time.Minute {
					t.Errorf("%s lasted %s after its workload had begun", file, lasted)
				}
			}
		})
	}
}
