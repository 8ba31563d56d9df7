package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestWithoutPlans finds the bugs of the database operator without a hint where they are, and none in the one whose
// bugs are fixed. The two that take least are always looked for, the others with TROMMEL_TEST_LONG.
func TestWithoutPlans(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	trommel := buildTrommel(t)
	long := os.Getenv("TROMMEL_TEST_LONG") != ""
	for _, tt := range []struct {
		name, workload, pattern, variant string
		want                             int
		finds                            string
		always                           bool
	}{
		{name: "interrupted create", workload: "create", pattern: "intermediate", want: bug,
			finds: "service default/db of database default/db is missing: never created", always: true},
		{name: "interrupted create, fixed", workload: "create", pattern: "intermediate", variant: "fixed", want: pass},
		{
			// The suite says nothing of streaming lists, which show nothing old: the plan switches them off.
			name: "stale deletion", workload: "recreate", pattern: "stale", want: bug,
			finds: "of the living database default/db was deleted by database-operator", always: true,
		},
		{name: "stale deletion, fixed", workload: "recreate", pattern: "stale", variant: "fixed", want: pass},
		{name: "missed scale", workload: "scale-down-up", pattern: "unobserved", want: bug,
			finds: "volume claim default/data-db-1 of database default/db was not replaced: created once"},
		{name: "missed scale, fixed", workload: "scale-down-up", pattern: "unobserved", variant: "fixed", want: pass},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !tt.always && !long {
				t.Skip("set TROMMEL_TEST_LONG")
			}
			dir := t.TempDir()
			args := []string{"test", "-c", database, "--workload", tt.workload, "--pattern", tt.pattern,
				"--dir", filepath.Join(dir, "campaign"), "--baseline", filepath.Join(dir, "baselines")}
			if tt.want == bug && !long {
				args = append(args, "--fail-fast")
			}
			if tt.variant != "" {
				args = append(args, "--variant", tt.variant)
			}
			got, out := runTrommel(t, trommel, ".", 30*time.Minute, args...)
			_, bugs, _ := strings.Cut("\n"+string(out), "\nbugs\n")
			if got != tt.want || !strings.Contains(bugs, tt.finds) {
				t.Fatalf("exit code %d, want %d, and %q among the bugs\n%s", got, tt.want, tt.finds, out)
			}
			if !tt.always {
				return
			}
			// The command that the summary prints shows the finding again, with the same judges.
			command := regexp.MustCompile(`(?m)^ +trommel (-p .*)$`).FindStringSubmatch(bugs)
			if command == nil {
				t.Fatalf("no command in\n%s", bugs)
			}
			got, out = runTrommel(t, trommel, ".", 10*time.Minute, append(strings.Fields(command[1]),
				"--record", filepath.Join(dir, "again"))...)
			if got != bug || !strings.Contains(string(out), tt.finds) || strings.Contains(string(out), "learning") {
				t.Errorf("%s: exit code %d, want %d, and %q\n%s", command[0], got, bug, tt.finds, out)
			}
		})
	}
}

// TestTimeWithoutPlans finds what only time shows: a rotation that is missed while the operator is down, and work that
// an operator has put off in memory. Where such a bug is fixed, it finds none.
func TestTimeWithoutPlans(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("here time is real")
	}
	trommel := buildTrommel(t)
	for _, tt := range []struct {
		name, suite, workload, variant string
		want                           int
		finds                          []string
	}{
		{"a missed rotation", "token-operator", "rotate", "", bug, []string{
			"invariant a-token-is-replaced-in-time", "is down while 25h12m pass",
		}},
		{"a missed rotation, fixed", "token-operator", "rotate", "fixed", pass, []string{"4 plans"}},
		{"a lost timer", "testdata/later-operator", "expire", "", bug, []string{
			// Killed before it is due, and down when it is due: which of them the summary names is the one that came
			// first.
			"secret default/a is still there", "1 passed, 2 with bugs",
		}},
		{"work that is done later than it is waited for if it begins anew", "testdata/later-operator", "slow", "", pass,
			[]string{"there is no plan of the pattern time", "trommel generate --explain says why"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			needLong(t, tt.variant == "fixed")
			dir := t.TempDir()
			out := checkCampaign(t, trommel, dir, tt.variant, tt.want, tt.finds,
				"-c", tt.suite, "--workload", tt.workload, "--pattern", "time")
			if tt.workload == "slow" {
				_, out := runTrommel(t, trommel, ".", 10*time.Minute, "generate", "--explain", "-c", tt.suite,
					"--workload", tt.workload, "--pattern", "time", "--baseline", filepath.Join(dir, "baselines"))
				if !strings.Contains(string(out), "would not be waited for that long") {
					t.Errorf("generate --explain does not say why there is no plan\n%s", out)
				}
			}
			command := regexp.MustCompile(`(?m)^ +trommel (-p .*)$`).FindStringSubmatch(string(out))
			if tt.want != bug || command == nil {
				return
			}
			// The command that the summary prints shows the finding again, with the same baseline.
			got, out := runTrommel(t, trommel, ".", 10*time.Minute, append(strings.Fields(command[1]),
				"--record", filepath.Join(dir, "again"))...)
			if got != bug || !strings.Contains(string(out), tt.finds[0]) || strings.Contains(string(out), "learning") {
				t.Errorf("%s: exit code %d, want %d, and %q\n%s", command[0], got, bug, tt.finds[0], out)
			}
		})
	}
}

