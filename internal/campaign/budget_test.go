package campaign

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// lasting answers runs that take a time by the machine's clock, and ten times as long by their own: one for runs
// without faults, and one for plans.
func lasting(quiet, plans time.Duration) *fake {
	return &fake{answer: func(p *plan.Plan, _ int, m *record.Meta, _ *[]record.Finding, _ *[]string) error {
		took := plans
		if len(p.Actions) == 0 {
			took = quiet
		}
		time.Sleep(took)
		m.Clock = &record.Clock{Virtual: true, Took: took}
		m.Started, m.Ended = time.Unix(0, 0), time.Unix(0, 0).Add(10*took)
		return nil
	}}
}

// A campaign says at its start how many plans the budget reaches, with learning, and again when it turns out to be
// wrong. In virtual time, what a run takes of the machine counts.
func TestWhatTheBudgetReaches(t *testing.T) {
	for _, tt := range []struct {
		name         string
		budget       time.Duration
		quiet, plans time.Duration
		runners      int
		workloads    []string
		says         []string
		ran          int
	}{
		{
			"some plans", 20 * time.Second, 2 * time.Second, 2 * time.Second, 1, []string{"w"},
			[]string{"budget 20s (after the builds), of which learning took 4.0 s: about 7 of 8 plans, " +
				"the most valuable first; " +
				"fewer if there are findings to confirm"}, 8,
		},
		{
			"all", time.Minute, 2 * time.Second, 2 * time.Second, 1, []string{"w"},
			[]string{"budget 1m (after the builds), of which learning took 4.0 s: all 8 plans, in about 16 s"}, 8,
		},
		{"no limit", 0, 2 * time.Second, 2 * time.Second, 1, []string{"w"},
			[]string{"8 plans, in about 16 s; --budget sets a limit"}, 8},
		{"learning takes all", 3 * time.Second, 2 * time.Second, 2 * time.Second, 1, []string{"w"}, []string{
			"the budget ended during learning; --budget 1m is probably enough; 1 workload not learned: w",
		}, 0},
		{
			"side by side", 25 * time.Second, 2 * time.Second, 2 * time.Second, 2, []string{"w"},
			[]string{"budget 25s (after the builds), of which learning took 2.0 s: all 8 plans, in about 8.2 s"}, 8,
		},
		{
			"learning takes ten times longer than plans", 5 * time.Minute, 25 * time.Second, 2 * time.Second, 1,
			[]string{"w"},
			[]string{
				"budget 5m (after the builds), of which learning took 50 s: all 8 plans, in about 3 min",
			}, 8,
		},
		{
			"plans take longer than learning", 2 * time.Minute, time.Second, 6 * time.Second, 1,
			[]string{"a", "b", "c", "d", "e", "f", "g"},
			[]string{
				"budget 2m (after the builds): 8 plans so far, after 2.0 s; 6 workloads still to be learned",
				"budget 2m (after the builds), of which learning took 14 s: about 17 of 56 plans, " +
					"the most valuable first; fewer if there are findings to confirm",
			}, 17,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := lasting(tt.quiet, tt.plans)
				c := config(t, f, tt.workloads...)
				c.Budget, c.Patterns = tt.budget, acting()
				c.Runners = nil
				for range tt.runners {
					c.Runners = append(c.Runners, run.Runner(f))
				}
				r := mustRun(t, c)
				var says []string
				for line := range strings.Lines(c.Progress.(*heard).String()) {
					if strings.HasPrefix(line, "budget") || strings.Contains(line, "--budget") {
						says = append(says, strings.TrimSpace(line))
					}
				}
				if diff := cmp.Diff(tt.says, says); diff != "" {
					t.Error(diff)
				}
				if tt.ran == 0 && (r.Stopped != "the budget of 3s was used up by learning" ||
					r.Took > tt.budget+tt.quiet || !r.Undecided()) {
					t.Errorf("stopped after %s: %s; undecided: %t", r.Took, r.Stopped, r.Undecided())
				}
				if len(r.Outcomes) != tt.ran {
					t.Errorf("%d plans were run, want %d", len(r.Outcomes), tt.ran)
				}
			})
		})
	}
}

