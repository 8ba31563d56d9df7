package trommeltest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// Run runs a plan and returns its result. A bug is reported with Error: then the result says what was found. An
// inconclusive run and a plan that cannot be run end the test with Fatal, so Run must be called from the test's
// goroutine. See [Expect] for plans whose verdict is known to be another one. Options add to those of the harness.
//
// Run waits while the tests that run in parallel use as many clusters as the machine can serve. It builds what is
// needed: the control plane takes minutes the first time, and is then in the cache. It ends in time before the
// deadline of the test (go test -timeout), with Fatal.
func (h *Harness) Run(tb testing.TB, p *build.PlanBuilder, options ...Option) *Result {
	tb.Helper()
	if p == nil {
		tb.Fatal("trommeltest: the plan is nil")
	}
	built, err := p.Build()
	if err != nil {
		tb.Fatalf("trommeltest: %v", err)
	}
	return h.RunPlan(tb, built, options...)
}

// RunFile is [Harness.Run] for a plan in a file, whose path is relative to the package's directory. The plan's field
// suite has no effect.
func (h *Harness) RunFile(tb testing.TB, file string, options ...Option) *Result {
	tb.Helper()
	suite, _, err := h.withWorkloads()
	if err != nil {
		tb.Fatalf("trommeltest: %v", err)
	}
	p, err := plan.LoadWith(file, suite)
	if err != nil {
		tb.Fatalf("trommeltest: %v", err)
	}
	return h.RunPlan(tb, p, options...)
}

// RunPlan is [Harness.Run] for a plan that is complete or that only lacks what depends on the suite. It completes the
// plan, see [plan.Plan.Complete].
func (h *Harness) RunPlan(tb testing.TB, p *plan.Plan, options ...Option) *Result {
	tb.Helper()
	skip(tb)
	j, err := h.prepare(p, options)
	if err != nil {
		tb.Fatalf("trommeltest: %v", err)
	}
	ctx, cancel := untilDeadline(tb)
	defer cancel()
	dir, err := newRecordDir(tb, j.name())
	if err != nil {
		tb.Fatalf("trommeltest: %v", err)
	}
	r, err := j.run(ctx, tb, dir)
	if err != nil {
		tb.Fatalf("%s: could not run: %v", j.name(), err)
	}
	j.judge(tb, r)
	return &Result{tb: tb, run: r}
}

// job is a plan that is ready to run.
type job struct {
	settings settings
	suite    *plan.Suite // of the session: without Go workloads
	variant  string
	plan     *plan.Plan
	how      run.RunOptions
}

func (j *job) name() string {
	if j.variant != "" {
		return j.plan.TestName + "-" + j.variant
	}
	return j.plan.TestName
}

// prepare checks everything that can be checked without a cluster.
func (h *Harness) prepare(p *plan.Plan, options []Option) (*job, error) {
	suite, functions, err := h.withWorkloads()
	if err != nil {
		return nil, err
	}
	j := &job{settings: h.settings.with(options), suite: h.suite}
	p.Complete(suite)
	if err := p.Validate(suite); err != nil {
		return nil, fmt.Errorf("plan %q: %w", p.TestName, err)
	}
	if j.variant = j.settings.variant; j.variant == "" {
		j.variant = p.Variant
	}
	if _, err := run.Choose(suite, j.variant); err != nil {
		return nil, err
	}
	for _, text := range j.settings.history {
		key, err := plan.ParseResourceKey(text)
		if err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
		j.how.History = append(j.how.History, key)
	}
	j.how.Trace, j.how.Functions = j.settings.trace, functions
	// Workloads that only this program has become a part of the plan, so that the record shows what ran.
	copied := *p
	if w, ok := suite.Workloads[p.Workload]; ok && len(h.suite.Workloads[p.Workload].Steps) == 0 &&
		len(h.suite.Workloads[p.Workload].Command) == 0 {
		copied.Workload, copied.Steps = "", w.Steps
	}
	j.plan = &copied
	return j, nil
}

// run runs the plan on a cluster of the pool.
func (j *job) run(ctx context.Context, tb testing.TB, dir string) (*record.Run, error) {
	s, err := clusters.acquire(ctx, tb, j.suite, j.variant, j.settings.fresh)
	if err != nil {
		return nil, late(ctx, err)
	}
	defer clusters.release(s)
	s.relay.title(j.name())
	meta, err := s.session.RunConfirmed(ctx, j.plan, dir, j.how)
	if meta == nil || err != nil {
		return nil, late(ctx, err)
	}
	return record.Open(dir)
}

