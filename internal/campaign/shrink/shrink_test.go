package shrink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// fake runs plans: a plan with an action at an API server loses the Service. Invariants see that, unless they are
// blind.
type fake struct {
	blind bool
	runs  int
}

func (f *fake) once(_ context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, error) {
	f.runs++
	r := &record.Run{Dir: fmt.Sprint(f.runs), Meta: record.Meta{Verdict: record.Pass}}
	lost := strings.Contains(textOf(p), "pauseAPIServer")
	for i, kind := range []string{"Secret", "Service"} {
		if lost && i == 1 {
			continue
		}
		r.History = append(r.History, record.HistoryEntry{
			ResourceVersion: uint64(i + 1), Event: record.Created, Type: strings.ToLower(kind), Namespace: "default",
			Name: "a",
			Object: fmt.Appendf(nil,
				`{"kind": %q, "apiVersion": "v1", "metadata": {"name": "a", "namespace": "default"}}`, kind),
		})
	}
	switch {
	case lost && o.Baseline != nil:
		r.Findings = []record.Finding{lostService}
	case lost && len(p.Invariants) > 0 && !f.blind:
		r.Findings = []record.Finding{{
			Severity: record.SeverityBug, Judge: record.JudgeInvariant, Title: "invariant " +
				p.Invariants[0].Name + ": gone",
		}}
	}
	if len(r.Findings) > 0 {
		r.Meta.Verdict = record.Bug
	}
	return r, nil
}

var lostService = record.Finding{
	Severity: record.SeverityBug, Judge: record.JudgeBaseline, Subject: "service/default/a",
	Title: "service/default/a differs from the runs without faults: never created; without faults: exists at the end",
}

func TestShrink(t *testing.T) {
	for _, blind := range []bool{false, true} {
		suite, p := load(t)
		f := &fake{blind: blind}
		r, err := Shrink(context.Background(), Config{
			Suite: suite, Plan: p, Finding: lostService, Dir: t.TempDir(), once: f.once,
		})
		if err != nil {
			t.Fatal(err)
		}
		if !r.Minimal || r.After.Actions != 1 || r.After.Steps != 1 || r.Before.Actions != 6 || r.Runs != f.runs {
			t.Errorf("%+v, %d runs", r, f.runs)
		}
		if err := r.Plan.Validate(suite); err != nil || r.Plan.TestName != "big-small" {
			t.Errorf("%s: %v", r.Plan.TestName, err)
		}
		if blind {
			if r.Alone || r.Invariant != "" || len(r.Plan.Invariants) > 0 || !strings.Contains(r.Note, "was left out") {
				t.Errorf("an invariant that finds nothing: %+v", r)
			}
			continue
		}
		if !r.Alone || r.Invariant != "service-a-exists" || len(r.Plan.Invariants) != 1 || r.Note != "" ||
			len(r.Plan.History) != 1 || r.Plan.History[0].String() != "service/default/*" {
			t.Errorf("%+v", r)
		}
	}
}

// Shrinking begins with runs of the plan itself, and shows them, with how long they will take as soon as that is known.
func TestWhatShrinkingBeginsWith(t *testing.T) {
	for _, recorded := range []time.Duration{0, 3 * time.Second} {
		suite, p := load(t)
		f := &fake{}
		var told []string
		_, err := Shrink(context.Background(), Config{
			Suite: suite, Plan: p, Finding: lostService, Dir: t.TempDir(), Took: recorded,
			once: func(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, error) {
				r, err := f.once(ctx, p, o)
				r.Meta.Clock = &record.Clock{Took: 4 * time.Second}
				return r, err
			},
			Progress: func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) },
		})
		if err != nil {
			t.Fatal(err)
		}
		first := "learning what the workload does without faults"
		if recorded > 0 {
			first += ", about 15 s left"
		}
		want := []string{
			first, "the plan as it is: run 1 of 2, about 8.0 s left", "the plan as it is: run 2 of 2, about 4.0 s left",
		}
		if len(told) < 3 || !slices.Equal(told[:3], want) {
			t.Errorf("told %q, want %q", told, want)
		}
	}
}

func TestNotShown(t *testing.T) {
	suite, p := load(t)
	n := 0
	_, err := Shrink(context.Background(), Config{
		Suite: suite, Plan: p, Finding: record.Finding{Judge: record.JudgeInvariant, Title: "a"}, Dir: t.TempDir(),
		once: func(context.Context, *plan.Plan, run.RunOptions) (*record.Run, error) {
			n++
			r := &record.Run{}
			if n == 1 {
				r.Findings = []record.Finding{{Severity: record.SeverityBug, Judge: record.JudgeInvariant, Title: "a"}}
			}
			return r, nil
		},
	})
	var notShown *NotShownError
	if !errors.As(err, &notShown) || notShown.Came != 1 || notShown.Of != 2 {
		t.Errorf("got %v", err)
	}
}

// No plan is tried that is not expected to end within the budget, together with the runs that conclude.
func TestBudgetIsKept(t *testing.T) {
	const runTakes = 3 * time.Second
	for _, tt := range []struct {
		name   string
		budget time.Duration
		tries  bool // some
		alone  bool // there is time to conclude
		whole  bool // the budget suffices for everything
	}{
		{"only the plan itself", 15 * time.Second, false, false, false},
		{"and to conclude", 28 * time.Second, false, true, false},
		{"some tries", time.Minute, true, true, false},
		{"all", time.Hour, true, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				suite, p := load(t)
				f := &fake{}
				r, err := Shrink(t.Context(), Config{
					Suite: suite, Plan: p, Finding: lostService, Dir: t.TempDir(), Budget: tt.budget,
					once: func(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, error) {
						time.Sleep(runTakes)
						return f.once(ctx, p, o)
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				if r.Took > tt.budget || tt.tries != (r.Tried > 0) || tt.alone != r.Alone || tt.whole != r.Minimal ||
					!r.Alone && r.Note != outOfTime {
					t.Errorf("%s of %s, %d tries, alone %t, minimal %t, note %q", r.Took, tt.budget, r.Tried, r.Alone,
						r.Minimal, r.Note)
				}
			})
		})
	}
}
