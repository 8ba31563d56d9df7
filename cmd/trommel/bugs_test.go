package main

import (
	"testing"

	"github.com/trommel-dev/trommel/internal/bugs"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/record"
)

// A difference that the workload has without the plan's actions, too, does not show a bug. A broken invariant does.
func TestBugIsNotShownByRunsThatDiffer(t *testing.T) {
	b := &bugs.Bug{Finding: bugs.Finding{Title: "is missing"}}
	for _, tt := range []struct {
		judge  string
		status result.Status
		shown  int
	}{
		{record.JudgeBaseline, result.Bug, 3},
		{record.JudgeBaseline, result.OfWorkload, 0},
		{record.JudgeInvariant, result.OfWorkload, 3},
	} {
		r := &bugs.Result{}
		count(r, b, &result.Result{Outcomes: []result.Outcome{{
			Status: tt.status, Confirmation: result.Confirmation{Came: 3, Of: 3},
			Findings: []record.Finding{{Judge: tt.judge, Title: "secret a is missing", Severity: record.SeverityBug}},
		}}})
		if r.Shown != tt.shown || r.Of != 3 {
			t.Errorf("%s, %s: shown %d of %d, want %d of 3", tt.judge, tt.status, r.Shown, r.Of, tt.shown)
		}
	}
}
