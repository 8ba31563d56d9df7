package confirm

import (
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A first suite may wait for what never comes, such as the status of a kind whose controller writes none. That is not a
// bug that the plan has found.
func TestWithoutActions(t *testing.T) {
	failed := func(title string) record.Finding {
		return record.Finding{Severity: record.SeverityBug, Judge: record.JudgeWorkload, Title: title}
	}
	never, other := failed(`step 2 "wait": not within 30s`), failed(`step 3 "delete": refused`)
	crash := record.Finding{Severity: record.SeverityBug, Judge: record.JudgeCrash, Title: "op exited"}
	note := record.Finding{Severity: record.SeverityNote, Judge: record.JudgeErrors, Title: "an error"}
	for _, tt := range []struct {
		name         string
		found, quiet []record.Finding
		asked        bool // whether the workload is worth a run without actions
		want         record.Verdict
	}{
		{"the same comes without actions", []record.Finding{never, note}, []record.Finding{never}, true,
			record.Inconclusive},
		{"the workload passes without actions", []record.Finding{never}, nil, true, record.Bug},
		{"another step fails without actions", []record.Finding{never}, []record.Finding{other}, true, record.Bug},
		{"a crash too", []record.Finding{never, crash}, []record.Finding{never}, false, record.Bug},
		{"no bug at all", []record.Finding{note}, nil, false, record.Bug},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &plan.Plan{Actions: make([]plan.Action, 1)}
			if asked := NeedsWithoutActions(p, tt.found); asked != tt.asked {
				t.Errorf("asks for a run without actions: %t", asked)
			}
			if NeedsWithoutActions(&plan.Plan{}, tt.found) {
				t.Error("a plan without actions asks for a run without them")
			}
			m := record.Meta{Plan: "p", Suite: "trommel.yaml", Verdict: record.Bug, Reason: "bug"}
			r := &record.Run{Dir: "plan", Meta: m, Findings: slices.Clone(tt.found)}
			if !tt.asked {
				return
			}
			changed := Compare(r, &record.Run{Dir: "quiet", Findings: tt.quiet})
			if r.Meta.Verdict != tt.want || changed != (tt.want != record.Bug) {
				t.Errorf("verdict %s, want %s; changed: %t", r.Meta.Verdict, tt.want, changed)
			}
			if tt.want == record.Inconclusive {
				if !strings.Contains(r.Meta.Reason, "does not pass without the plan's actions either: step 2") ||
					r.Findings[0].IsBug() {
					t.Errorf("reason %q, findings %+v", r.Meta.Reason, r.Findings)
				}
			}
		})
	}
}
