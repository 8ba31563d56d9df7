package operators

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/record"
)

// What the tests of time read from their environment, beside envLong and envOperators.
const (
	envPlans = "TROMMEL_TEST_PLANS" // how many generated plans of each operator are compared
	envSeed  = "TROMMEL_TEST_SEED"  // chooses the plans
)

// database is the operator of the examples.
const database = "database-operator"

// TestVirtualTimeIsLikeRealTime runs generated plans of third-party operators, and of the example, once in virtual and
// once in real time. Verdict, findings and actions must be the same. Where they depend on who is faster, they differ
// between two runs by the same clock too: run `trommel repro RECORD --runs 5`, with and without --time real, to see it.
func TestVirtualTimeIsLikeRealTime(t *testing.T) {
	if os.Getenv(envLong) == "" {
		t.Skip("not without " + envLong)
	}
	trommel, number, seed := buildTrommel(t), fromEnv(t, envPlans, 25), fromEnv(t, envSeed, 23)
	all := append(slices.Clone(operators), operator{name: database})
	for _, o := range all {
		t.Run(o.name, func(t *testing.T) {
			if names := os.Getenv(envOperators); names != "" && !slices.Contains(strings.Split(names, ","), o.name) {
				t.Skipf("%s is %s", envOperators, names)
			}
			dir := filepath.Join(Root(t), "examples", database)
			if o.name != database {
				dir = prepare(t, trommel, o)
			}
			work := t.ArtifactDir() // the records are kept with go test -artifacts
			baselines := filepath.Join(work, "baselines")
			runTrommel(t, trommel, work, "generate", "-q", "-c", dir, "--dir", "generated", "--baseline", baselines)
			chosen := choose(t, filepath.Join(work, "generated", "plans"), filepath.Join(work, "generated", "chosen"),
				number, rand.New(rand.NewPCG(uint64(seed), 0)))
			runs := map[string]map[string]*record.Run{}
			for _, how := range []string{"virtual", "real"} {
				runs[how] = runPlans(t, trommel, filepath.Join(work, how), "-p", chosen, "--baseline", baselines,
					"--time", how)
			}
			for _, name := range slices.Sorted(maps.Keys(runs["virtual"])) {
				sameOutcome(t, runs["virtual"][name], runs["real"][name])
			}
			t.Logf("%d plans, seed %d", len(runs["virtual"]), seed)
		})
	}
}

func fromEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// choose copies plans, of each workload and pattern in turn, and returns the directory of the copies.
func choose(t *testing.T, from, to string, number int, r *rand.Rand) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string][]string{}
	for _, file := range files {
		group := filepath.Base(file[:strings.LastIndex(file, "-")])
		groups[group] = append(groups[group], file)
	}
	names := slices.Sorted(maps.Keys(groups))
	for _, name := range names {
		g := groups[name]
		r.Shuffle(len(g), func(i, j int) { g[i], g[j] = g[j], g[i] })
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for left, i := min(number, len(files)), 0; left > 0; i++ {
		for _, name := range names {
			if i >= len(groups[name]) || left == 0 {
				continue
			}
			left--
			text, err := os.ReadFile(groups[name][i])
			if err != nil {
				t.Fatal(err)
			}
			// The copy is beside the original's folder, so that the path of its suite is still right.
			if err := os.WriteFile(filepath.Join(to, filepath.Base(groups[name][i])), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return to
}

// runTrommel runs a command that may end with any verdict.
func runTrommel(t *testing.T, trommel, dir string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, trommel, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it stops its control plane
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() == 2 || exit.ExitCode() > 3 || exit.ExitCode() < 0) {
		t.Fatalf("trommel %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// runPlans runs plans in a directory, and returns the records by plan.
func runPlans(t *testing.T, trommel, dir string, args ...string) map[string]*record.Run {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	runTrommel(t, trommel, dir, args...)
	records, err := filepath.Glob(filepath.Join(dir, "trommel-runs", "*", record.MetaFile))
	if err != nil {
		t.Fatal(err)
	}
	runs := map[string]*record.Run{}
	for _, file := range records {
		r, err := record.Open(filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		runs[r.Meta.Plan] = r
	}
	if len(runs) == 0 {
		t.Fatalf("no records in %s", dir)
	}
	return runs
}

// sameOutcome compares verdict, findings and actions, with what the findings are about.
func sameOutcome(t *testing.T, a, b *record.Run) {
	t.Helper()
	if b == nil {
		t.Errorf("%s: no second run", a.Dir)
		return
	}
	if x, y := outcome(a), outcome(b); x != y {
		d, err := report.Compare(a, b, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("%s: %s\n%s: %s\nactions %q\nfindings %q", a.Dir, x, b.Dir, y, d.Actions, d.Findings)
	}
}

func outcome(r *record.Run) string {
	var parts []string
	for _, f := range r.Findings {
		if f.Severity != record.SeverityNote {
			parts = append(parts, fmt.Sprintf("%s %s %s", f.Severity, f.Judge, f.Subject))
		}
	}
	slices.Sort(parts)
	for _, a := range r.Actions {
		parts = append(parts, fmt.Sprintf("%s failed=%t", a, a.Error != ""))
	}
	return fmt.Sprintf("%s, %d of %d actions: %s", r.Meta.Verdict, r.Meta.ActionsFired, r.Meta.ActionsTotal,
		strings.Join(parts, "; "))
}
