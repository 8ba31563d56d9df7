package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/record"
)

func TestExitCodesOfCampaigns(t *testing.T) {
	for _, tt := range []struct {
		name      string
		plans     string
		statuses  []result.Status
		unlearned int
		want      int
	}{
		{"nothing found", "", []result.Status{result.Passed, result.Passed}, 0, exit.Pass},
		{"no plan", "", nil, 0, exit.Pass},
		{"a bug", "", []result.Status{result.Passed, result.Bug, result.Failed}, 1, exit.Bug},
		{"a plan did not happen", "", []result.Status{result.Passed, result.Inconclusive}, 0, exit.Pass},
		{"no plan happened", "", []result.Status{result.Inconclusive}, 0, exit.Inconclusive},
		{"not confirmed", "", []result.Status{result.Passed, result.Unconfirmed}, 0, exit.Pass},
		{"a workload that cannot be compared", "", []result.Status{result.Passed}, 1, exit.CannotRun},
		{"a plan could not be run", "", []result.Status{result.Passed, result.Failed}, 0, exit.CannotRun},
		{"own plans pass", "plans", []result.Status{result.Passed}, 1, exit.Pass},
		{
			"one's own plan did not happen", "plans", []result.Status{result.Passed, result.Inconclusive}, 0,
			exit.Inconclusive,
		},
		{
			"one's own plan was not confirmed", "plans", []result.Status{result.Passed, result.Unconfirmed}, 0,
			exit.Inconclusive,
		},
		{"one's own plan has a bug", "plans", []result.Status{result.Bug, result.Inconclusive}, 0, exit.Bug},
	} {
		r := &result.Result{Settings: result.Settings{Plans: tt.plans}}
		for _, s := range tt.statuses {
			r.Outcomes = append(r.Outcomes, result.Outcome{Status: s})
		}
		r.Unlearned = make([]result.Unlearned, tt.unlearned)
		if got := exitCodeOf(r); got != tt.want {
			t.Errorf("%s: exit code %d, want %d", tt.name, got, tt.want)
		}
	}
}

// In JUnit XML only what is believed is a failure.
func TestJUnitOfCampaigns(t *testing.T) {
	outcome := func(name string, s result.Status) result.Outcome {
		o := result.Outcome{
			Plan: name, Status: s, Confirmation: result.Confirmation{Came: 1, Of: 3}, Reason: "disk full",
		}
		if s == result.Failed {
			return o
		}
		o.Record = t.TempDir()
		w, err := record.Create(o.Record)
		if err != nil {
			t.Fatal(err)
		}
		o.Findings = []record.Finding{{Severity: record.SeverityBug, Judge: record.JudgeBaseline, Title: "found it"}}
		found := append(slices.Clone(o.Findings), record.Finding{
			Severity: record.SeverityBug, Judge: record.JudgeBaseline, Title: "it came once",
		})
		for _, err := range []error{
			w.Findings(found), w.Meta(record.Meta{Plan: name, Verdict: record.Bug}), w.Close(),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		return o
	}
	runs, err := runsOf(&result.Result{
		Settings: result.Settings{SuiteFile: "db/trommel.yaml"},
		Outcomes: []result.Outcome{
			outcome("sure", result.Bug), outcome("rare", result.Unconfirmed), outcome("broken", result.Failed),
		},
		NotRun: []string{"left"}, Stopped: "the budget of 10m was used up",
	})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := report.JUnit(&out, runs, report.JUnitOptions{}); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	if strings.Count(got, "<failure") != 1 || strings.Count(got, "it came once") != 1 {
		t.Errorf("not one failure: %s", got)
	}
	for _, want := range []string{
		"unconfirmed: found in 1 of 3 runs", "disk full", `message="bug 1: baseline: found it"`,
		`<skipped type="not run" message="the budget of 10m was used up">`,
		`<testsuites tests="4" failures="1" errors="2"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}

// Each group of bugs is annotated once, at the suite if its plan was generated.
func TestAnnotationsOfCampaigns(t *testing.T) {
	bugs := []record.Finding{{Severity: record.SeverityBug, Judge: record.JudgeBaseline, Title: "found it"}}
	found := &result.Result{
		Settings: result.Settings{SuiteFile: "db/trommel.yaml"},
		Outcomes: []result.Outcome{
			{Plan: "a", File: "runs/a.yaml", Pattern: "stale", Status: result.Bug, Findings: bugs, Actions: 2},
			{Plan: "b", File: "runs/b.yaml", Pattern: "stale", Status: result.Bug, Findings: bugs, Actions: 1},
			{Plan: "c", File: "runs/c.yaml", Pattern: "stale", Status: result.Inconclusive},
			{Plan: "d", File: "runs/d.yaml", Pattern: "stale", Status: result.Failed},
			{Plan: "e", File: "runs/e.yaml", Pattern: "stale", Status: result.Passed},
		},
	}
	var runs []*record.Run
	for _, o := range found.Outcomes {
		v := map[result.Status]record.Verdict{
			result.Bug: record.Bug, result.Passed: record.Pass, result.Failed: record.Error,
			result.Inconclusive: record.Inconclusive,
		}[o.Status]
		runs = append(runs, &record.Run{Meta: record.Meta{Plan: o.Plan, PlanFile: o.File, Verdict: v, Reason: "why"}})
	}
	titles := func() (all []string) {
		for _, a := range annotationsOf(found, runs) {
			all = append(all, a.File+" "+a.Title)
		}
		return all
	}
	want := []string{"db/trommel.yaml b: bug", "db/trommel.yaml d: error"}
	if got := titles(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// Plans of one's own: all that did not pass, in their files.
	found.Plans = "runs"
	for i := range found.Outcomes {
		found.Outcomes[i].Pattern = ""
	}
	want = []string{"runs/b.yaml b: bug", "runs/c.yaml c: inconclusive", "runs/d.yaml d: error"}
	if got := titles(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