// Learning has a quarter of the budget. The workloads whose plans promise most are learned first, and when the campaign
// goes on, the others are.
func TestLearningHasAQuarterOfTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(t, lasting(time.Second, time.Second), "a", "b", "c", "d", "e", "f")
		object := &plan.ApplyStep{Objects: []map[string]any{{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x"},
		}}}
		gone := &plan.DeleteStep{ResourceKey: plan.ResourceKey{Type: "configmap", Namespace: "default", Name: "x"}}
		change := func(name string, steps ...plan.Step) { c.Suite.Workloads[name] = plan.Workload{Steps: steps} }
		change("f", plan.Step{Apply: object}, plan.Step{Delete: gone}, plan.Step{Apply: object})
		change("e", plan.Step{Apply: object}, plan.Step{Delete: gone})
		change("d", plan.Step{Apply: object}, plan.Step{Apply: object}, plan.Step{Apply: object})
		c.Patterns = acting()
		c.Budget = 40 * time.Second
		first := mustRun(t, c) // each workload is learned from two runs
		said := c.Progress.(*heard).String()
		if !slices.Equal(first.Unstudied, []string{"c"}) || !strings.Contains(first.GoOn, "--budget 40s") ||
			!strings.Contains(said, "the budget of 40s leaves no time for more; 1 workload not learned: c") {
			t.Fatalf("not learned: %q; to go on: %s\n%s", first.Unstudied, first.GoOn, said)
		}
		var order []string
		for line := range strings.Lines(said) {
			if name, ok := strings.CutSuffix(strings.TrimSpace(line), ": learning what it does without faults"); ok {
				order = append(order, name)
			}
		}
		if diff := cmp.Diff([]string{"f", "e", "d", "a", "b"}, order); diff != "" {
			t.Error(diff)
		}
		var text strings.Builder
		if err := first.Text(&text); err != nil || !strings.Contains(text.String(),
			"not tested\n  1 workload, which the budget left no time to learn: c\n") {
			t.Errorf("%v\n%s", err, text.String())
		}
		c.Budget, c.Progress = 40*time.Second+first.Took, &heard{}
		second := mustRun(t, c)
		if len(second.Unstudied) > 0 || len(second.Outcomes) <= len(first.Outcomes) ||
			!slices.ContainsFunc(second.Outcomes, func(o result.Outcome) bool { return o.Workload == "c" }) {
			t.Errorf("not learned: %q; %d plans, %d before", second.Unstudied, len(second.Outcomes),
				len(first.Outcomes))
		}
	})
}

// A campaign that goes on names the budget that it was given, and not what it has spent.
func TestBudgetOfAResumedCampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(t, lasting(2*time.Second, 2*time.Second), "w")
		c.Budget, c.Patterns = 8*time.Second, acting()
		first := mustRun(t, c)
		c.Budget, c.Progress = 10*time.Second+first.Took, &heard{}
		second := mustRun(t, c)
		const want = "budget 10s (after the builds), of which learning took 0.0 s: about 6 of 8 plans"
		if len(first.Outcomes) != 2 ||
			!strings.Contains(c.Progress.(*heard).String(), want) {
			t.Errorf("%v, then %v\n%s", statuses(first), statuses(second), c.Progress)
		}
	})
}