// late says why the context has ended, if that is why something failed.
func late(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// untilDeadline returns a context that ends in time to tear down and to report before the test's deadline.
func untilDeadline(tb testing.TB) (context.Context, context.CancelFunc) {
	timed, ok := tb.(interface {
		Deadline() (deadline time.Time, ok bool)
	})
	if !ok {
		return context.WithCancel(tb.Context())
	}
	deadline, ok := timed.Deadline()
	if !ok {
		return context.WithCancel(tb.Context())
	}
	return context.WithDeadlineCause(tb.Context(), deadline.Add(-reserve(time.Until(deadline))), errors.New(
		"the time limit of the tests is nearly over: give them more with go test -timeout, and build the control "+
			"plane before them with `trommel build --control-plane`"))
}

// reserve is the time that is kept for the teardown of a run.
func reserve(left time.Duration) time.Duration { return min(30*time.Second, left/5) }

// judge turns a run's verdict into the test's.
func (j *job) judge(tb testing.TB, r *record.Run) {
	tb.Helper()
	text := textOf(r)
	want := j.settings.expect
	if want == "" {
		want = Pass
	}
	switch got := r.Meta.Verdict; {
	case got == Inconclusive && want != Inconclusive:
		tb.Fatalf("%s", text)
	case got == Bug && want == Bug:
		wrong := j.unexpected(r)
		if r.Meta.NotHappened() != "" {
			wrong = append(wrong, "the plan was not carried out, so the bug is not the plan's")
		}
		if len(wrong) > 0 {
			tb.Errorf("%s is not as expected: %s\n%s", j.name(), strings.Join(wrong, "; "), text)
			return
		}
		tb.Logf("%s: bug, as expected: %s", j.name(), strings.Join(titles(r), "; "))
	case got == want:
	case got == Bug:
		tb.Errorf("%s", text)
	case got == Pass && want == Bug:
		tb.Errorf("%s: pass, but a bug is expected: if it is mended, leave Expect out\n%s", j.name(), text)
	case got == Pass, got == Inconclusive:
		tb.Errorf("%s: %s, but %s is expected\n%s", j.name(), got, want, text)
	default:
		tb.Fatalf("%s: could not run: %s", j.name(), text)
	}
}

// unexpected compares the bugs that were found with those that Expect names.
func (j *job) unexpected(r *record.Run) []string {
	if len(j.settings.findings) == 0 {
		return nil
	}
	var wrong []string
	for _, name := range j.settings.findings {
		if !slices.ContainsFunc(r.Findings, func(f record.Finding) bool { return f.IsBug() && f.Of(name) }) {
			wrong = append(wrong, fmt.Sprintf("there is no finding %q", name))
		}
	}
	for _, f := range r.Findings {
		named := func(name string) bool { return f.Of(name) }
		if f.IsBug() && !slices.ContainsFunc(j.settings.findings, named) {
			wrong = append(wrong, "there is also: "+f.Title)
		}
	}
	return wrong
}

func titles(r *record.Run) []string {
	var all []string
	for _, f := range r.Findings {
		if f.IsBug() {
			all = append(all, f.Title)
		}
	}
	return all
}

func textOf(r *record.Run) string {
	var b strings.Builder
	if err := report.Text(&b, r); err != nil {
		return err.Error()
	}
	return strings.TrimRight(b.String(), "\n")
}

// Result is the result of a run.
type Result struct {
	tb  testing.TB
	run *record.Run
}

// Verdict is the run's verdict.
func (r *Result) Verdict() Verdict { return r.run.Meta.Verdict }

// Findings are what the run has found, without notes.
func (r *Result) Findings() []record.Finding {
	return slices.DeleteFunc(slices.Clone(r.run.Findings),
		func(f record.Finding) bool { return f.Severity == record.SeverityNote })
}

// Finding returns the first finding of that name, or nil: the name of an invariant, of a judge ("crash", "workload",
// see docs/findings.md), or of what it is about, such as "statefulset/default/db".
func (r *Result) Finding(name string) *record.Finding {
	for _, f := range r.Findings() {
		if f.Of(name) {
			return &f
		}
	}
	return nil
}

// History returns every state of the objects that the resource key stands for, such as "secret/default/*", in the order
// in which etcd has stored them. The run must have recorded them: the suite's history or the option [History] names
// their type, or the plan or an invariant does. If not, the test ends with Fatal.
func (r *Result) History(key string) []record.HistoryEntry {
	r.tb.Helper()
	k, err := plan.ParseResourceKey(key)
	if err != nil {
		r.tb.Fatalf("trommeltest: history: %v", err)
	}
	if !r.recorded(k) {
		r.tb.Fatalf("trommeltest: history: %s was not recorded (recorded: %s): name it with trommeltest.History(%q), "+
			"or in the suite's history", key, strings.Join(r.run.Meta.Recorded, ", "), key)
	}
	var all []record.HistoryEntry
	for _, e := range r.run.History {
		if k.Matches(e.Type, e.Group, true, e.Namespace, e.Name) {
			all = append(all, e)
		}
	}
	return all
}

func (r *Result) recorded(k plan.ResourceKey) bool {
	return slices.ContainsFunc(r.run.Meta.Recorded, func(text string) bool {
		recorded, err := plan.ParseResourceKey(text)
		return err == nil && recorded.Type == k.Type &&
			(recorded.Group == k.Group || recorded.Group == "" || k.Group == "")
	})
}

// Record is all that the run has recorded; Dir is its directory, which is removed after a test that passes, unless
// -trommel.keep is set.
func (r *Result) Record() *record.Run { return r.run }

// commands are how people look at a record.
func commands(dir string) string {
	return fmt.Sprintf("the record of the run is in %s\n"+
		"  trommel explain %s\n"+
		"  trommel report -o html %s >%s", dir, quote(dir), quote(dir), quote(filepath.Join(dir, report.TimelineFile)))
}

// quote makes a word of a shell's command.
func quote(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
