package run

import (
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/run/journal"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Regression: a run with a bug did not say that no action had fired.
func TestConclude(t *testing.T) {
	bug := record.Finding{Severity: record.SeverityBug, Judge: record.JudgeWorkload, Title: "step 2 failed"}
	crash := record.Finding{Severity: record.SeverityBug, Judge: record.JudgeCrash, Title: "db crashed"}
	action := record.Finding{Severity: record.SeverityInconclusive, Judge: record.JudgeAction,
		Title: "action 1 (killController db) failed: no"}
	denied := &plan.Plan{Actions: []plan.Action{
		{Type: plan.FailCall, Target: "db"}, {Type: plan.RestoreCalls, Target: "db"},
	}}
	noneFailed := coordinator.Status{Fired: 2, Completed: 2, Total: 2, NoneFailed: []string{"action 1 failed no call"}}
	untested := func(f record.Finding, p *plan.Plan, s coordinator.Status) []record.Finding {
		return judge.Untested([]record.Finding{f}, p, courseOf(s, ""))
	}
	waiting := []string{`action 1 (killController db): trigger "a" still waits for x`}
	for _, test := range []struct {
		name       string
		findings   []record.Finding
		status     coordinator.Status
		stuck      string
		verdict    record.Verdict
		reason     string
		unfinished string
		told       string // on the console
	}{
		{name: "pass", status: coordinator.Status{Fired: 1, Completed: 1, Total: 1}, verdict: record.Pass},
		{
			name: "bug after the plan", findings: []record.Finding{bug},
			status:  coordinator.Status{Fired: 1, Completed: 1, Total: 1},
			verdict: record.Bug, reason: "step 2 failed",
		},
		{
			name: "bug without the plan", findings: []record.Finding{bug},
			status: coordinator.Status{Total: 1, Waiting: waiting}, stuck: "the workload failed",
			verdict: record.Bug, reason: "step 2 failed",
			unfinished: "0 of 1 actions fired: the workload failed\n" + waiting[0],
			told:       "the plan was not carried out: 0 of 1 actions fired: the workload failed\n" + waiting[0],
		},
		{
			name: "workload failed before the plan", findings: untested(bug,
				denied, coordinator.Status{Total: 1}),
			status: coordinator.Status{Total: 1}, stuck: "the workload failed",
			verdict: record.Inconclusive, reason: "step 2 failed\n0 of 1 actions fired: the workload failed",
			unfinished: "0 of 1 actions fired: the workload failed",
		},
		{
			name:     "workload failed without a plan",
			findings: untested(bug, &plan.Plan{}, coordinator.Status{}),
			verdict:  record.Bug, reason: "step 2 failed",
		},
		{
			name:     "workload failed, and the plan made no call fail",
			findings: untested(bug, denied, noneFailed),
			status:   noneFailed,
			verdict:  record.Inconclusive, reason: "step 2 failed",
		},
		{
			name: "workload failed, and the plan made a call fail", findings: untested(bug, denied,
				coordinator.Status{Fired: 2, Completed: 2, Total: 2}),
			status:  coordinator.Status{Fired: 2, Completed: 2, Total: 2},
			verdict: record.Bug, reason: "step 2 failed",
		},
		{
			name: "workload failed, and the plan did something else", findings: untested(bug,
				&plan.Plan{Actions: []plan.Action{denied.Actions[0], {Type: plan.RestartController}}},
				noneFailed),
			status:  coordinator.Status{Fired: 2, Completed: 2, Total: 2},
			verdict: record.Bug, reason: "step 2 failed",
		},
		{
			name:     "crash before the plan",
			findings: untested(crash, denied, coordinator.Status{Total: 1}),
			status:   coordinator.Status{Total: 1}, stuck: "the workload failed",
			verdict: record.Bug, reason: "db crashed", unfinished: "0 of 1 actions fired: the workload failed",
			told: "the plan was not carried out: 0 of 1 actions fired: the workload failed",
		},
		{
			name: "bug with a part of the plan", findings: []record.Finding{bug},
			status: coordinator.Status{Fired: 1, Completed: 1, Total: 2}, stuck: "the workload failed",
			verdict: record.Bug, reason: "step 2 failed", unfinished: "1 of 2 actions fired: the workload failed",
			told: "the plan was carried out only in part: 1 of 2 actions fired: the workload failed",
		},
		{
			name: "inconclusive", findings: []record.Finding{action},
			status:  coordinator.Status{Fired: 1, Completed: 1, Total: 2, Stuck: "who waits for whom"},
			verdict: record.Inconclusive, reason: "1 of 2 actions fired\nwho waits for whom",
			unfinished: "1 of 2 actions fired\nwho waits for whom",
		},
		{
			name: "not complete", status: coordinator.Status{Fired: 2, Completed: 1, Total: 2}, stuck: "timed out",
			verdict: record.Inconclusive, reason: "all actions fired, but 1 of 2 completed: timed out",
			unfinished: "all actions fired, but 1 of 2 completed: timed out",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var told []string
			j := &journal.Journal{
				Console: journal.NewConsole(progress.Func(func(e progress.Event) {
					if e.Type == progress.Info {
						told = append(told, e.Text)
					}
				}), ""),
				Findings: test.findings,
				Meta:     record.Meta{ActionsFired: test.status.Fired, ActionsTotal: test.status.Total},
			}
			j.Conclude(judge.Decide(j.Findings, courseOf(test.status, test.stuck)))
			if m := &j.Meta; m.Verdict != test.verdict || m.Reason != test.reason || m.Unfinished != test.unfinished {
				t.Errorf("verdict %s, reason %q, unfinished %q", m.Verdict, m.Reason, m.Unfinished)
			}
			if got := strings.Join(told, "|"); got != test.told {
				t.Errorf("told %q, want %q", got, test.told)
			}
		})
	}
}
