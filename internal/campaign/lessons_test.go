package campaign

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// statusLines are the statuses that a campaign shows before it runs plans, and of its plans.
type statusLines struct{ lines, ofPlans []string }

func (s *statusLines) Show(e progress.Event) {
	switch {
	case e.Type != progress.Status || e.Campaign != nil:
	case e.Plan != "":
		s.ofPlans = append(s.ofPlans, e.Plan+": "+e.Text)
	default:
		s.lines = append(s.lines, e.Text)
	}
}

// Each run that a workload is learned from is shown, with how long all of them will take as soon as that is known.
func TestLearningSaysHowFarItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &statusLines{}
		c := config(t, lasting(5*time.Second, time.Second), "a", "b")
		c.Progress = said
		if _, err := Learn(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"learning workload a: run 1 of 4",
			"learning workload a: run 2 of 4, about 35 s left for 2 workloads",
			"learning workload a: run 3 of 4, about 30 s left for 2 workloads",
			"learning workload a: run 4 of 4, about 25 s left for 2 workloads",
			"learning workload b: run 1 of 4, about 20 s left",
			"learning workload b: run 2 of 4, about 15 s left",
			"learning workload b: run 3 of 4, about 10 s left",
			"learning workload b: run 4 of 4, about 5.0 s left",
		}
		// The order of the workloads is not determined.
		if strings.Contains(said.lines[0], " b:") {
			for i := range want {
				want[i] = strings.NewReplacer(" a:", " b:", " b:", " a:").Replace(want[i])
			}
		}
		if diff := cmp.Diff(want, said.lines); diff != "" {
			t.Error(diff)
		}
		said.lines = nil
		if _, err := Learn(t.Context(), c); err != nil || len(said.lines) > 0 {
			t.Errorf("what is known is learned: %v, %v", said.lines, err)
		}
	})
}

// Side by side it takes less long.
func TestLearningSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &statusLines{}
		f := lasting(5*time.Second, time.Second)
		c := config(t, f, "a")
		c.Progress, c.Runners = said, []run.Runner{f, f}
		if _, err := Learn(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(said.lines, "learning workload a: run 2 of 4, about 7.5 s left") {
			t.Errorf("%q", said.lines)
		}
	})
}

// So is each run that confirms a finding.
func TestConfirmingSaysHowFarItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &statusLines{}
		f := lasting(2*time.Second, 4*time.Second)
		wait := f.answer
		f.answer = func(p *plan.Plan, n int, m *record.Meta, findings *[]record.Finding, history *[]string) error {
			if len(p.Actions) > 0 {
				*findings = []record.Finding{
					{Severity: record.SeverityBug, Judge: record.JudgeInvariant, Title: "lost"},
				}
				m.Verdict = record.Bug
			}
			return wait(p, n, m, findings, history)
		}
		c := config(t, f, "w")
		c.Progress = said
		c.FailFast = true
		r := mustRun(t, c)
		plan := r.Outcomes[0].Plan
		want := []string{
			plan + ": confirming, run 2 of 3, about 12 s left; it has found: lost",
			plan + ": confirming, run 3 of 3, about 8.0 s left",
			"w-without-actions: confirming, without the plan's actions, run 1 of 1, about 4.0 s left",
		}
		if diff := cmp.Diff(want, said.ofPlans); diff != "" {
			t.Error(diff)
		}
	})
}
