package campaign

import (
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

func harmful(harm record.Harm) record.Finding {
	f := finding("persistentvolumeclaim/default/a", "created 2 times; without faults: created once")
	f.Harm = harm
	return f
}

// A finding that is unacceptable once in a hundred times is a bug even if it does not come every time, as long as it
// never comes without the plan's actions. A rare difference in a status is not.
func TestRareFindings(t *testing.T) {
	in := func(f record.Finding, runs ...int) answer {
		return func(n int, _ *record.Meta) []record.Finding {
			if slices.Contains(runs, n) {
				return []record.Finding{f}
			}
			return nil
		}
	}
	lost, status := harmful(record.HarmLost), harmful(record.HarmStatus)
	both := func(n int, m *record.Meta) []record.Finding {
		return append(in(lost, 1, 3)(n, m), status)
	}
	for _, tt := range []struct {
		name    string
		with    answer
		without answer
		want    string
		worst   record.Harm
		runs    int // of the plan
		quiet   int // without its actions, besides the three that the workload was learned from
	}{
		{"data lost, twice", in(lost, 1, 5), nil, "w-intermediate-1 bug 2/5", record.HarmLost, 5, 2},
		{"data lost, once", in(lost, 1), nil, "w-intermediate-1 bug 1/10", record.HarmLost, 10, 7},
		{"without the actions too", in(lost, 1, 4), in(lost, 1), "w-intermediate-1 workload 2/4", record.HarmLost, 4,
			1},
		{"a status", in(status, 1, 2), nil, "w-intermediate-1 unconfirmed 2/3", record.HarmStatus, 3, 0},
		{"data lost now and then, a status always", both, nil, "w-intermediate-1 bug 2/3", record.HarmLost, 3, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := answers(map[string]answer{"w-intermediate-1": tt.with, "w-without-actions": tt.without})
			c := config(t, f, "w")
			c.Patterns = []string{"intermediate"}
			r := mustRun(t, c)
			if diff := cmp.Diff([]string{tt.want}, statuses(r)); diff != "" {
				t.Error(diff)
			}
			o := r.Outcomes[0]
			if o.Findings[0].Harm != tt.worst {
				t.Errorf("first %+v", o.Findings[0])
			}
			if runs, quiet := f.runs["w-intermediate-1"], f.runs["w-without-actions"]; runs != tt.runs ||
				quiet != tt.quiet {
				t.Errorf("%d runs, %d without actions; want %d, %d", runs, quiet, tt.runs, tt.quiet)
			}
			if o.Status == result.Bug && !strings.Contains(o.Reason, "never came in") {
				t.Errorf("reason %q", o.Reason)
			}
		})
	}
}

// Runs without actions are done once for all plans of a workload.
func TestRunsWithoutActionsAreShared(t *testing.T) {
	each := func(name string) answer {
		f := finding("service/default/"+name, "never created; without faults: exists at the end")
		return func(int, *record.Meta) []record.Finding { return []record.Finding{f} }
	}
	f := answers(map[string]answer{
		"w-drift-10": each("a"), "w-drift-11": each("b"), "w-intermediate-1": each("c"), "v-intermediate-1": each("d"),
	})
	r := mustRun(t, config(t, f, "w", "v"))
	if n := len(r.With(result.Bug)); n != 4 {
		t.Fatalf("%v", statuses(r))
	}
	if f.runs["w-without-actions"] != 1 || f.runs["v-without-actions"] != 1 {
		t.Errorf("%v", f.runs)
	}
}

