package explore

import (
	"testing"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Regression: the end of the run without pauses was right whatever it was, so that a plan that strikes a race passed
// when that run had lost the race too.
func TestRaceThatTheRunWithoutPausesLosesToo(t *testing.T) {
	for _, right := range []bool{false, true} {
		f := &fake{}
		f.answer = func(p *plan.Plan, _ int, _ *record.Meta, _ *[]record.Finding, history *[]string) error {
			lost := p.Pace == plan.PaceNone || p.TestName == "w-intermediate-1"
			if lost || right && p.TestName == "w-fresh" {
				*history = []string{"configmap/default/a", `op secret/default/a {"data": {"v": "1"}}`}
			}
			return nil
		}
		c := config(t, f, "w")
		c.Patterns = []string{"intermediate"}
		r, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if f.runs["w-fresh"] == 0 {
			t.Errorf("what the workload asks for was not created at once: %v", f.all)
		}
		if len(r.Outcomes) == 0 {
			t.Fatalf("no plans: %s", c.Progress)
		}
		// A fake run is not judged, so the reference is asked.
		excused := len(f.reference.Alternatives) > 0
		if excused != right {
			t.Errorf("created at once it ends alike: %t; the reference has it: %t", right, excused)
		}
	}
}
