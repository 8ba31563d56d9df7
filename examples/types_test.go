package examples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTypesThatOnlyAFaultShows finds that an operator deletes claims after a crash, although it has nothing to do with
// claims otherwise and the suite does not name them.
func TestTypesThatOnlyAFaultShows(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	trommel := buildTrommel(t)
	dir := t.TempDir()
	code, out := runTrommel(t, trommel, ".", 20*time.Minute, "test", "-c", "testdata/claim-operator",
		"--pattern", "intermediate", "--dir", filepath.Join(dir, "campaign"),
		"--baseline", filepath.Join(dir, "baselines"))
	const finds = "volume claim default/data-a-0 of the living ConfigMap default/a was deleted by claim-operator and " +
		"created again, its data is lost"
	_, bugs, _ := strings.Cut("\n"+string(out), "\nbugs\n")
	if code != bug || !strings.Contains(bugs, finds) || strings.Count(string(out), "learning it again") != 1 {
		t.Errorf("exit code %d, want %d, and %q among the bugs\n%s", code, bug, finds, out)
	}
}

// TestTypesThatAnOperatorDefines learns workloads in which an operator defines a type, makes objects of it and deletes
// it again, and strikes while it does so: plans are about objects of the type, and each run begins without it.
func TestTypesThatAnOperatorDefines(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	trommel := buildTrommel(t)
	dir := t.TempDir()
	code, out := runTrommel(t, trommel, ".", 20*time.Minute, "test", "-c", "testdata/type-operator",
		"--pattern", "intermediate,lost-answer,conflict", "--dir", filepath.Join(dir, "campaign"),
		"--baseline", filepath.Join(dir, "baselines"))
	if code != pass || !strings.Contains(string(out), "passed") || strings.Contains(string(out), "inconclusive") {
		t.Errorf("exit code %d, want %d, and nothing inconclusive\n%s", code, pass, out)
	}
	baselines, err := filepath.Glob(filepath.Join(dir, "baselines", "*", "baseline.json"))
	if err != nil || len(baselines) != 2 {
		t.Fatalf("baselines %q, %v", baselines, err)
	}
	for _, file := range baselines {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "thing.made.example.com/") {
			t.Errorf("%s does not know the type (%v)", file, err)
		}
	}
}

// TestStatusThatTellsWhatHasHappened finds nothing in an operator whose status keeps a history, old errors and
// counters, and finds that another variant of it does not tell any more how things are.
func TestStatusThatTellsWhatHasHappened(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	trommel := buildTrommel(t)
	for _, tt := range []struct {
		variant string
		want    int
		finds   []string
	}{
		{"", pass, []string{"what does a status keep?", "passed"}},
		{"forgetful", bug, []string{"talk.example.trommel.dev/default/a differs from the runs without faults"}},
	} {
		t.Run("variant "+tt.variant, func(t *testing.T) {
			args := []string{"-c", "testdata/chatty-operator", "--pattern", "lost-answer,stale,denied,conflict"}
			if tt.want == bug {
				args = append(args, "--fail-fast")
			}
			checkCampaign(t, trommel, t.TempDir(), tt.variant, tt.want, tt.finds, args...)
		})
	}
}
