package bugs

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/lead"
	"github.com/trommel-dev/trommel/record"
)

// found is an outcome with a finding about a type, which came in some runs, from some lines.
func found(plan, typ string, came, of int, lines ...int) result.Outcome {
	f := record.Finding{Severity: record.SeverityBug, Judge: record.JudgeBaseline, Subject: typ + "/default/a"}
	for i, line := range lines {
		f.Callers[i] = record.Frame{Function: "example.com/op.run", File: "pkg/x.go", Line: line}
	}
	return result.Outcome{
		Plan: plan, Status: result.Bug, Confirmation: result.Confirmation{Came: came, Of: of},
		Findings: []record.Finding{f}, Took: time.Duration(max(of, 1)) * time.Second,
	}
}

func TestCount(t *testing.T) {
	b := &Bug{Finding: Finding{Type: "pod"}, Cause: []string{"op/pkg/x.go:20"}}
	passed := func(plan string) result.Outcome {
		return result.Outcome{Plan: plan, Status: result.Passed, Took: time.Second}
	}
	for name, tt := range map[string]struct {
		outcomes []result.Outcome
		want     Result
	}{
		"each run": {
			[]result.Outcome{found("a", "pod", 3, 3, 40, 22)},
			Result{Shown: 3, Of: 3, Took: time.Second, Named: &Named{"pkg/x.go:22", 2}},
		},
		"further runs of a plan that passed": {
			[]result.Outcome{passed("a"), passed("a-run-2"), found("a-run-3", "pod", 1, 1)},
			Result{Shown: 1, Of: 3, Took: time.Second},
		},
		"the better plan": {
			[]result.Outcome{found("a", "pod", 1, 3), found("b", "pod", 2, 3)},
			Result{Shown: 2, Of: 3, Took: time.Second},
		},
		"another finding": {
			[]result.Outcome{found("a", "job", 3, 3)},
			Result{Of: 3, Took: time.Second, Other: "job/default/a"},
		},
		"no result": {
			[]result.Outcome{{Plan: "a", Status: result.Inconclusive}, {Plan: "a-run-2", Status: result.Failed}},
			Result{},
		},
		"nothing": {nil, Result{}},
	} {
		t.Run(name, func(t *testing.T) {
			var got Result
			got.Count(b, tt.outcomes)
			if got.Other != "" && tt.want.Other != "" { // its headline
				tt.want.Other = got.Other
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNamed(t *testing.T) {
	b := &Bug{Cause: []string{"op/pkg/x.go:20", "pkg/y.go:7"}}
	for name, tt := range map[string]struct {
		finding record.Finding
		lead    *lead.Lead
		want    string // empty: nothing
	}{
		"no line":   {},
		"the cause": {finding: found("a", "pod", 1, 1, 20).Findings[0], want: "pkg/x.go:20, the cause"},
		"the nearest caller": {
			finding: found("a", "pod", 1, 1, 90, 17).Findings[0], want: "pkg/x.go:17, 3 from the cause",
		},
		"what the report stresses": {
			finding: found("a", "pod", 1, 1, 90).Findings[0],
			lead:    &lead.Lead{Steps: []lead.Step{{Place: "pkg/y.go:7 f"}, {Place: "pkg/y.go:9 f", Wrong: true}}},
			want:    "pkg/y.go:9, 2 from the cause",
		},
		"another file": {
			lead: &lead.Lead{Steps: []lead.Step{{Place: "pkg/yy.go:7 f", Wrong: true}}}, want: "pkg/yy.go:7",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if n := b.named(tt.finding, tt.lead); n != nil {
				got = n.String()
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// A difference that the workload has without the plan's actions, too, does not show a bug. A broken invariant does.
func TestBugIsNotShownByRunsThatDiffer(t *testing.T) {
	b := &Bug{Finding: Finding{Type: "pod"}}
	for _, tt := range []struct {
		judge  string
		status result.Status
		shown  int
	}{
		{record.JudgeBaseline, result.Bug, 3},
		{record.JudgeBaseline, result.OfWorkload, 0},
		{record.JudgeInvariant, result.OfWorkload, 3},
	} {
		out := found("a", "pod", 3, 3)
		out.Status, out.Findings[0].Judge = tt.status, tt.judge
		r := &Result{}
		r.Count(b, []result.Outcome{out})
		if r.Shown != tt.shown || r.Of != 3 {
			t.Errorf("%s, %s: shown %d of %d, want %d of 3", tt.judge, tt.status, r.Shown, r.Of, tt.shown)
		}
	}
}
