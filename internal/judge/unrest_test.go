package judge

import (
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A controller that never comes to rest has a bug only if it does without faults, and is fast, and nothing explains it.
func TestUnrest(t *testing.T) {
	const s = time.Second
	calm := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hot := record.Unrest{Controller: "c", Queue: "q", Taken: 5000, Span: 10 * s}
	with := func(change func(u *record.Unrest)) record.Unrest {
		u := hot
		change(&u)
		return u
	}
	every := func(delay time.Duration) record.Unrest {
		return with(func(u *record.Unrest) { u.Delay, u.Taken = delay, int(u.Span/delay) })
	}
	rested := &baseline.Baseline{Timing: baseline.Timing{Rested: true}}
	polls := func(queue string, delay time.Duration) *baseline.Baseline {
		return &baseline.Baseline{Timing: baseline.Timing{
			Rested: true, Polls: []record.Poll{{Controller: "c", Queue: queue, Delay: delay}},
		}}
	}
	write := plan.Action{Type: plan.DeleteObject}
	for _, tt := range []struct {
		name   string
		ref    *baseline.Baseline
		unrest record.Unrest
		plan   plan.Plan
		want   record.Severity // "": no finding
	}{
		{"always busy", rested, hot, plan.Plan{}, record.SeverityBug},
		{"nobody knows what is usual", nil, hot, plan.Plan{}, ""},
		{"never rests without faults", &baseline.Baseline{}, hot, plan.Plan{}, ""},
		{"the plan writes", rested, hot, plan.Plan{Actions: []plan.Action{write}}, record.SeverityNote},
		{"objects change", rested, with(func(u *record.Unrest) { u.Changes = true }), plan.Plan{}, record.SeverityNote},
		{"tries again at once", rested, every(10 * time.Millisecond), plan.Plan{}, record.SeverityBug},
		{"tries again each second", rested, every(s), plan.Plan{}, record.SeverityNote},
		{"faster than without faults", polls("q", s), every(10 * time.Millisecond), plan.Plan{}, record.SeverityBug},
		{"as fast as without faults", polls("q", 10*time.Millisecond), every(10 * time.Millisecond), plan.Plan{}, ""},
		{"another queue", polls("r", 10*time.Millisecond), every(10 * time.Millisecond), plan.Plan{},
			record.SeverityBug},
		{"a slow machine", polls("q", 5*time.Millisecond), hot, plan.Plan{}, ""},
		{"queues without names", polls("#1", 10*time.Millisecond), with(func(u *record.Unrest) {
			u.Queue, u.Delay = "#2", 10*time.Millisecond
		}), plan.Plan{}, ""},
		{"longer and longer pauses", rested, with(func(u *record.Unrest) {
			u.Growing, u.Delay = true, 320*s
		}), plan.Plan{}, record.SeverityNote},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := Evidence{Plan: &tt.plan, Baseline: tt.ref, Meta: record.Meta{
				WorkloadStart: calm, Calm: calm, Observed: calm.Add(time.Minute), Unrest: []record.Unrest{tt.unrest},
			}}
			findings, err := unrest{}.Judge(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			var got record.Severity
			for _, f := range findings {
				got = f.Severity
				t.Logf("%s\n%s", f.Title, f.Detail)
			}
			if got != tt.want || len(findings) > 1 {
				t.Errorf("severity %q, want %q", got, tt.want)
			}
		})
	}
}
