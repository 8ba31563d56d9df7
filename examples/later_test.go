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

// TestWhatIsPutOff checks that a run waits for what an operator has put off, as long as it takes: its own time passes
// at once. A test that does not wait calls a retry after 30 seconds missing, and does not see what comes after 20.
func TestWhatIsPutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("here time is real")
	}
	trommel := buildTrommel(t)
	dir := t.TempDir()
	for _, tt := range []struct {
		plan  string
		want  int
		finds string
		lasts time.Duration // at least, in the run's time
	}{
		{"slow", pass, "", 10 * time.Minute},
		{"retry", pass, "", 30 * time.Second},
		{"held", pass, "", 24 * time.Hour}, // what is held does not go on because the clock jumps
		{"spin", bug, "later-operator never comes to rest: queue configmap gave it items", 10 * time.Second},
		{"cleanup", bug, "secret default/a", 20 * time.Second},
	} {
		t.Run(tt.plan, func(t *testing.T) {
			at := filepath.Join(dir, tt.plan)
			code, out := runTrommel(t, trommel, "testdata/later-operator", 20*time.Minute,
				"-p", "plans/"+tt.plan+".yaml",
				"--baseline", filepath.Join(dir, "baselines"), "--record", at)
			if code != tt.want || !strings.Contains(string(out), tt.finds) {
				t.Fatalf("exit code %d, want %d, and %q\n%s", code, tt.want, tt.finds, out)
			}
			data, err := os.ReadFile(filepath.Join(at, "meta.json"))
			if err != nil {
				t.Fatal(err)
			}
			var meta struct {
				WorkloadStart, Ended time.Time
				Clock                *struct{ Took time.Duration }
			}
			if err := json.Unmarshal(data, &meta); err != nil {
				t.Fatal(err)
			}
			lasted := meta.Ended.Sub(meta.WorkloadStart)
			if meta.Clock == nil || lasted < tt.lasts {
				t.Fatalf("the run lasted %s of its own time (%+v)", lasted, meta.Clock)
			}
			// On an idle machine it is more than a hundred times: ten minutes in five seconds.
			if tt.plan == "slow" && lasted < 20*meta.Clock.Took {
				t.Errorf("%s of the run's own time took %s", lasted, meta.Clock.Took)
			}
			t.Logf("%s of the run's own time took %s", lasted, meta.Clock.Took)
		})
	}
}
