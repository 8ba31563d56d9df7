package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/campaign"
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
		found := []record.Finding{{Severity: record.SeverityBug, Oracle: record.OracleReference, Title: "found it"}}
		for _, err := range []error{
			w.Findings(found), w.Meta(record.Meta{Plan: name, Verdict: record.Bug}), w.Close(),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		return o
	}
	var out bytes.Buffer
	err := junitOf(&out, &campaign.Result{Outcomes: []campaign.Outcome{
		outcome("sure", campaign.Bug), outcome("rare", campaign.Unconfirmed), outcome("broken", campaign.Failed),
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := out.String()
	if strings.Count(got, "<failure") != 1 {
		t.Errorf("not one failure: %s", got)
	}
	for _, want := range []string{"unconfirmed: found in 1 of 3 runs", "disk full"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}
