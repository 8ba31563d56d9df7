package operators

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// envLong turns on all plans, and eight runs at once; `make long` sets it. Without it two plans of each operator run,
// which together cover all six kinds.
const envLong = "TROMMEL_TEST_LONG"

// envOperators names the operators to test, separated by commas. Default: all; CI tests one.
const envOperators = "TROMMEL_TEST_OPERATORS"

// mostChanges limits how many lines of the output of `trommel init` need a change before all six plans run.
const mostChanges = 15

// expected is the result that a plan must have.
type expected struct {
	plan     string
	short    bool // runs without envLong too
	verdict  record.Verdict
	findings []string // prefixes of all titles
	stale    bool     // the controller was shown stale state
	conflict bool     // a write of the controller was refused with 409
	log      string   // the controller's log has a line that this matches
	note     string   // one of the run's notes matches this
	reason   string   // why this result is right
}

// edit is a change that a user makes to the repository before `trommel init`.
type edit struct {
	file, pattern, replacement string
}

type operator struct {
	name  string
	edits []edit
	plans []expected
}

const leaderElectionLost = "lost its leader election and exited: exit code 1, " +
	"while the plan had killed its API server apiserver-1"

var operators = []operator{
	{
		// It creates the certificates of its webhooks itself.
		name: "jobset",
		plans: []expected{
			{plan: "restart-after-write", verdict: record.Pass},
			{plan: "kill-before-write", verdict: record.Pass},
			{
				plan: "stale-read", short: true, verdict: record.Bug, stale: true,
				findings: []string{"invariant jobs-of-a-running-jobset-run: "},
				reason: "it suspends the Jobs because the JobSet in its cache says so; the API server does not " +
					"refuse that, because the Jobs' versions are current",
			},
			{plan: "unobserved-change", verdict: record.Pass},
			{plan: "conflict", short: true, verdict: record.Pass, conflict: true},
			{plan: "api-server-away", verdict: record.Pass, note: leaderElectionLost},
		},
	},
	{
		// Its webhooks have certificates of cert-manager, which is not installed.
		name: "lws",
		// As its kustomization says for cert-manager: comment out its own certificates, and uncomment the rest.
		edits: []edit{
			{"config/default/kustomization.yaml", `(?m)^- \.\./internalcert$`, "#$0"},
			{"config/default/kustomization.yaml", `(?m)^#(- \.\./certmanager)$`, "$1"},
			{"config/default/kustomization.yaml", `(?m)^#(- path: webhookcainjection_patch\.yaml)$`, "$1"},
			{
				"config/default/kustomization.yaml",
				`(?m)^# (- path: cert_metrics_manager_patch\.yaml\n)#(  target:\n)#(    kind: Deployment)$`, "$1$2$3",
			},
			{"config/default/kustomization.yaml", `(?m)^#(replacements:|  - source:.*|   .*)$`, "$1"},
			{"config/manager/controller_manager_config.yaml", `(internalCertManagement:\n  enable:) true`, "$1 false"},
		},
		plans: []expected{
			{plan: "restart-after-write", verdict: record.Pass},
			{plan: "kill-before-write", short: true, verdict: record.Pass},
			{
				plan: "stale-read", verdict: record.Bug, stale: true,
				findings: []string{"invariant wanted-groups-are-kept: "},
				reason: "it applies the StatefulSet as the set in its cache says, with force and without a version: " +
					"needed groups are deleted",
			},
			{plan: "unobserved-change", short: true, verdict: record.Pass},
			{plan: "conflict", verdict: record.Pass, conflict: true},
			{plan: "api-server-away", verdict: record.Pass, note: leaderElectionLost},
		},
	},
	{
		// Without controller-runtime.
		name: "mpi-operator",
		plans: []expected{
			{plan: "restart-after-write", short: true, verdict: record.Pass},
			{plan: "kill-before-write", verdict: record.Pass},
			{
				plan: "stale-read", verdict: record.Pass, stale: true,
				log: `tensorflow-mnist-worker-0.* already exists and is not managed by MPIJob`,
				reason: "it wants to delete the workers of the MPIJob that it considers finished, and sees that they " +
					"have another owner",
			},
			{plan: "unobserved-change", verdict: record.Pass},
			{plan: "conflict", verdict: record.Pass, conflict: true},
			{plan: "api-server-away", short: true, verdict: record.Pass},
		},
	},
}