// Confirming takes at most a third of the budget, as long as there are plans to begin. Nothing is confirmed when the
// budget is used up: that is left to the campaign that goes on.
func TestShareOfConfirming(t *testing.T) {
	const budget = time.Hour
	for _, tt := range []struct {
		name   string
		used   bool // the budget
		harm   record.Harm
		status result.Status
	}{
		{"plans go on", false, record.HarmStatus, result.Bug},
		{"the budget is used up", true, record.HarmStatus, result.Unconfirmed},
		{"the budget is used up, and data is lost", true, record.HarmLost, result.Unconfirmed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			whole := mustRun(t, config(t, &fake{}, "w"))
			first, last := whole.Outcomes[0].Plan, whole.Outcomes[len(whole.Outcomes)-1].Plan
			var c *campaign
			f := &fake{}
			f.answer = func(p *plan.Plan, n int, meta *record.Meta, found *[]record.Finding, _ *[]string) error {
				switch {
				case p.TestName == first:
					*found, meta.Verdict = []record.Finding{harmful(tt.harm)}, record.Bug
				case p.TestName == whole.Outcomes[1].Plan && tt.used:
					c.clock.Resume(budget)
				}
				return nil
			}
			config := config(t, f, "w")
			config.Budget = budget
			c = newCampaign(config)
			c.queue.confirmed(budget / 2)
			ctx, end := c.begun(t.Context())
			defer end()
			err := c.run(ctx)
			r := c.finish(err)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(r.Outcomes, func(o result.Outcome) bool { return o.Plan == first })
			if i < 0 || r.Outcomes[i].Status != tt.status || r.Outcomes[i].Pending != tt.used {
				t.Fatalf("%v", statuses(r))
			}
			at := func(plan string, times int) int { // when it is run for that time
				for i, name := range f.all {
					if name == plan {
						if times--; times == 0 {
							return i
						}
					}
				}
				return -1
			}
			if again := at(first, 2); !tt.used && again < at(last, 1) {
				t.Errorf("it was confirmed before other plans began: %v", f.all)
			}
		})
	}
}

// What confirming will take is estimated before it begins, so that it does not take more than its share, and what was
// spent before a campaign was resumed does not make the share larger.
func TestConfirmingKeepsToItsShare(t *testing.T) {
	for _, resumed := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			const budget, runTakes = 100 * time.Second, 4 * time.Second
			var confirming, most time.Duration // most: before a new plan began
			f := &fake{}
			f.answer = func(p *plan.Plan, n int, m *record.Meta, found *[]record.Finding, _ *[]string) error {
				took := time.Second
				switch {
				case len(p.Actions) > 0:
					took = runTakes
					*found, m.Verdict = []record.Finding{finding("pod/default/"+p.TestName, "gone")}, record.Bug
					if n == 1 {
						most = max(most, confirming)
					} else {
						confirming += took
					}
				case strings.Contains(p.TestName, "-without-actions"):
					confirming += took
				}
				time.Sleep(took)
				m.Clock = &record.Clock{Virtual: true, Took: took}
				return nil
			}
			config := config(t, f, "u", "v", "w")
			config.Budget = budget + resumed
			c := newCampaign(config)
			c.clock.Resume(resumed)
			ctx, end := c.begun(t.Context())
			defer end()
			err := c.run(ctx)
			if r := c.finish(err); err != nil || len(r.With(result.Bug)) < 2 || len(r.NotRun) == 0 {
				t.Fatalf("%v: %v", err, statuses(r))
			}
			if most < budget/4 || most > budget/3 {
				t.Errorf("confirming took %s of %s", most, budget)
			}
		})
	}
}

// Runs with slow controllers are made when a finding needs them, and once for all plans of a workload, whichever of
// them is the first.
func TestSlowRunsAreShared(t *testing.T) {
	for _, finds := range []bool{false, true} {
		f := &fake{answer: func(p *plan.Plan, _ int, m *record.Meta, found *[]record.Finding, _ *[]string) error {
			if finds && strings.Contains(p.TestName, "-lost-answer-") {
				*found, m.Verdict = []record.Finding{finding("service/default/"+p.TestName, "gone")}, record.Bug
			} else if finds && strings.Contains(p.TestName, "-drift-") {
				*found, m.Verdict = []record.Finding{finding("pod/default/"+p.TestName, "gone")}, record.Bug
			}
			return nil
		}}
		c := config(t, f, "v", "w")
		for name := range c.Suite.Workloads { // they do not wait, so that slow controllers may see several steps as one
			step := plan.Step{Delete: &plan.DeleteStep{}}
			c.Suite.Workloads[name] = plan.Workload{Steps: []plan.Step{step, step}}
		}
		c.Runners = []run.Runner{f, f}
		r := mustRun(t, c)
		bugs, slowly := len(r.With(result.Bug)), map[bool]int{true: 1}[finds]
		if finds != (bugs > 4) || f.runs["v-slow"] != slowly || f.runs["w-slow"] != slowly {
			t.Errorf("%d bugs; runs %v", bugs, f.runs)
		}
	}
}

