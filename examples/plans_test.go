// Package examples runs the examples' plans on real control planes.
package examples

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Exit codes of trommel.
const (
	pass         = 0
	bug          = 1
	mistake      = 2 // of the user
	inconclusive = 3
	cannotRun    = 4
)

const (
	database    = "database-operator"
	tokens      = "token-operator"
	ports       = "port-operator"
	queues      = "queue-operator"
	upgrades    = "upgrade-operator"
	copies      = "copy-operator"
	statefulset = "statefulset-controller"
	disruptions = "disruptions"
	remotes     = "remote-disruptions"
	nodeCycling = "node-cycling"
	cyclers     = "node-cycling-controllers"
)

// examplePlan is a plan of an example with its expected outcome.
type examplePlan struct {
	example, plan, variant string
	want                   int
	findings               []string // the titles' beginnings, in any order
	from                   string   // the function that one of the bugs names as its place; empty: not checked
	reason                 string
	long                   bool // runs with TROMMEL_TEST_LONG only (make long): another plan shows the same of Trommel
}

// unstable has the plans without an expected outcome, with the reasons.
var unstable = map[string]string{
	statefulset + "/late-scale": "it depends on scheduling whether the worker acts on the first update before the " +
		"second one is received",
}

// plans are all plans of the examples except the unstable ones. For each pattern and feature one that finds a bug and
// one that passes always run.
var plans = []examplePlan{
	{example: database, plan: "stale-deletion", want: bug, from: "(*Reconciler).remove",
		findings: []string{"invariant live-statefulset-is-kept:"}},
	{example: database, plan: "stale-deletion", variant: "fixed", want: pass},
	{example: database, plan: "interrupted-create", want: bug, from: "(*Reconciler).create",
		findings: []string{"invariant every-database-has-a-service:"}},
	{example: database, plan: "interrupted-create", variant: "fixed", want: pass},
	{example: database, plan: "lost-answer", want: bug, from: "(*Reconciler).create",
		findings: []string{"invariant every-database-has-a-service:"}},
	{example: database, plan: "lost-answer", variant: "fixed", want: pass},
	{example: database, plan: "lost-answer", variant: "installed", want: bug, from: "(*Reconciler).create",
		findings: []string{"invariant every-database-has-a-service:"}},
	{example: database, plan: "missed-scale", want: bug, from: "(*Reconciler).scale",
		findings: []string{"invariant new-members-start-empty:"}},
	{example: database, plan: "missed-scale", variant: "fixed", want: pass},
	{example: database, plan: "late-claim", want: bug, from: "(*Reconciler).scale",
		findings: []string{"invariant new-members-start-empty:"}},
	{example: database, plan: "late-claim", variant: "fixed", want: pass},

	{example: database, plan: "interrupted-resize", want: pass, long: true},
	{example: database, plan: "interrupted-resize", variant: "fixed", want: pass, long: true},

	{example: tokens, plan: "outage", want: bug, from: "(*reconciler).Reconcile",
		findings: []string{"invariant a-token-is-kept:"}},
	{example: tokens, plan: "killed", want: pass, long: true},
	{example: tokens, plan: "paused", want: pass, long: true},
	{example: tokens, plan: "outage", variant: "fixed", want: pass, long: true},
	{example: tokens, plan: "missed-rotation", want: bug, from: "(*reconciler).Reconcile",
		findings: []string{"invariant a-token-is-replaced-in-time:"}},
	{example: tokens, plan: "missed-rotation", variant: "fixed", want: pass},
	{example: tokens, plan: "caches", variant: "trimming", want: bug, findings: []string{
		"controller token-operator (container operator) changes objects in its cache: *v1.Service",
	}},
	{example: tokens, plan: "caches", want: pass},
	{example: tokens, plan: "two-days", want: pass},
	{example: tokens, plan: "wrong-clock", want: pass},
	{example: tokens, plan: "wrong-clock", variant: "fixed", want: bug,
		findings: []string{"invariant a-token-is-replaced-after-a-day:"},
		reason:   "the fix compares the time with one that was written while the clock was wrong"},

	{example: ports, plan: "lost-answers", want: bug, long: true, from: "(*reconciler).port.func2",
		findings: []string{"invariant one-port-each:"}},
	{example: ports, plan: "killed", want: pass, long: true},
	{example: ports, plan: "paused", want: pass, long: true},
	{example: ports, plan: "lost-answers", variant: "fixed", want: pass, long: true},

	{example: queues, plan: "two-crashes", want: bug, from: "(*reconciler).attempt", findings: []string{
		"invariant a-queue-is-not-given-up:", `step 2 "it is ready":`,
	}},
	{example: queues, plan: "two-crashes", variant: "fixed", want: pass},
	{example: queues, plan: "one-crash", want: pass, long: true},
	{example: queues, plan: "absent", want: bug, from: "(*reconciler).setStatus.func2",
		findings: []string{"invariant who-has-left-has-no-account:"}},
	{example: queues, plan: "absent", variant: "fixed", want: pass},
	{example: queues, plan: "another-one", want: bug, from: "(*reconciler).setStatus.func2",
		findings: []string{"invariant a-ready-queue-has-accounts:"}},
	{example: queues, plan: "another-one", variant: "fixed", want: pass},

	{example: upgrades, plan: "between-writes", want: bug, from: "(*reconciler).Reconcile",
		findings: []string{"invariant nothing-of-version-1-is-left:"}},
	{example: upgrades, plan: "between-writes", variant: "fixed", want: pass},
	{example: upgrades, plan: "after-writes", want: pass, long: true},
	{example: upgrades, plan: "there-and-back", want: pass},

	{example: copies, plan: "between-clusters", want: bug, from: "(*copier).copy",
		findings: []string{"invariant what-asks-for-a-copy-has-one:"}},
	{example: copies, plan: "between-clusters", variant: "fixed", want: pass},
	{example: copies, plan: "after-both", want: pass, long: true},
	{example: copies, plan: "partition", want: bug, findings: []string{"invariant what-asks-for-a-copy-has-one:"}},
	{example: copies, plan: "partition", variant: "fixed", want: pass},
	{example: copies, plan: "stale-copy", want: bug, from: "(*copier).remove",
		findings: []string{"invariant a-pinned-copy-is-kept:"}},
	{example: copies, plan: "stale-copy", variant: "fixed", want: pass},
	{example: copies, plan: "stale-restart", want: bug, from: "(*copier).remove",
		findings: []string{"invariant a-pinned-copy-is-kept:"}},
	{example: copies, plan: "stale-restart", variant: "fixed", want: pass, long: true},
	{example: copies, plan: "lost-answer", want: bug, long: true,
		findings: []string{"invariant what-asks-for-a-copy-has-one:"}},
	{example: copies, plan: "lost-answer", variant: "fixed", want: pass},
	{example: copies, plan: "stale-original", want: pass, long: true},
	{example: copies, plan: "upgrade", want: pass},
	{example: copies, plan: "rollback", want: bug, from: "(*copier).copy",
		findings: []string{"invariant what-asks-for-a-copy-has-one:"}},
	{example: copies, plan: "rollback", variant: "fixed", want: pass, long: true},
	{example: copies, plan: "cycle", want: pass},

	{example: nodeCycling, plan: "kill-while-cycling", want: pass},
	{example: nodeCycling, plan: "killed-at-terminate", want: pass, long: true},
	{example: nodeCycling, plan: "cycle-ended-early", want: pass},
	{example: nodeCycling, plan: "cycle-without-budget", want: bug,
		findings: []string{"invariant two-members-are-ready:"}},

	{example: cyclers, plan: "killed-before-detach", want: pass, long: true},
	{example: cyclers, plan: "killed-after-detach", want: pass},
	{example: cyclers, plan: "killed-after-terminate", want: pass, long: true},
	{example: cyclers, plan: "planned-cycle", want: pass},

	{example: statefulset, plan: "kill-between-creations", want: pass},
	{example: statefulset, plan: "missed-scale", want: pass, long: true},
	{example: statefulset, plan: "missed-deletion", want: pass, long: true},
	{example: statefulset, plan: "stale-restart", want: bug, findings: []string{"invariant wanted-pods-are-kept:"},
		reason: "it acts on an old StatefulSet; the mitigation compares with the process's own writes, " +
			"and this one has written nothing"},
	{example: statefulset, plan: "stale-restart", variant: "unmitigated", want: bug, long: true,
		findings: []string{"invariant wanted-pods-are-kept:"}},
	{example: statefulset, plan: "stale-restart", variant: "as-shipped", want: inconclusive, long: true,
		findings: []string{"no controller was shown stale state: statefulset-controller was started at apiserver-3"},
		reason:   "a streaming list from an API server that is behind fails, so nothing old is seen"},
	{example: statefulset, plan: "stale-cut", want: inconclusive, long: true,
		findings: []string{"no controller was shown stale state: statefulset-controller was"},
		reason:   "client-go asks for nothing older than what it has seen"},
	{example: statefulset, plan: "stale-cut", variant: "unmitigated", want: inconclusive, long: true,
		findings: []string{"no controller was shown stale state: statefulset-controller was"}},

	{example: disruptions, plan: "killed-while-injecting", want: pass, long: true},
	{example: disruptions, plan: "killed-while-removing", want: pass},

	{example: remotes, plan: "killed-between-clusters", want: pass},
	{example: remotes, plan: "partition", want: pass},
}

