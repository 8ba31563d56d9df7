package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/explore"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/record"
)

func TestExitCodesOfCampaigns(t *testing.T) {
	for _, tt := range []struct {
		name      string
		plans     string
		statuses  []explore.Status
		unlearned int
		want      int
	}{
		{"nothing found", "", []explore.Status{explore.Passed, explore.Passed}, 0, exitPass},
		{"no plan", "", nil, 0, exitPass},
		{"a bug", "", []explore.Status{explore.Passed, explore.Bug, explore.Failed}, 1, exitBug},
		{"a plan did not happen", "", []explore.Status{explore.Passed, explore.Inconclusive}, 0, exitPass},
		{"no plan happened", "", []explore.Status{explore.Inconclusive}, 0, exitInconclusive},
		{"not confirmed", "", []explore.Status{explore.Passed, explore.Unconfirmed}, 0, exitPass},
		{"a workload that cannot be compared", "", []explore.Status{explore.Passed}, 1, exitCannotRun},
		{"a plan could not be run", "", []explore.Status{explore.Passed, explore.Failed}, 0, exitCannotRun},
		{"own plans pass", "plans", []explore.Status{explore.Passed}, 1, exitPass},
		{
			"one's own plan did not happen", "plans", []explore.Status{explore.Passed, explore.Inconclusive}, 0,
			exitInconclusive,
		},
		{
			"one's own plan was not confirmed", "plans", []explore.Status{explore.Passed, explore.Unconfirmed}, 0,
			exitInconclusive,
		},
		{"one's own plan has a bug", "plans", []explore.Status{explore.Bug, explore.Inconclusive}, 0, exitBug},
	} {
		r := &explore.Result{Settings: explore.Settings{Plans: tt.plans}}
		for _, s := range tt.statuses {
			r.Outcomes = append(r.Outcomes, explore.Outcome{Status: s})
		}
		r.Unlearned = make([]explore.Unlearned, tt.unlearned)
		if got := exitCodeOf(r); got != tt.want {
			t.Errorf("%s: exit code %d, want %d", tt.name, got, tt.want)
		}
	}
}

// In JUnit XML only what is believed is a failure.
func TestJUnitOfCampaigns(t *testing.T) {
	outcome := func(name string, s explore.Status) explore.Outcome {
		o := explore.Outcome{Plan: name, Status: s, Came: 1, Of: 3, Reason: "disk full"}
		if s == explore.Failed {
			return o
		}
		o.Record = t.TempDir()
		w, err := record.Create(o.Record)
		if err != nil {
			t.Fatal(err)
		}
		o.Findings = []record.Finding{{Severity: record.SeverityBug, Judge: record.JudgeReference, Title: "found it"}}
		found := append(slices.Clone(o.Findings), record.Finding{
			Severity: record.SeverityBug, Judge: record.JudgeReference, Title: "it came once",
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
	runs, err := runsOf(&explore.Result{
		Settings: explore.Settings{SuiteFile: "db/trommel.yaml"},
		Outcomes: []explore.Outcome{
			outcome("sure", explore.Bug), outcome("rare", explore.Unconfirmed), outcome("broken", explore.Failed),
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
		"unconfirmed: found in 1 of 3 runs", "disk full", `message="bug 1: reference: found it"`,
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
	found := []record.Finding{{Severity: record.SeverityBug, Judge: record.JudgeReference, Title: "found it"}}
	result := &explore.Result{
		Settings: explore.Settings{SuiteFile: "db/trommel.yaml"},
		Outcomes: []explore.Outcome{
			{Plan: "a", File: "runs/a.yaml", Pattern: "stale", Status: explore.Bug, Findings: found, Actions: 2},
			{Plan: "b", File: "runs/b.yaml", Pattern: "stale", Status: explore.Bug, Findings: found, Actions: 1},
			{Plan: "c", File: "runs/c.yaml", Pattern: "stale", Status: explore.Inconclusive},
			{Plan: "d", File: "runs/d.yaml", Pattern: "stale", Status: explore.Failed},
			{Plan: "e", File: "runs/e.yaml", Pattern: "stale", Status: explore.Passed},
		},
	}
	var runs []*record.Run
	for _, o := range result.Outcomes {
		v := map[explore.Status]record.Verdict{
			explore.Bug: record.Bug, explore.Passed: record.Pass, explore.Failed: record.Error,
			explore.Inconclusive: record.Inconclusive,
		}[o.Status]
		runs = append(runs, &record.Run{Meta: record.Meta{Plan: o.Plan, PlanFile: o.File, Verdict: v, Reason: "why"}})
	}
	titles := func() (all []string) {
		for _, a := range annotationsOf(result, runs) {
			all = append(all, a.File+" "+a.Title)
		}
		return all
	}
	want := []string{"db/trommel.yaml b: bug", "db/trommel.yaml d: error"}
	if got := titles(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// Plans of one's own: all that did not pass, in their files.
	result.Plans = "runs"
	for i := range result.Outcomes {
		result.Outcomes[i].Pattern = ""
	}
	want = []string{"runs/b.yaml b: bug", "runs/c.yaml c: inconclusive", "runs/d.yaml d: error"}
	if got := titles(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
