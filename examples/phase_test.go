package examples

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestPhaseOfALoop checks that runs without faults begin at different phases of a controller's loop. Otherwise they
// agree by chance, and each plan that restarts the controller finds a bug.
func TestPhaseOfALoop(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("here time is real")
	}
	trommel := buildTrommel(t)
	dir := t.TempDir()
	baselines := filepath.Join(dir, "baselines")
	code, out := runTrommel(t, trommel, "testdata/phase-operator", 20*time.Minute, "test",
		"--pattern", "intermediate,down,lost-answer", "--dir", filepath.Join(dir, "campaign"),
		"--baseline", baselines)
	if code != pass {
		t.Errorf("exit code %d, want %d\n%s", code, pass, out)
	}
	masks, err := os.ReadFile(filepath.Join(baselines, "job", "masks.yaml"))
	if err != nil || !strings.Contains(string(masks), "path: metadata.annotations.succeeded\n") {
		t.Errorf("%v: the field that depends on the phase counts\n%s", err, masks)
	}
	for run, want := range map[string]bool{"1": false, "2": true, "3": true, "4": true} {
		meta, err := os.ReadFile(filepath.Join(dir, "campaign", "runs", "job-without-faults", run, "meta.json"))
		if err != nil || strings.Contains(string(meta), `"shift":`) != want {
			t.Errorf("run %s: %v\n%s", run, err, meta)
		}
	}
}
