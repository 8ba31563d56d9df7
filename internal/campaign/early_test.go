package campaign

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// The plans of a workload begin when it is learned from two runs, and other workloads are learned besides. The summary
// has the same order as if all had been learned before.
func TestPlansBeginWhileOthersAreLearned(t *testing.T) {
	before := config(t, &fake{}, "a", "b", "c")
	before.Patterns = []string{"intermediate"}
	if _, err := Learn(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	whole := mustRun(t, before)
	for _, runners := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			f := lasting(time.Second, time.Second)
			c := config(t, f, "a", "b", "c")
			c.Patterns, c.Runners = []string{"intermediate"}, nil
			for range runners {
				c.Runners = append(c.Runners, run.Runner(f))
			}
			r := mustRun(t, c)
			first := slices.IndexFunc(f.all, func(name string) bool { return strings.Contains(name, "-intermediate-") })
			rest := f.all[max(0, first):]
			if first < 2 || !slices.Contains(rest, "c-without-faults") {
				t.Errorf("%d runners: %q", runners, f.all)
			}
			for _, w := range []string{"a", "b", "c"} {
				if n := f.runs[w+"-without-faults"]; n != 2 {
					t.Errorf("%s is learned from %d runs", w, n)
				}
			}
			if diff := cmp.Diff(statuses(whole), statuses(r)); diff != "" {
				t.Errorf("%d runners: %s", runners, diff)
			}
		})
	}
}

// A finding is judged after all runs without faults. If they excuse it, the plan runs again. If the workload ends
// differently in one of them, the finding is not judged, and no further plans begin.
func TestFindingsAreJudgedByAllRuns(t *testing.T) {
	for _, tt := range []struct {
		name string
		// third is the history of the third run without faults; nil: the same as that of the others.
		third []string
		want  result.Status // of the plan that finds something
		runs  int           // of the plan
		quiet int           // runs without faults
		plans bool          // others are run
	}{
		{"nothing new", nil, result.Bug, 3, 4, true},
		{"a field differs", []string{"configmap/default/a", `op secret/default/a {"data": {"v": "1"}}`},
			result.Passed, 2, 4, true},
		{"an object is missing", []string{"configmap/default/a"}, result.Unconfirmed, 1, 3, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{}
			f.answer = func(p *plan.Plan, n int, m *record.Meta, found *[]record.Finding, history *[]string) error {
				switch {
				case p.TestName == "w-without-faults" && n == 3 && tt.third != nil:
					*history = tt.third
				case p.TestName == "w-intermediate-1" && (n == 1 || tt.want == result.Bug):
					*found, m.Verdict = []record.Finding{finding("secret/default/a", "never created")}, record.Bug
				}
				return nil
			}
			c := config(t, f, "w")
			c.Patterns = []string{"intermediate", "lost-answer"}
			r := mustRun(t, c)
			i := slices.IndexFunc(r.Outcomes, func(o result.Outcome) bool { return o.Plan == "w-intermediate-1" })
			if i < 0 || r.Outcomes[i].Status != tt.want {
				t.Fatalf("%v\n%s", statuses(r), c.Progress)
			}
			if n := f.runs["w-intermediate-1"]; n != tt.runs {
				t.Errorf("the plan was run %d times, want %d", n, tt.runs)
			}
			if n := f.runs["w-without-faults"]; n != tt.quiet {
				t.Errorf("%d runs without faults, want %d", n, tt.quiet)
			}
			if (len(r.NotRun) == 0 && len(r.Unlearned) == 0) != tt.plans {
				t.Errorf("%v; not learned: %v", statuses(r), r.Unlearned)
			}
			if !tt.plans {
				return
			}
			// A campaign that goes on makes the same plans, so that none is run again. Another one uses what is known.
			before := len(f.all)
			c.Progress = &heard{}
			if again := mustRun(t, c); len(f.all) != before || !slices.Equal(statuses(again), statuses(r)) {
				t.Errorf("then %q: %v\n%s", f.all[before:], statuses(again), c.Progress)
			}
			ref, err := baseline.Read(learn.BaselineFile(c.Baselines, "w"))
			if err != nil || ref.Runs != 3 || ref.Begun != nil {
				t.Errorf("the baseline: %+v, %v", ref, err)
			}
		})
	}
}

// `trommel learn` makes the other runs of a baseline that has two.
func TestLearnCompletesABaseline(t *testing.T) {
	f := &fake{}
	c := config(t, f, "w")
	c.Patterns = []string{"intermediate"}
	mustRun(t, c)
	ref, err := baseline.Read(learn.BaselineFile(c.Baselines, "w"))
	if err != nil || ref.Runs != 2 || len(ref.Begun) != 2 {
		t.Fatalf("%+v, %v", ref, err)
	}
	c.Dir = t.TempDir()
	all, err := Learn(t.Context(), c)
	if err != nil || all[0].Err != nil || all[0].Baseline.Runs != 3 || f.runs["w-without-faults"] != 4 {
		t.Errorf("%+v, %v; %d runs", all[0], err, f.runs["w-without-faults"])
	}
}