// name is the example's, the plan's and, if there is one, the variant's.
func (p examplePlan) name() string {
	return strings.TrimSuffix(p.example+"/"+p.plan+"/"+p.variant, "/")
}

// args are those of the command that runs it, with the examples in a directory.
func (p examplePlan) args(examples, recordDir string) []string {
	args := []string{"-p", filepath.Join(examples, p.example, "plans", p.plan+".yaml"), "--record", recordDir}
	if p.variant != "" {
		args = append(args, "--variant", p.variant)
	}
	return args
}

// builtIn is where trommel is built for the tests.
var builtIn string

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(builtIn)
	os.Exit(code)
}

var builtOnce = sync.OnceValue(func() (err error) {
	if builtIn, err = os.MkdirTemp("", "trommel-examples"); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-o", builtIn, "./cmd/trommel")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build trommel: %w\n%s", err, out)
	}
	return nil
})

// buildTrommel builds trommel, once for all tests, and returns its path.
func buildTrommel(t *testing.T) string {
	t.Helper()
	if err := builtOnce(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(builtIn, "trommel")
}

// runTrommel runs a command in a directory to its end, for no longer than the timeout, and returns its exit code and
// its output.
func runTrommel(t *testing.T, trommel, dir string, timeout time.Duration, args ...string) (code int, out []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, trommel, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its control plane
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out
}

// Every plan of the examples is listed, and valid with its suite and the suite's manifests.
func TestPlansAreValid(t *testing.T) {
	files, err := filepath.Glob("*/plans/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d plans found, %v", len(files), err)
	}
	for _, file := range files {
		dir, name := filepath.Dir(filepath.Dir(file)), strings.TrimSuffix(filepath.Base(file), ".yaml")
		listed := slices.ContainsFunc(plans, func(p examplePlan) bool { return p.example == dir && p.plan == name })
		if listed == (unstable[dir+"/"+name] != "") {
			t.Errorf("%s must be either in the list of plans or in that of unstable ones", file)
		}
	}
	suites, err := filepath.Glob("kubernetes-controllers/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// Plans are checked against the suites beside them.
	args := append([]string{"validate"}, suites...)
	for _, dir := range []string{database, tokens, ports, queues, statefulset, disruptions, nodeCycling, cyclers} {
		args = append(args, filepath.Join(dir, "trommel.yaml"), filepath.Join(dir, "plans"))
	}
	if code, out := runTrommel(t, buildTrommel(t), ".", 2*time.Minute, args...); code != pass {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// TestPlans runs the plans of the examples; with TROMMEL_TEST_LONG all of them. The plans of an example and variant
// share a control plane. The first run builds it, which takes minutes.
func TestPlans(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	testPlans(t, buildTrommel(t))
}

// TestPlansWithoutNetwork runs the same in a network of their own that has loopback and no route: nothing of Trommel,
// the control plane and the examples needs another machine.
func TestPlansWithoutNetwork(t *testing.T) {
	if os.Getenv("TROMMEL_TEST_LONG") == "" {
		t.Skip("not without TROMMEL_TEST_LONG")
	}
	isolated := []string{"unshare", "--user", "--map-root-user", "--net",
		"sh", "-ec", `ip link set lo up; exec "$@"`, "sh"}
	if out, err := exec.Command(isolated[0], append(isolated[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no network namespace here: %v %s", err, out)
	}
	testPlans(t, isolated[0], append(isolated[1:], buildTrommel(t))...)
}

// testPlans runs the plans with a command that gets the arguments of trommel behind its own.
func testPlans(t *testing.T, command string, first ...string) {
	examples, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	type session struct{ example, variant string }
	groups := map[session][]examplePlan{}
	var order []session
	for _, p := range plans {
		if p.long && os.Getenv("TROMMEL_TEST_LONG") == "" {
			continue
		}
		s := session{p.example, p.variant}
		if groups[s] == nil {
			order = append(order, s)
		}
		groups[s] = append(groups[s], p)
	}
	for _, s := range order {
		t.Run(strings.TrimSuffix(s.example+"/"+s.variant, "/"), func(t *testing.T) {
			t.Parallel()
			args := slices.Clone(first)
			for _, p := range groups[s] {
				args = append(args, "-p", filepath.Join(examples, p.example, "plans", p.plan+".yaml"))
			}
			if s.variant != "" {
				args = append(args, "--variant", s.variant)
			}
			dir := t.TempDir()
			// Long enough for a cold build of the control plane.
			_, out := runTrommel(t, command, dir, 15*time.Minute, args...)
			for _, p := range groups[s] {
				t.Run(p.plan, func(t *testing.T) {
					records, err := filepath.Glob(filepath.Join(dir, "trommel-runs", p.plan+"-*"))
					if err != nil || len(records) != 1 {
						t.Fatalf("records %v, %v\n%s", records, err, out)
					}
					code, err := recordedCode(records[0])
					if err == nil {
						err = p.check(code, records[0])
					}
					if err == nil && s.example == disruptions {
						err = livesByItsClock(records[0])
					}
					if err != nil {
						t.Errorf("%v\n%s", err, out)
					}
				})
			}
		})
	}
}

// livesByItsClock checks that no program without the run's clock kept time real.
func livesByItsClock(recordDir string) error {
	data, err := os.ReadFile(filepath.Join(recordDir, "meta.json"))
	if err != nil {
		return err
	}
	var meta struct {
		Clock struct{ Virtual bool }
		Notes []string
	}
	if err := json.Unmarshal(data, &meta); err != nil {
		return err
	}
	if kept := slices.IndexFunc(meta.Notes, func(note string) bool {
		return strings.Contains(note, "does not have the run's clock")
	}); kept >= 0 && meta.Clock.Virtual {
		return errors.New(meta.Notes[kept])
	}
	return nil
}

// recordedCode is the exit code of the recorded run's verdict.
func recordedCode(recordDir string) (int, error) {
	data, err := os.ReadFile(filepath.Join(recordDir, "meta.json"))
	if err != nil {
		return 0, err
	}
	var meta struct{ Verdict string }
	if err := json.Unmarshal(data, &meta); err != nil {
		return 0, err
	}
	code, ok := map[string]int{"pass": pass, "bug": bug, "inconclusive": inconclusive, "error": cannotRun}[meta.Verdict]
	if !ok {
		return 0, fmt.Errorf("%s: unknown verdict %q", recordDir, meta.Verdict)
	}
	return code, nil
}

// finding is what the run record holds of one.
type finding struct {
	Severity, Title string
	Judge           string `json:"judge"`
	Callers         []struct{ Function, File string }
}

// check compares how a run ended with what the plan must come to.
func (p examplePlan) check(code int, recordDir string) error {
	if code != p.want {
		return fmt.Errorf("exit code %d, not %d (%s)", code, p.want, p.reason)
	}
	findings, err := readFindings(recordDir)
	if err != nil {
		return err
	}
	if p.from != "" && !slices.ContainsFunc(findings, func(f finding) bool {
		return len(f.Callers) > 0 && strings.HasSuffix(f.Callers[0].Function, "."+p.from) && f.Callers[0].File != ""
	}) {
		err = fmt.Errorf("no finding names the function %s: %+v", p.from, findings)
	}
	return errors.Join(err, p.compare(findings))
}

func readFindings(recordDir string) ([]finding, error) {
	data, err := os.ReadFile(filepath.Join(recordDir, "findings.json"))
	if err != nil {
		return nil, err
	}
	var findings []finding
	err = json.Unmarshal(data, &findings)
	// Notes say what may be meant so.
	return slices.DeleteFunc(findings, func(f finding) bool { return f.Severity == "note" }), err
}

// compare compares the findings' titles: a bug that was found for another reason is none of the example's.
func (p examplePlan) compare(findings []finding) error {
	var errs []error
	for _, f := range findings {
		if !slices.ContainsFunc(p.findings, func(want string) bool { return strings.HasPrefix(f.Title, want) }) {
			errs = append(errs, fmt.Errorf("unexpected finding: %s", f.Title))
		}
	}
	for _, want := range p.findings {
		if !slices.ContainsFunc(findings, func(f finding) bool { return strings.HasPrefix(f.Title, want) }) {
			errs = append(errs, fmt.Errorf("no finding %q", want))
		}
	}
	return errors.Join(errs...)
}
