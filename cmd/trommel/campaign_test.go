package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/campaign"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/record"
)

func TestExitCodesOfCampaigns(t *testing.T) {
	for _, tt := range []struct {
		name      string
		plans     string
		statuses  []campaign.Status
		unlearned int
		want      int
	}{
		{"nothing found", "", []campaign.Status{campaign.Passed, campaign.Passed}, 0, exitPass},
		{"no plan", "", nil, 0, exitPass},
		{"a bug", "", []campaign.Status{campaign.Passed, campaign.Bug, campaign.Failed}, 1, exitBug},
		{"a plan did not happen", "", []campaign.Status{campaign.Passed, campaign.Inconclusive}, 0, exitPass},
		{"no plan happened", "", []campaign.Status{campaign.Inconclusive}, 0, exitInconclusive},
		{"not confirmed", "", []campaign.Status{campaign.Passed, campaign.Unconfirmed}, 0, exitPass},
		{"a workload that cannot be compared", "", []campaign.Status{campaign.Passed}, 1, exitCannotRun},
		{"a plan could not be run", "", []campaign.Status{campaign.Passed, campaign.Failed}, 0, exitCannotRun},
		{"own plans pass", "plans", []campaign.Status{campaign.Passed}, 1, exitPass},
		{
			"one's own plan did not happen", "plans", []campaign.Status{campaign.Passed, campaign.Inconclusive}, 0,
			exitInconclusive,
		},
		{
			"one's own plan was not confirmed", "plans", []campaign.Status{campaign.Passed, campaign.Unconfirmed}, 0,
			exitInconclusive,
		},
		{"one's own plan has a bug", "plans", []campaign.Status{campaign.Bug, campaign.Inconclusive}, 0, exitBug},
	} {
		r := &campaign.Result{Settings: campaign.Settings{Plans: tt.plans}}
		for _, s := range tt.statuses {
			r.Outcomes = append(r.Outcomes, campaign.Outcome{Status: s})
		}
		r.Unlearned = make([]campaign.Unlearned, tt.unlearned)
		if got := exitCodeOf(r); got != tt.want {
			t.Errorf("%s: exit code %d, want %d", tt.name, got, tt.want)
		}
	}
}

// In JUnit XML only what is believed is a failure.
func TestJUnitOfCampaigns(t *testing.T) {
	outcome := func(name string, s campaign.Status) campaign.Outcome {
		o := campaign.Outcome{Plan: name, Status: s, Came: 1, Of: 3, Reason: "disk full"}
		if s == campaign.Failed {
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
	runs, err := runsOf(&campaign.Result{
		Settings: campaign.Settings{SuiteFile: "db/trommel.yaml"},
		Outcomes: []campaign.Outcome{
			outcome("sure", campaign.Bug), outcome("rare", campaign.Unconfirmed), outcome("broken", campaign.Failed),
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
	found := []record.Finding{{Severity: record.SeverityBug, Judge: record.JudgeBaseline, Title: "found it"}}
	result := &campaign.Result{
		Settings: campaign.Settings{SuiteFile: "db/trommel.yaml"},
		Outcomes: []campaign.Outcome{
			{Plan: "a", File: "runs/a.yaml", Pattern: "stale", Status: campaign.Bug, Findings: found, Actions: 2},
			{Plan: "b", File: "runs/b.yaml", Pattern: "stale", Status: campaign.Bug, Findings: found, Actions: 1},
			{Plan: "c", File: "runs/c.yaml", Pattern: "stale", Status: campaign.Inconclusive},
			{Plan: "d", File: "runs/d.yaml", Pattern: "stale", Status: campaign.Failed},
			{Plan: "e", File: "runs/e.yaml", Pattern: "stale", Status: campaign.Passed},
		},
	}
	var runs []*record.Run
	for _, o := range result.Outcomes {
		v := map[campaign.Status]record.Verdict{
			campaign.Bug: record.Bug, campaign.Passed: record.Pass, campaign.Failed: record.Error,
			campaign.Inconclusive: record.Inconclusive,
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