// needLong skips what is only for `make long`. In CI TestUpgradesWithoutPlans shows that nothing is found where a bug
// is fixed.
func needLong(t *testing.T, only bool) {
	t.Helper()
	if only && os.Getenv("TROMMEL_TEST_LONG") == "" {
		t.Skip("set TROMMEL_TEST_LONG")
	}
}

// TestClustersWithoutPlans finds both bugs of an operator that works with two clusters: the one that only a kill
// between its writes in the two shows, and the one that only the past of the other cluster shows. Where they are fixed,
// it finds none.
func TestClustersWithoutPlans(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	needLong(t, true)
	trommel := buildTrommel(t)
	checkCampaign(t, trommel, t.TempDir(), "", bug, []string{
		"a ConfigMap in east has no copy in west",
		"copy-operator is killed right after its own write: east: configmap/default/settings changes " +
			"(metadata.finalizers",
		"the pinned copy settings is gone",
		"copy-operator is shown the past of west, where it does not see: west: configmap/default/settings changes",
		"also: copy-partition-", // the same as killed
	}, "-c", copies, "--parallel", "1", "--pattern", "intermediate,stale,partition")
	// All patterns: what is lost or refused on the way to the other cluster, too.
	out := checkCampaign(t, trommel, t.TempDir(), "fixed", pass, nil, "-c", copies, "--parallel", "1")
	for _, pattern := range []string{"lost-answer", "denied", "own-write-unseen", "stale", "partition", "drift"} {
		if !strings.Contains(string(out), "copy-"+pattern+"-") && !strings.Contains(string(out), "pin-"+pattern+"-") {
			t.Errorf("no plan of the pattern %s\n%s", pattern, out)
		}
	}
}

// checkCampaign runs trommel test with its records in a directory, and checks its exit code and what it prints, which
// it returns.
func checkCampaign(
	t *testing.T, trommel, dir, variant string, want int, finds []string, args ...string,
) (out []byte) {
	t.Helper()
	args = append([]string{"test", "--dir", filepath.Join(dir, "campaign"),
		"--baseline", filepath.Join(dir, "baselines")}, args...)
	if variant != "" {
		args = append(args, "--variant", variant)
	}
	got, out := runTrommel(t, trommel, ".", 30*time.Minute, args...)
	if got != want {
		t.Errorf("exit code %d, want %d\n%s", got, want, out)
	}
	for _, text := range finds {
		if !strings.Contains(string(out), text) {
			t.Errorf("no %q in\n%s", text, out)
		}
	}
	return out
}

// TestUpgradesWithoutPlans finds what a new version does not take up if the former one was interrupted at that write,
// and only there.
func TestUpgradesWithoutPlans(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	trommel := buildTrommel(t)
	for _, tt := range []struct {
		name, variant string
		want          int
		finds         []string
	}{
		{"a leftover", "", bug, []string{
			"ConfigMap default/web-config of site default/web should never have been created: exists at the end",
			"is killed right after its own write: configmap/default/web-config is created; " +
				"the suite's own build goes on",
			"7 passed, 1 with bugs",
			"the upgrade to the suite's own build changes",
		}},
		{"a leftover, fixed", "fixed", pass, []string{"8 plans", "8 passed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkCampaign(t, trommel, t.TempDir(), tt.variant, tt.want, tt.finds,
				"-c", upgrades, "--pattern", "upgrade")
		})
	}
}

// TestOwnControllers looks for bugs in Trommel's own controllers of disruptions, in one cluster and in two, and of node
// cycling, in all workloads of their suites.
func TestOwnControllers(t *testing.T) {
	if os.Getenv("TROMMEL_TEST_LONG") == "" {
		t.Skip("takes two to three hours; set TROMMEL_TEST_LONG")
	}
	trommel := buildTrommel(t)
	for _, example := range []string{disruptions, remotes, cyclers} {
		t.Run(example, func(t *testing.T) {
			dir := t.TempDir()
			got, out := runTrommel(t, trommel, ".", 90*time.Minute, "test", "-c", example, "--budget", "40m",
				"--dir", filepath.Join(dir, "campaign"), "--baseline", filepath.Join(dir, "baselines"))
			if got != pass {
				t.Errorf("exit code %d\n%s", got, out)
			}
		})
	}
}