// The result describes the most valuable plans that were not run, in the order in which they would come, and says how
// to go on.
func TestWhatWasNotRun(t *testing.T) {
	all := config(t, &fake{}, "v", "w")
	all.Patterns = acting()
	whole := mustRun(t, all)
	if len(whole.Next) > 0 || whole.GoOn != "" {
		t.Errorf("all were run, and then %+v: %s", whole.Next, whole.GoOn)
	}
	synctest.Test(t, func(t *testing.T) {
		c := config(t, lasting(time.Second, 4*time.Second), "v", "w")
		c.Budget, c.Patterns = 36*time.Second, acting()
		r := mustRun(t, c)
		ran := len(r.Outcomes)
		if ran == 0 || len(r.Next) != unrunPlans || len(r.NotRun) != len(whole.Outcomes)-ran {
			t.Fatalf("%d were run, %d are described of %d", ran, len(r.Next), len(r.NotRun))
		}
		for i, got := range r.Next {
			o := whole.Outcomes[ran+i]
			file := filepath.Join(c.Dir, "plans", o.Plan+".yaml")
			want := result.Unrun{Plan: o.Plan, File: file, Workload: o.Workload, Pattern: o.Pattern, Why: o.Why}
			if got != want || got.Why == "" {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		if want := "trommel test --resume " + c.Dir + " --budget 36s"; r.GoOn != want {
			t.Errorf("%s, want %s", r.GoOn, want)
		}
	})
}

// finds answers runs that take a while by the machine's clock: those of plans with a finding of their own each.
func finds(harm record.Harm, took func(p *plan.Plan, n int) time.Duration, plans ...string) *fake {
	return &fake{answer: func(p *plan.Plan, n int, m *record.Meta, found *[]record.Finding, _ *[]string) error {
		d := took(p, n)
		time.Sleep(d)
		m.Clock = &record.Clock{Virtual: true, Took: d}
		if slices.Contains(plans, p.TestName) {
			f := finding("persistentvolumeclaim/default/"+p.TestName, "created 2 times; without faults: created once")
			f.Harm = harm
			*found, m.Verdict = []record.Finding{f}, record.Bug
		}
		return nil
	}}
}

// No run begins that is not expected to end within the budget. What is found can be confirmed within it; what cannot,
// because it takes longer than could be foreseen, is left to the campaign that goes on, whatever harm it does.
func TestBudgetIsKept(t *testing.T) {
	names := []string{}
	for _, o := range mustRun(t, config(t, &fake{}, "w")).Outcomes {
		names = append(names, o.Plan)
	}
	steady := func(*plan.Plan, int) time.Duration { return 3 * time.Second }
	longer := func(p *plan.Plan, n int) time.Duration { // once a plan has found something
		if slices.Contains(names, p.TestName) && n > 1 {
			return 8 * time.Second
		}
		return 3 * time.Second
	}
	for _, tt := range []struct {
		name    string
		took    func(*plan.Plan, int) time.Duration
		budget  time.Duration
		runners int
		finds   int // how many plans, from the first
		want    []string
		resumed []string
	}{
		{"a bug", steady, 40 * time.Second, 1, 1, []string{"bug 3/3", "pass", "pass"}, nil},
		{"several", steady, 40 * time.Second, 1, 8, []string{"bug 3/3", "bug 3/3"}, nil},
		{"the first plan, which needs no more time than its own", steady, 16 * time.Second, 1, 1,
			[]string{"unconfirmed 1/1"}, []string{"bug 3/3", "pass", "pass", "pass", "pass"}},
		{"longer than foreseen", longer, 30 * time.Second, 1, 1, []string{"unconfirmed 2/2"},
			append([]string{"bug 3/3"}, slices.Repeat([]string{"pass"}, 7)...)},
		// More plans may pass: it is open which of two runs gets a cluster that both wait for.
		{"side by side", longer, 27 * time.Second, 2, 1, []string{"unconfirmed 2/2", "pass", "pass", "pass"}, nil},
		{"no time for a plan", steady, 8 * time.Second, 1, 1, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := finds(record.HarmLost, tt.took, names[:tt.finds]...)
				c := config(t, f, "w")
				c.Budget, c.Runners, c.Patterns = tt.budget, nil, acting()
				for range tt.runners {
					c.Runners = append(c.Runners, run.Runner(f))
				}
				outcomes := func(r *result.Result) (all []string) {
					for _, s := range statuses(r) {
						_, s, _ = strings.Cut(s, " ")
						all = append(all, s)
					}
					return all
				}
				r := mustRun(t, c)
				got := outcomes(r)
				if tt.runners > 1 {
					got = got[:min(len(got), len(tt.want))]
				}
				if diff := cmp.Diff(tt.want, got); diff != "" || r.Took > tt.budget {
					t.Errorf("%s; took %s of %s", diff, r.Took, tt.budget)
				}
				pending := len(r.Pending())
				if got := slices.ContainsFunc(tt.want, func(s string) bool {
					return strings.HasPrefix(s, "unconfirmed")
				}); got != (pending > 0) || r.GoOn == "" || r.Undecided() != (pending > 0 || tt.want == nil) {
					t.Errorf("%d to confirm, undecided %t, to go on: %s", pending, r.Undecided(), r.GoOn)
				}
				if tt.resumed == nil {
					return
				}
				var text strings.Builder
				if err := r.Text(&text); err != nil || !strings.Contains(text.String(),
					"not confirmed: the budget ended\n  1. baseline: persistentvolumeclaim/default/"+names[0]) {
					t.Errorf("%v: %s", err, text.String())
				}
				first := r.Outcomes[0].Record
				before := f.runs[names[0]]
				c.Budget = 2*tt.budget + r.Took
				r = mustRun(t, c)
				if diff := cmp.Diff(tt.resumed, outcomes(r)); diff != "" || r.Took > c.Budget {
					t.Errorf("after it went on: %s; took %s of %s", diff, r.Took, c.Budget)
				}
				if again := f.runs[names[0]] - before; again != 2 || r.Outcomes[0].Record != first {
					t.Errorf("the plan was run %d times more; its first run is %s, and was %s", again,
						r.Outcomes[0].Record, first)
				}
				if _, err := record.Open(first); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A campaign that goes on, and ends before it has confirmed what the one before has left, keeps that.
func TestPendingOutcomesAreKept(t *testing.T) {
	whole := mustRun(t, config(t, &fake{}, "w"))
	name := whole.Outcomes[0].Plan
	steady := func(*plan.Plan, int) time.Duration { return 3 * time.Second }
	synctest.Test(t, func(t *testing.T) {
		c := config(t, finds(record.HarmStatus, steady, name), "w")
		for _, budget := range []time.Duration{16 * time.Second, 17 * time.Second} {
			c.Budget = budget
			r := mustRun(t, c)
			if diff := cmp.Diff([]string{name + " unconfirmed 1/1"}, statuses(r)); diff != "" || len(r.Pending()) != 1 {
				t.Error(diff)
			}
		}
		s, err := ReadState(c.Dir)
		if err != nil || len(s.Outcomes) != 1 || !s.Outcomes[0].Pending {
			t.Errorf("%v: %+v", err, s)
		}
	})
}

// As soon as three plans have run, the estimate goes by them: runs without faults may take ten times longer.
func TestPlansAreEstimatedByPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(t, lasting(30*time.Second, 2*time.Second), "w")
		c.Budget, c.Patterns = 160*time.Second, acting()
		r := mustRun(t, c) // learning takes 2 min
		if len(r.Outcomes) != 8 || r.Stopped != "" {
			t.Errorf("%d plans were run in %s, want all 8: %s", len(r.Outcomes), r.Took, r.Stopped)
		}
	})
}

// Workloads that the user names are learned in his order; the one that he names first is learned in any case.
func TestNamedWorkloadsAreLearnedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(t, lasting(time.Second, time.Second), "a", "b", "c")
		object := &plan.ApplyStep{Objects: []map[string]any{{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x"},
		}}}
		gone := &plan.DeleteStep{ResourceKey: plan.ResourceKey{Type: "configmap", Namespace: "default", Name: "x"}}
		c.Suite.Workloads["a"] = plan.Workload{Steps: []plan.Step{{Apply: object}, {Delete: gone}, {Apply: object}}}
		c.Workloads, c.Budget, c.Patterns = []string{"c", "a", "b"}, 20*time.Second, acting()
		r := mustRun(t, c)
		said := c.Progress.(*heard).String()
		first, second := strings.Index(said, "c: learning"), strings.Index(said, "a: learning")
		if first < 0 || second < first || !slices.Equal(r.Unstudied, []string{"b"}) {
			t.Errorf("not learned: %q\n%s", r.Unstudied, said)
		}
	})
}