// TestOperators takes third-party operators from their source to a verdict, as a new user does: with `trommel init`, a
// few changed lines in the suite, and six plans.
func TestOperators(t *testing.T) {
	if testing.Short() {
		t.Skip("builds operators and starts control planes")
	}
	trommel := buildTrommel(t)
	for _, o := range operators {
		t.Run(o.name, func(t *testing.T) {
			if names := os.Getenv(envOperators); names != "" && !slices.Contains(strings.Split(names, ","), o.name) {
				t.Skipf("%s is %s", envOperators, names)
			}
			dir := prepare(t, trommel, o)
			for _, want := range o.plans {
				t.Run(want.plan, func(t *testing.T) {
					if !want.short && os.Getenv(envLong) == "" {
						t.Skip("not without " + envLong)
					}
					run(t, trommel, dir, want)
				})
			}
		})
	}
}

// TestEightRunsAtOnce runs two operators, four plans each, at once: their control planes, ports and builds must not
// conflict.
func TestEightRunsAtOnce(t *testing.T) {
	if os.Getenv(envLong) == "" {
		t.Skip("not without " + envLong)
	}
	trommel := buildTrommel(t)
	var wg sync.WaitGroup
	start := time.Now()
	for _, o := range operators[:2] {
		dir := prepare(t, trommel, o)
		for _, want := range o.plans[:4] {
			wg.Go(func() { run(t, trommel, dir, want) })
		}
	}
	wg.Wait()
	t.Logf("eight runs at once took %s", time.Since(start).Round(time.Second))
}

func buildTrommel(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trommel")
	build := exec.Command("go", "build", "-o", path, "./cmd/trommel")
	build.Dir = Root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build trommel: %v\n%s", err, out)
	}
	return path
}

