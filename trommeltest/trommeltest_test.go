package trommeltest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// spy is a test that writes down what becomes of it.
type spy struct {
	testing.TB
	name     string
	log      []string
	failed   bool
	cleanups []func()
}

func (s *spy) Helper()                 {}
func (s *spy) Name() string            { return s.name }
func (s *spy) Failed() bool            { return s.failed }
func (s *spy) Cleanup(f func())        { s.cleanups = append(s.cleanups, f) }
func (s *spy) Log(args ...any)         { s.log = append(s.log, "log: "+fmt.Sprint(args...)) }
func (s *spy) Logf(f string, a ...any) { s.log = append(s.log, "log: "+fmt.Sprintf(f, a...)) }
func (s *spy) Errorf(f string, a ...any) {
	s.failed = true
	s.log = append(s.log, "error: "+fmt.Sprintf(f, a...))
}

// ended is the panic of a spy's Fatal.
type ended struct{}

func (s *spy) Fatalf(f string, a ...any) {
	s.failed = true
	s.log = append(s.log, "fatal: "+fmt.Sprintf(f, a...))
	panic(ended{})
}

// run calls a test's body and then its cleanups.
func (s *spy) run(body func()) {
	func() {
		defer func() {
			if v := recover(); v != nil && v != any(ended{}) {
				panic(v)
			}
		}()
		body()
	}()
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}

func meta(v record.Verdict, reason string) record.Meta {
	return record.Meta{Plan: "p", Verdict: v, Reason: reason}
}

