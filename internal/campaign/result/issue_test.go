package result

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/lead"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// issue is the page of a finding of which all is known.
func issue(t *testing.T, source string) *Issue {
	t.Helper()
	p, err := plan.Parse([]byte(source), "")
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Unix(100, 0)
	f := finding("service/default/db", "never created; without faults: exists at the end")
	f.Detail, f.Call = "the owner is database/default/db", record.KilledAfter
	f.Callers = record.Callers{{Function: "main.(*R).create", File: "main.go", Line: 7}}
	first := Outcome{
		Plan: "killed", File: "runs/plans/killed.yaml", Findings: []record.Finding{f}, Judged: true,
		Confirmation: Confirmation{Came: 3, Of: 3}, Traced: "runs/killed/5",
		Gone: []string{"without the plan's actions", "with the kill a second later"},
		Lead: &lead.Lead{
			Reconcile: "the reconcile of default/db by op", Began: begin.Add(time.Second),
			Steps: []lead.Step{
				{At: begin.Add(time.Second), Text: "it creates secret/default/db_1 (version 7)",
					Place: "main.go:7 (*R).create", Wrong: true},
				{At: begin.Add(2 * time.Second), Text: "the next process begins to reconcile it"},
			},
			Why: []string{"The next reconcile takes what it finds for done.", "It writes nothing."},
		},
	}
	return &Issue{
		Group: Group{Finding: f, Plans: []Outcome{first, {Plan: "other", Confirmation: Confirmation{Came: 3, Of: 3}},
			{Plan: "like", Confirmation: Confirmation{Like: "killed"}}}},
		Record: &record.Run{Meta: record.Meta{
			Kubernetes: "v1.36.3", Trommel: "v1.2.0", WorkloadStart: begin, Controllers: []record.Controller{
				{Name: "op", Hooks: true, ClientGo: "v0.36.0", ControllerRuntime: "v0.24.0"}, {Name: "scheduler"},
			},
		}},
		Plan: p, Source: []byte(source), File: first.File,
		Show:    Install + "trommel -p " + first.File + " --baseline runs/baselines",
		Commits: map[string]string{"op": "v1.0.0-3-gabcdef0"}, Quiet: 2,
	}
}

const killed = `apiVersion: trommel.dev/v1alpha1
kind: TestPlan
testName: killed
actions:
- actionType: restartController
  actionTarget: op
  trigger:
    definitions:
    - triggerName: written
      condition: {triggerType: onObjectCreation, resourceKey: secret/default/db}
      observationPoint: {timing: afterControllerWrite, observeBy: op}
    expression: written
`

func TestIssue(t *testing.T) {
	compare(t, "issue.md", issue(t, killed).Write)
}

// The page has at most 60 lines. If the plan does not fit, the page has only its name.
func TestIssueWithALongPlan(t *testing.T) {
	long := killed + strings.Repeat("# a remark\n", issueLines)
	page := issue(t, long)
	page.Quiet, page.Group.Plans = 0, page.Group.Plans[:1]
	var b bytes.Buffer
	if err := page.Write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if n := strings.Count(text, "\n"); n > issueLines || strings.Contains(text, "a remark") ||
		!strings.Contains(text, "The plan is `killed.yaml`, which belongs to this report.") ||
		!strings.Contains(text, "- It does not come without the plan's actions.") {
		t.Errorf("%d lines:\n%s", n, text)
	}
}