// prepare unpacks the operator and returns its directory, with a suite and the plans in it.
func prepare(t testing.TB, trommel string, o operator) string {
	t.Helper()
	dir := Unpack(t, o.name)
	for _, e := range o.edits {
		file := filepath.Join(dir, e.file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		changed := regexp.MustCompile(e.pattern).ReplaceAll(text, []byte(e.replacement))
		if bytes.Equal(text, changed) {
			t.Fatalf("%s has nothing like %s", e.file, e.pattern)
		}
		if err := os.WriteFile(file, changed, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	command(t, dir, trommel, "init")

	laidOver := filepath.Join(Root(t), "testdata", "operators", o.name)
	patch := filepath.Join(laidOver, "suite.patch")
	text, err := os.ReadFile(patch)
	if err != nil {
		t.Fatal(err)
	}
	if n := changedLines(string(text)); n > mostChanges {
		t.Errorf("%s changes %d lines, more than %d", patch, n, mostChanges)
	}
	command(t, dir, "git", "apply", patch)
	if err := os.CopyFS(filepath.Join(dir, "trommel-plans"), os.DirFS(filepath.Join(laidOver, "plans"))); err != nil {
		t.Fatal(err)
	}
	command(t, dir, trommel, "validate", "trommel-plans")
	return dir
}

func command(t testing.TB, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	// Git must not look for a repository above.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
}

// changedLines counts the lines of a patch that are changed, added or removed; a replaced line counts once.
func changedLines(patch string) int {
	changes, added, removed := 0, 0, 0
	for line := range strings.Lines(patch) {
		switch {
		case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "+++"):
		case strings.HasPrefix(line, "+"):
			added++
		case strings.HasPrefix(line, "-"):
			removed++
		default:
			changes += max(added, removed)
			added, removed = 0, 0
		}
	}
	return changes + max(added, removed)
}

// run runs a plan and checks the result. It is safe for concurrent use.
func run(t *testing.T, trommel, dir string, want expected) {
	t.Helper()
	// Long enough for a cold build of the operator on a busy machine.
	ctx, cancel := context.WithTimeout(context.Background(), 18*time.Minute)
	defer cancel()
	name := filepath.Base(dir) + "/" + want.plan
	dirOfRecord := filepath.Join(t.TempDir(), "record")
	plan := filepath.Join("trommel-plans", want.plan+".yaml")
	cmd := exec.CommandContext(ctx, trommel, "-p", plan, "--record", dirOfRecord)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it stops its control plane
	cmd.WaitDelay = time.Minute
	start := time.Now()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Errorf("%s: %v\n%s", name, err, out)
		return
	}
	mistakes := compare(cmd.ProcessState.ExitCode(), dirOfRecord, want)
	for _, m := range mistakes {
		t.Errorf("%s: %s", name, m)
	}
	if len(mistakes) > 0 {
		t.Logf("%s\n%s", name, out)
	}
	t.Logf("%s took %s", name, time.Since(start).Round(time.Second))
}

// compare returns the differences from the expected result.
func compare(exitCode int, dir string, want expected) (mistakes []string) {
	mistake := func(format string, args ...any) { mistakes = append(mistakes, fmt.Sprintf(format, args...)) }
	if code := map[record.Verdict]int{record.Pass: 0, record.Bug: 1}[want.verdict]; exitCode != code {
		mistake("exit code %d, want %d: %s", exitCode, code, want.reason)
	}
	r, err := record.Open(dir)
	if err != nil {
		mistake("%v", err)
		return mistakes
	}
	if r.Meta.Verdict != want.verdict || r.Meta.ActionsFired != r.Meta.ActionsTotal {
		mistake("%s, %d of %d actions fired", r.Meta.Verdict, r.Meta.ActionsFired, r.Meta.ActionsTotal)
	}
	for _, f := range r.Findings {
		if f.Severity == record.SeverityNote {
			continue
		}
		if !slices.ContainsFunc(want.findings, func(title string) bool { return strings.HasPrefix(f.Title, title) }) {
			mistake("unexpected finding: %s", f.Title)
		}
	}
	for _, title := range want.findings {
		if !slices.ContainsFunc(r.Findings, func(f record.Finding) bool { return strings.HasPrefix(f.Title, title) }) {
			mistake("no finding %q", title)
		}
	}
	if got := len(r.Meta.StaleReads) > 0; got != want.stale {
		mistake("shown stale state: %t, want %t", got, want.stale)
	}
	if want.conflict && !slices.ContainsFunc(r.Events, func(e record.Event) bool {
		o := e.Observation
		return o != nil && o.Point == wire.ControllerWrite && o.Phase == wire.After &&
			o.Resource != "leases" && o.Code == http.StatusConflict
	}) {
		mistake("no write of the controller was refused")
	}
	if want.note != "" && !slices.ContainsFunc(r.Meta.Notes, regexp.MustCompile(want.note).MatchString) {
		mistake("no note like %q among %q", want.note, r.Meta.Notes)
	}
	if want.log != "" {
		logs, err := filepath.Glob(filepath.Join(dir, record.LogsDir, r.Meta.Controllers[0].Name+"-*.log"))
		if err != nil {
			mistake("%v", err)
		}
		var all []byte
		for _, file := range logs {
			text, err := os.ReadFile(file)
			if err != nil {
				mistake("%v", err)
			}
			all = append(all, text...)
		}
		if !regexp.MustCompile(want.log).Match(all) {
			mistake("%d logs of the controller without %q", len(logs), want.log)
		}
	}
	return mistakes
}