// Each verdict becomes the right outcome of a test.
func TestJudge(t *testing.T) {
	found := func(names ...string) *record.Run {
		r := &record.Run{Meta: meta(record.Bug, "")}
		for _, name := range names {
			r.Findings = append(r.Findings, record.Finding{Severity: record.SeverityBug, Judge: record.JudgeInvariant,
				Title: "invariant " + name + ": it does not hold", Subject: "secret/default/a", Detail: "- a\n+ b"})
		}
		return r
	}
	elsewhere := found("one")
	elsewhere.Meta.Unfinished = "0 of 1 actions fired"
	for _, tt := range []struct {
		name    string
		run     *record.Run
		options []Option
		want    string // the beginning of the only line; empty: none
		says    string
	}{
		{name: "pass", run: &record.Run{Meta: meta(record.Pass, "")}},
		{name: "bug", run: found("one"), want: "error: p: bug", says: "+ b"},
		{name: "inconclusive", run: &record.Run{Meta: meta(record.Inconclusive, "0 of 1 actions fired")},
			want: "fatal: p: inconclusive", says: "0 of 1 actions fired"},
		{name: "error", run: &record.Run{Meta: meta(record.Error, "no")}, want: "fatal: p: could not run: p: error"},
		{name: "a bug that is expected", run: found("one"), options: []Option{Expect(Bug)},
			want: "log: p: bug, as expected: invariant one"},
		{name: "the bug that is expected", run: found("one"), options: []Option{Expect(Bug, "one")},
			want: "log: p: bug, as expected: invariant one"},
		{name: "another bug than expected", run: found("two"), options: []Option{Expect(Bug, "one")},
			want: `error: p is not as expected: there is no finding "one"; there is also: invariant two`},
		{name: "one more bug than expected", run: found("one", "two"), options: []Option{Expect(Bug, "one")},
			want: `error: p is not as expected: there is also: invariant two`},
		{name: "a bug that is not the plan's", run: elsewhere, options: []Option{Expect(Bug)},
			want: "error: p is not as expected: the plan was not carried out"},
		{name: "a bug that is mended", run: &record.Run{Meta: meta(record.Pass, "")}, options: []Option{Expect(Bug)},
			want: "error: p: pass, but a bug is expected"},
		{name: "inconclusive instead of a bug", run: &record.Run{Meta: meta(record.Inconclusive, "no")},
			options: []Option{Expect(Bug)}, want: "fatal: p: inconclusive"},
		{name: "inconclusive, as expected", run: &record.Run{Meta: meta(record.Inconclusive, "no")},
			options: []Option{Expect(Inconclusive)}},
		{name: "pass instead of inconclusive", run: &record.Run{Meta: meta(record.Pass, "")},
			options: []Option{Expect(Inconclusive)}, want: "error: p: pass, but inconclusive is expected"},
		{name: "bug instead of inconclusive", run: found("one"), options: []Option{Expect(Inconclusive)},
			want: "error: p: bug"},
		{name: "error instead of a bug", run: &record.Run{Meta: meta(record.Error, "no")},
			options: []Option{Expect(Bug)}, want: "fatal: p: could not run"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &spy{TB: t}
			j := &job{settings: settings{}.with(tt.options), plan: &plan.Plan{TestName: "p"}}
			s.run(func() { j.judge(s, tt.run) })
			got := strings.Join(s.log, "\n")
			if len(s.log) > 1 || !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" ||
				!strings.Contains(got, tt.says) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestResult(t *testing.T) {
	state := func(typ, name, event string) record.HistoryEntry {
		return record.HistoryEntry{Type: typ, Namespace: "default", Name: name, Event: event,
			Object: json.RawMessage(`{}`)}
	}
	s := &spy{TB: t}
	r := &Result{tb: s, run: &record.Run{
		Meta: record.Meta{Recorded: []string{"secret/*/*", "cache.example.com/*/*"}},
		History: []record.HistoryEntry{state("secret", "a", "created"), state("cache", "a", "created"),
			state("secret", "a", "updated"), state("secret", "b", "created")},
		Findings: []record.Finding{
			{Severity: record.SeverityNote, Judge: record.JudgeCrash, Title: "a note"},
			{Severity: record.SeverityBug, Judge: record.JudgeInvariant, Title: "invariant a: no",
				Subject: "secret/default/a"},
		},
	}}
	for name, want := range map[string]bool{"a": true, "invariant": true, "secret/default/a": true, "crash": false,
		"invariant a": false, "no": false} {
		if got := r.Finding(name) != nil; got != want {
			t.Errorf("finding %q: %t", name, got)
		}
	}
	for key, want := range map[string]int{"secret/default/*": 3, "secret/default/a": 2, "cache/default/*": 1,
		"cache.example.com/*/a": 0, "secret/other/*": 0} {
		if got := len(r.History(key)); got != want {
			t.Errorf("history of %s: %d states, want %d", key, got, want)
		}
	}
	for key, want := range map[string]string{
		"pod/default/*":  "fatal: trommeltest: history: pod/default/* was not recorded (recorded: secret/*/*, ",
		"pods/default/*": "fatal: trommeltest: history: \"pods/default/*\": a type must be singular",
	} {
		s.log = nil
		s.run(func() { r.History(key) })
		if len(s.log) != 1 || !strings.HasPrefix(s.log[0], want) {
			t.Errorf("history of %s: %q", key, s.log)
		}
	}
}

// suiteOf is a suite that nothing is built for.
func suiteOf(t *testing.T) *plan.Suite {
	t.Helper()
	s, err := completed(&plan.Suite{
		Controllers: []plan.Controller{Controller("op", ".")},
		Workloads:   map[string]plan.Workload{"steps": {Steps: []plan.Step{{Sleep: time.Second}}}},
		Variants:    map[string]plan.Variant{"fixed": {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func harness(t *testing.T) *Harness {
	t.Helper()
	return newHarness(t, suiteOf(t), nil)
}

func crash() *build.PlanBuilder {
	return build.RestartAfterWrite("crash", "op", build.Created("secret/default/*"))
}

// A workload that is a Go function is a part of the plan that the record shows; the suite's stay the suite's.
func TestGoWorkload(t *testing.T) {
	h := harness(t)
	called := 0
	h.Workload("mine", func(context.Context, Client) error { called++; return nil })
	WorkloadWith(h, "typed", func(*rest.Config) (int, error) { return 7, nil },
		func(_ context.Context, c int) error { called += c; return nil })
	for _, tt := range []struct{ workload, want string }{
		{"mine", "trommeltest.TestGoWorkload.func1 (trommeltest_test.go line "},
		{"typed", "trommeltest.TestGoWorkload.func3 (trommeltest_test.go line "},
		{"steps", ""},
	} {
		j, err := h.prepare(crash().Workload(tt.workload).MustBuild(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.want == "" {
			if j.plan.Workload != tt.workload || len(j.plan.Steps) > 0 {
				t.Errorf("%s: %+v", tt.workload, j.plan)
			}
			continue
		}
		if j.plan.Workload != "" || len(j.plan.Steps) != 1 || !strings.Contains(j.plan.Steps[0].Go, tt.want) {
			t.Fatalf("%s: %+v", tt.workload, j.plan)
		}
		config := &rest.Config{Host: "http://127.0.0.1:1"}
		if err := j.how.Functions[j.plan.Steps[0].Go](t.Context(), config); err != nil {
			t.Error(err)
		}
		text, err := plan.Marshal(j.plan)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := plan.Parse(text, "plan.yaml"); err != nil || again.Steps[0].Go != j.plan.Steps[0].Go {
			t.Errorf("the recorded plan: %v\n%s", err, text)
		}
	}
	if called != 8 {
		t.Errorf("the functions have added up to %d", called)
	}
}

func TestMistakes(t *testing.T) {
	for _, tt := range []struct {
		name    string
		do      func(h *Harness)
		plan    *build.PlanBuilder
		options []Option
		want    string
	}{
		{"no function", func(h *Harness) { h.WorkloadREST("a", nil) }, crash(), nil, `workload "a": a function is nil`},
		{"no client", func(h *Harness) {
			WorkloadWith(h, "a", nil, func(context.Context, int) error { return nil })
		}, crash(), nil, `workload "a": a function is nil`},
		{"no name", func(h *Harness) { h.Workload("", func(context.Context, Client) error { return nil }) },
			crash(), nil, "a workload has no name"},
		{"the suite's name", func(h *Harness) {
			h.Workload("steps", func(context.Context, Client) error { return nil })
		}, crash(), nil, `workload "steps": the suite has one of that name`},
		{"unknown workload", func(*Harness) {}, crash().Workload("other"), nil,
			`plan "crash": workload: unknown workload "other" (the suite has: steps)`},
		{"unknown variant", func(*Harness) {}, crash(), []Option{Variant("other")},
			`unknown variant "other" (the suite has: fixed)`},
		{"history", func(*Harness) {}, crash(), []Option{History("secrets/default/*")},
			`history: "secrets/default/*": a type must be singular; write secret/default/*`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := harness(t)
			tt.do(h)
			if _, err := h.prepare(tt.plan.MustBuild(), tt.options); err == nil || err.Error() != tt.want {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
		})
	}
}

// The plan of a seed is complete and valid, also if the workload's name is invalid for plans.
func TestOrderOfASeed(t *testing.T) {
	h := harness(t)
	h.Workload("mine, in Go", func(context.Context, Client) error { return nil })
	for workload, want := range map[string]string{"steps": "steps-order-7", "mine, in Go": "mine,_in_Go-order-7"} {
		j, err := h.prepare(orderOf(workload, 7), nil)
		if err != nil {
			t.Fatal(err)
		}
		if s := j.plan.Schedule; j.name() != want || s.Strategy != plan.Swarm || s.Seed != 7 {
			t.Errorf("%s: plan %s, schedule %+v", workload, j.name(), s)
		}
	}
}

// Mistakes in a suite that was built in Go have no lines.
func TestMistakesInSuite(t *testing.T) {
	_, err := completed(&plan.Suite{Controllers: []plan.Controller{{}}})
	const want = "the suite: the controller has no name\ncontroller \"\" has neither build nor binary"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestSuiteInGo(t *testing.T) {
	crds := t.TempDir()
	s, err := completed(FromEnvtest(Controller("op", "example.com/op/cmd"), crds, crds))
	if err != nil {
		t.Fatal(err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(wd, "suite-built-in-go"); s.File != want {
		t.Errorf("file %s, want %s", s.File, want)
	}
	if b := s.Controllers[0].Build; b.Dir != "." || b.Package != "example.com/op/cmd" {
		t.Errorf("import path: %+v", b)
	}
	if b := Controller("op", crds).Build; b.Dir != crds || b.Package != "" {
		t.Errorf("directory: %+v", b)
	}
	if diff := cmp.Diff([]plan.Manifest{{Path: crds}, {Path: crds}}, s.Manifests); diff != "" {
		t.Error(diff)
	}
	if s.Timeouts.Plan == 0 || len(s.Text()) == 0 {
		t.Error("the suite is not complete")
	}
}

// Records are kept if the test fails, and removed otherwise, as are those of earlier processes.
func TestRecordDirs(t *testing.T) {
	t.Chdir(t.TempDir())
	run := func(name string, fail bool) (dirs []string, log string) {
		s := &spy{TB: t, name: name}
		s.run(func() {
			for range 2 {
				dir, err := newRecordDir(s, "p/q")
				if err != nil {
					t.Fatal(err)
				}
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				dirs = append(dirs, dir)
			}
			s.failed = fail
		})
		return dirs, strings.Join(s.log, "\n")
	}
	there := func(dir string) bool { _, err := os.Stat(dir); return err == nil }

	old := filepath.Join(".trommel", "TestA_sub", "old")
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	dirs, log := run("TestA/sub", true)
	if !there(dirs[0]) || !there(dirs[1]) || there(old) || dirs[1] != dirs[0]+"-2" ||
		!strings.HasSuffix(dirs[0], filepath.Join(".trommel", "TestA_sub", "p_q")) {
		t.Errorf("records %v; the old one is there: %t", dirs, there(old))
	}
	if !strings.Contains(log, "trommel explain "+dirs[0]+"\n") {
		t.Errorf("log %s", log)
	}
	again, _ := run("TestA/sub", true) // with -count=2
	if again[0] == dirs[0] || !there(dirs[0]) {
		t.Errorf("the second run has %v", again)
	}
	passed, log := run("TestB", false)
	if there(passed[0]) || there(filepath.Dir(passed[0])) || log != "" {
		t.Errorf("after a pass there is %s, and a log %q", passed[0], log)
	}
	if ignore, err := os.ReadFile(".trommel/.gitignore"); err != nil || string(ignore) != "*\n" {
		t.Errorf("%q, %v", ignore, err)
	}
	*keep = true
	defer func() { *keep = false }()
	if kept, log := run("TestC", false); !there(kept[0]) || !strings.Contains(log, kept[0]) {
		t.Errorf("with -trommel.keep there is no %s, or no log of it: %q", kept[0], log)
	}
}

// The sessions of a pool are shared, make room for others, and wait for a place.
func TestPool(t *testing.T) {
	p := &pool{limit: 2, freed: make(chan struct{})}
	take := func(key string) *session {
		t.Helper()
		s, wait, err := p.take(key)
		if err != nil || wait != nil {
			t.Fatalf("take %s: %v, must wait: %t", key, err, wait != nil)
		}
		return s
	}
	first := take("a")
	first.relay = &relay{}
	second := take("a")
	if second == first {
		t.Fatal("a session has two users")
	}
	second.relay = &relay{}
	_, wait, err := p.take("a")
	if err != nil || wait == nil {
		t.Fatal("there are more sessions than allowed")
	}
	var done sync.WaitGroup
	done.Go(func() { <-wait })
	p.release(first)
	done.Wait()
	if take("a") != first {
		t.Error("a session is not shared")
	}
	p.release(first)
	if s := take("b"); s != first {
		t.Error("an idle session of another kind does not make room")
	}
	p.remove(first)
	if s := take("b"); s == first || s == second || s.key != "b" {
		t.Errorf("got %+v", s)
	}
}

func TestReserve(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		10 * time.Minute: 30 * time.Second, time.Minute: 12 * time.Second,
	} {
		if got := reserve(left); got != want {
			t.Errorf("of %s: %s, want %s", left, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{"/a/b-c_1.x": "/a/b-c_1.x", "a b": "'a b'", "it's": `'it'\''s'`} {
		if got := quote(word); got != want {
			t.Errorf("%s: %s", word, got)
		}
	}
}