// In one run a step waits for an object until its timeout, and in another run the object is missing at the end. These
// are one finding. It does great harm even if it comes now and then.
func TestStepThatLacksWhatIsMissing(t *testing.T) {
	missing := finding("secret/default/a", "never created; without faults: exists at the end")
	missing.Harm, missing.Owner = record.HarmMissing, "db.example.com/default/a"
	lacks := record.Finding{
		Severity: record.SeverityBug, Judge: record.JudgeWorkload, Subject: "step 2", Harm: record.HarmMissing,
		Title: "step 2: wait until secret/default/a exists: not within 1m", Awaited: "secret/default/a",
	}
	unready := lacks
	unready.Harm, unready.Title = "", "step 2: wait until secret/default/a is ready: not within 1m"
	for _, tt := range []struct {
		name          string
		first, others record.Finding
		rare          bool // it comes in the first and the fifth run
		want          string
	}{
		{"it lacks it, and then it is missing", lacks, missing, false, "w-intermediate-1 bug 3/3"},
		{"it is missing, and then a step lacks it", missing, lacks, false, "w-intermediate-1 bug 3/3"},
		{"now and then", lacks, missing, true, "w-intermediate-1 bug 2/5"},
		{"it is there, but not ready", unready, missing, false, "w-intermediate-1 unconfirmed 1/3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := answers(map[string]answer{"w-intermediate-1": func(n int, _ *record.Meta) []record.Finding {
				switch {
				case n == 1:
					return []record.Finding{tt.first}
				case !tt.rare || n == 5:
					return []record.Finding{tt.others}
				}
				return nil
			}})
			c := config(t, f, "w")
			c.Patterns = []string{"intermediate"}
			if diff := cmp.Diff([]string{tt.want}, statuses(mustRun(t, c))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A confirmed finding of one plan confirms the same finding of another plan, unless that is worse.
func TestOnlyWhatIsAsBadConfirms(t *testing.T) {
	of := func(harm record.Harm) record.Finding {
		f := finding("pod/default/a", "it differs")
		f.Harm = harm
		return f
	}
	for _, tt := range []struct {
		name          string
		first, second record.Harm
		want          string // of the second plan
	}{
		{"the same", record.HarmReplaced, record.HarmReplaced, "w-intermediate-2 bug 1/1"},
		{"less bad", record.HarmMissing, record.HarmReplaced, "w-intermediate-2 bug 1/1"},
		{"worse", record.HarmReplaced, record.HarmMissing, "w-intermediate-2 bug 3/3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := answers(map[string]answer{
				"w-intermediate-1": func(int, *record.Meta) []record.Finding { return []record.Finding{of(tt.first)} },
				"w-intermediate-2": func(int, *record.Meta) []record.Finding { return []record.Finding{of(tt.second)} },
			})
			f.answer = also(f, func(history *[]string) { *history = append(*history, "op secret/default/b") })
			c := config(t, f, "w")
			c.Patterns = []string{"intermediate"}
			if got := statuses(mustRun(t, c)); !slices.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Once a bug is confirmed, one more run records everything, and the summary says what led to the bug.
func TestWhatLedToABug(t *testing.T) {
	always := func(int, *record.Meta) []record.Finding { return []record.Finding{harmful(record.HarmLost)} }
	for _, asked := range []bool{true, false} {
		f := answers(map[string]answer{"w-intermediate-1": always})
		c := config(t, f, "w")
		c.Patterns, c.Trace = []string{"intermediate"}, asked
		r := mustRun(t, c)
		o, runs := r.Outcomes[0], f.runs["w-intermediate-1"]
		var text strings.Builder
		if err := r.Text(&text); err != nil {
			t.Fatal(err)
		}
		says := strings.Contains(text.String(), "what led to it: trommel explain "+o.Traced+"\n")
		if !asked {
			if o.Lead != nil || len(f.traced) > 0 || says {
				t.Errorf("not asked: %+v, traced %v", o.Lead, f.traced)
			}
			continue
		}
		if o.Status != result.Bug || o.Came != 3 || o.Of != 3 || runs != 4 || len(f.traced) != 1 {
			t.Errorf("%s, %d of %d in %d runs, traced %v", o.Status, o.Came, o.Of, runs, f.traced)
		}
		gone := []string{"without the plan's actions", "with the kill a second later"}
		if diff := cmp.Diff(gone, o.Gone); diff != "" {
			t.Error(diff)
		}
		if o.Lead == nil || o.Lead.Reconcile != "the reconcile of default/a by op" || !says {
			t.Errorf("%+v\n%s", o.Lead, &text)
		}
		if _, err := record.Open(o.Traced); err != nil {
			t.Error(err)
		}
	}
}
