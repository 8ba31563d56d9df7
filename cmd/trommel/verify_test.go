package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/internal/campaign"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// outcome is what became of a plan; a bug came in all of three runs.
func outcome(plan string, s result.Status) result.Outcome {
	o := result.Outcome{Plan: plan, Status: s, File: "plans/" + plan + ".yaml", Workload: "w", Pattern: "p"}
	if s == result.Bug {
		o.Came, o.Of = 3, 3
		o.Findings = []record.Finding{{Severity: record.SeverityBug, Judge: "baseline", Title: plan + " is gone"}}
	}
	return o
}

func TestVerified(t *testing.T) {
	const bug, pass, none = result.Bug, result.Passed, result.Inconclusive
	for _, tt := range []struct {
		name          string
		before, after []result.Outcome
		code          int
		want          string
	}{
		{"a good fix", []result.Outcome{outcome("a", bug), outcome("n1", pass), outcome("n2", pass)},
			[]result.Outcome{outcome("a", pass), outcome("a-run-2", pass), outcome("n1", pass), outcome("n2", pass)},
			exit.Pass, "a: shown 3 of 3 before; 0 of 2 after\n  before: baseline: a is gone\n" +
				"2 neighbouring plans pass before and after\nthe fix is good\n"},
		{"it comes now and then", []result.Outcome{outcome("a", bug)},
			[]result.Outcome{outcome("a", pass), outcome("a-run-2", bug)},
			exit.Bug, "a: shown 3 of 3 before; 1 of 2 after\n  before: baseline: a is gone\n" +
				"  after: baseline: a-run-2 is gone\nthe fix is not good\n"},
		{"it breaks another plan", []result.Outcome{outcome("a", bug), outcome("n1", pass)},
			[]result.Outcome{outcome("a", pass), outcome("a-run-2", pass), outcome("n1", bug)},
			exit.Bug, "a: shown 3 of 3 before; 0 of 2 after\n  before: baseline: a is gone\n" +
				"n1: pass before; 1 of 1 after\n  after: baseline: n1 is gone\nthe fix is not good\n"},
		{"it was no bug before", []result.Outcome{outcome("a", pass)},
			[]result.Outcome{outcome("a", pass), outcome("a-run-2", pass)},
			exit.Inconclusive, "a: pass before; 0 of 2 after\n" +
				"no result: no plan shows a bug before, or a plan has no result after\n"},
		{"nothing is known after", []result.Outcome{outcome("a", bug)}, []result.Outcome{outcome("a", none)},
			exit.Inconclusive, "a: shown 3 of 3 before; no result after\n  before: baseline: a is gone\n" +
				"no result: no plan shows a bug before, or a plan has no result after\n"},
	} {
		v := verified{
			before: &result.Result{Outcomes: tt.before}, after: &result.Result{Outcomes: tt.after},
			chosen: []string{"a"}, runs: 2,
		}
		var b strings.Builder
		if err := v.write(&b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, b.String()); diff != "" || v.code() != tt.code {
			t.Errorf("%s: code %d, want %d: %s", tt.name, v.code(), tt.code, diff)
		}
	}
}

// The nearest plans of the campaign that passed are run, too.
func TestNeighbours(t *testing.T) {
	dir := t.TempDir()
	state := campaign.State{}
	for _, o := range []result.Outcome{
		outcome("far", result.Passed), outcome("near", result.Passed), outcome("other-bug", result.Bug),
		outcome("a", result.Bug), outcome("next", result.Passed), outcome("unlike", result.Passed),
	} {
		if o.Plan == "unlike" {
			o.Pattern = "q"
		}
		state.Outcomes = append(state.Outcomes, &o)
	}
	data, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, campaign.StateFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
	in := func(names ...string) (files []string) {
		for _, name := range names {
			files = append(files, filepath.Join(dir, "plans", name+".yaml"))
		}
		return files
	}
	for most, want := range map[int][]string{
		0: in("a"), 2: in("a", "next", "near"), 9: in("a", "next", "near", "far"),
	} {
		got, err := withNeighbours(in("a"), most)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("at most %d: %s (%v)", most, diff, err)
		}
	}
	lone := []string{filepath.Join(t.TempDir(), "plans", "a.yaml")}
	if got, err := withNeighbours(lone, 9); err != nil || len(got) != 1 {
		t.Errorf("without a campaign: %v (%v)", got, err)
	}
}

// The controllers of the suite are built from the other checkout.
func TestMoveSources(t *testing.T) {
	root, fixed := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(fixed, "cmd", "op"), 0o700); err != nil {
		t.Fatal(err)
	}
	suite := func(dir string) *plan.Suite {
		return &plan.Suite{
			File:        filepath.Join(root, "tests", plan.SuiteFile),
			Controllers: []plan.Controller{{Name: "op", Build: &plan.Build{Dir: dir}}, {Name: "installed"}},
		}
	}
	s := suite("../cmd/op")
	err := moveSources(s, root, fixed)
	if dir := s.Controllers[0].Build.Dir; err != nil || dir != filepath.Join(fixed, "cmd", "op") {
		t.Errorf("%s (%v)", dir, err)
	}
	for dir, want := range map[string]string{"../cmd/no": "it has no directory", "../../elsewhere": "is not in"} {
		if err := moveSources(suite(dir), root, fixed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	none := &plan.Suite{File: s.File, Controllers: s.Controllers[1:]}
	if err := moveSources(none, root, fixed); err == nil || !strings.Contains(err.Error(), "builds no controller") {
		t.Error(err)
	}
}

func TestRepository(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ file, want string }{{"a/go.mod", "a"}, {".git", ""}} {
		if err := os.WriteFile(filepath.Join(dir, tt.file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := repository(deep); err != nil || got != filepath.Join(dir, tt.want) {
			t.Errorf("with %s: %s (%v)", tt.file, got, err)
		}
	}
}
