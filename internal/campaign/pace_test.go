package campaign

import (
	"slices"
	"testing"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Regression: the end of the run without pauses was right whatever it was, so that a plan that strikes a race passed
// when that run had lost the race too.
func TestRaceThatTheRunWithoutPausesLosesToo(t *testing.T) {
	for _, right := range []bool{false, true} {
		f := &fake{}
		f.answer = func(p *plan.Plan, _ int, _ *record.Meta, _ *[]record.Finding, history *[]string) error {
			lost := p.Pace == plan.PaceNone
			if lost || right && p.TestName == "w-fresh" {
				*history = []string{"configmap/default/a", `op secret/default/a {"data": {"v": "1"}}`}
			}
			return nil
		}
		c := config(t, f, "w")
		c.Patterns = []string{"intermediate"}
		all, err := Learn(t.Context(), c)
		if err != nil || all[0].Err != nil {
			t.Fatal(err, all[0].Err)
		}
		if f.runs["w-fresh"] == 0 {
			t.Errorf("what the workload asks for was not created at once: %v", f.all)
		}
		// A fake run is not judged, so the baseline is asked.
		excused := len(all[0].Baseline.Alternatives) > 0
		if excused != right {
			t.Errorf("created at once it ends alike: %t; the baseline has it: %t", right, excused)
		}
	}
}

// The plans of a campaign with a pace of its own have it, and what they are compared with is learned as usual.
func TestPaceOfACampaign(t *testing.T) {
	f := &fake{}
	var paces, learned []plan.Pace
	f.answer = func(p *plan.Plan, _ int, _ *record.Meta, _ *[]record.Finding, _ *[]string) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(p.Actions) > 0 {
			paces = append(paces, p.Pace)
		} else {
			learned = append(learned, p.Pace)
		}
		return nil
	}
	c := config(t, f, "w")
	c.Pace, c.Patterns = plan.PaceNone, []string{"intermediate"}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(paces) == 0 || slices.Contains(paces, plan.PaceRest) || len(r.With(result.Passed)) != len(r.Outcomes) {
		t.Errorf("paces %v, outcomes %+v", paces, r.Outcomes)
	}
	if len(learned) != 2 || learned[0] != plan.PaceRest {
		t.Errorf("learned with the paces %v", learned)
	}
	p, err := plan.Load(r.Outcomes[0].File)
	if err != nil || p.Pace != plan.PaceNone {
		t.Errorf("the plan's file says pace %q (%v)", p.Pace, err)
	}
}
