package campaign

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A finding that comes without a plan's actions is not a bug of plans with the same finding, whichever run comes first.
// A worse finding, or another one, stays.
func TestFindingsJoinWhatComesWithoutActions(t *testing.T) {
	of := func(harm record.Harm, subject, field string) record.Finding {
		f := finding(subject, "it differs")
		f.Harm, f.Field = harm, field
		return f
	}
	status := of(record.HarmStatus, "cron.example.org/default/a", "status.succeeded")
	for _, tt := range []struct {
		name    string
		found   record.Finding // by the first plan, every time
		without record.Finding // in the second run without actions, which another plan needs
		want    string
	}{
		{"the same", status, status, "w-intermediate-1 workload 3/3"},
		{"another field of the status", status, of(record.HarmStatus, "cron.example.org/default/a", "status.history"),
			"w-intermediate-1 workload 3/3"},
		{"the status of another object", status,
			of(record.HarmStatus, "cron.example.org/default/b", "status.succeeded"), "w-intermediate-1 bug 3/3"},
		{"another field of the spec", of(record.HarmWrong, "pod/default/a", "spec.a"),
			of(record.HarmWrong, "pod/default/a", "spec.b"), "w-intermediate-1 bug 3/3"},
		{"a spec, and a status without actions", of(record.HarmWrong, "pod/default/a", "spec.a"),
			of(record.HarmStatus, "pod/default/a", "status.a"), "w-intermediate-1 bug 3/3"},
		{"lost, and replaced without actions", of(record.HarmLost, "secret/default/a", ""),
			of(record.HarmReplaced, "secret/default/a", ""), "w-intermediate-1 bug 3/3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rare := of(record.HarmLost, "persistentvolumeclaim/default/a", "")
			f := answers(map[string]answer{
				"w-intermediate-1": func(int, *record.Meta) []record.Finding { return []record.Finding{tt.found} },
				"w-intermediate-2": func(n int, _ *record.Meta) []record.Finding {
					if n == 1 {
						return []record.Finding{rare}
					}
					return nil
				},
				"w-without-actions": func(n int, _ *record.Meta) []record.Finding {
					if n == 2 {
						return []record.Finding{tt.without}
					}
					return nil
				},
			})
			f.answer = also(f, func(history *[]string) { *history = append(*history, "op secret/default/b") })
			c := config(t, f, "w")
			c.Patterns = []string{"intermediate"}
			want := []string{tt.want, "w-intermediate-2 bug 1/10"}
			if diff := cmp.Diff(want, statuses(mustRun(t, c))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// also changes the history of each run of a fake.
func also(f *fake, change func(history *[]string)) func(
	*plan.Plan, int, *record.Meta, *[]record.Finding, *[]string,
) error {
	answer := f.answer
	return func(p *plan.Plan, n int, m *record.Meta, found *[]record.Finding, history *[]string) error {
		change(history)
		return answer(p, n, m, found, history)
	}
}

// A workload of which a step fails without faults, if only now and then, is not used for more plans, also by a campaign
// that goes on with this one.
func TestWorkloadThatFailsWithoutFaults(t *testing.T) {
	failed := record.Finding{
		Severity: record.SeverityBug, Judge: record.JudgeWorkload, Subject: "step 1",
		Title: "step 1: wait for pod/default/a: not within 2s",
	}
	for _, tt := range []struct {
		name    string
		without record.Finding
		fails   bool
	}{
		{"a step fails", failed, true},
		{"something differs", finding("secret/default/a", "never created"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{answer: func(
				p *plan.Plan, _ int, m *record.Meta, found *[]record.Finding, history *[]string,
			) error {
				switch {
				case strings.HasPrefix(p.TestName, "w-intermediate-"):
					*found, m.Verdict = []record.Finding{failed}, record.Bug
				case p.TestName == "w-without-actions":
					*found, m.Verdict = []record.Finding{tt.without}, record.Bug
				}
				*history = append(*history, "op secret/default/b", "op secret/default/c")
				return nil
			}}
			c := config(t, f, "v", "w")
			c.Patterns = []string{"intermediate"}
			r := mustRun(t, c)
			want := []string{"v-intermediate-1 pass", "v-intermediate-2 pass", "v-intermediate-3 pass",
				"w-intermediate-1 workload 3/3"}
			if !tt.fails {
				if len(r.Unlearned) > 0 || len(r.Outcomes) != 6 {
					t.Errorf("%v, %v", statuses(r), r.Unlearned)
				}
				return
			}
			for range 2 { // it goes on with nothing
				if diff := cmp.Diff(want, slices.Sorted(slices.Values(statuses(r)))); diff != "" {
					t.Error(diff)
				}
				if len(r.NotRun) > 0 || r.GoOn != "" || len(r.Unlearned) != 1 {
					t.Fatalf("not run %v, %q, %v", r.NotRun, r.GoOn, r.Unlearned)
				}
				says := fmt.Sprintf("workload \"w\" fails in 1 of 4 runs without faults, and is not used for more "+
					"plans until that is mended: %s (%s/runs/w-without-actions/1)\n2 plans not run",
					failed.Title, c.Dir)
				if got := r.Unlearned[0].Reason; got != says {
					t.Errorf("%q, want %q", got, says)
				}
				f.all = nil
				r = mustRun(t, c)
			}
			if len(f.all) > 0 {
				t.Errorf("runs %v again", f.all)
			}
			c.Version = "v2" // whatever it was is mended
			f.answer = nil
			if r = mustRun(t, c); len(r.Unlearned) > 0 || slices.ContainsFunc(r.Outcomes, func(o result.Outcome) bool {
				return o.Status != result.Passed
			}) {
				t.Errorf("%v, %v", statuses(r), r.Unlearned)
			}
		})
	}
}

// A workload that fails in one of the runs that it is learned from says how many of them have passed.
func TestWorkloadThatFailsWhileItIsLearned(t *testing.T) {
	for failing, want := range map[int]string{
		1: "it does not pass without faults: ", 2: "it fails in 1 of 2 runs without faults: ",
	} {
		f := &fake{answer: func(p *plan.Plan, n int, m *record.Meta, _ *[]record.Finding, _ *[]string) error {
			if n >= failing {
				m.Verdict, m.Reason = record.Bug, "step 1: not within 2s"
			}
			return nil
		}}
		r := mustRun(t, config(t, f, "w"))
		if len(r.Unlearned) != 1 || !strings.Contains(r.Unlearned[0].Reason, want) {
			t.Errorf("%v, want %q", r.Unlearned, want)
		}
	}
}
