package campaign

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// steps are choices of one step of each stream, in this order.
func steps(streams string) (all []record.Choice) {
	came := map[string]int{}
	for i, stream := range strings.Fields(streams) {
		came[stream]++
		all = append(all, record.Choice{Number: i + 1, Stream: stream, Step: came[stream], What: stream})
	}
	return all
}

// Each step is late once, then each pair; what has found something already is not continued. The order of the plans
// does not matter.
func TestOrdersAreCounted(t *testing.T) {
	w := &orders{traces: map[string]bool{}, known: map[string]bool{}, made: map[string]orderPlan{}}
	end := func(p orderPlan, status result.Status, streams string) {
		w.made[p.label] = p
		w.take(&plan.Plan{TestName: p.label, Schedule: p.schedule}, &result.Outcome{Status: status}, steps(streams))
	}
	fifo := orderPlan{schedule: &plan.Schedule{Strategy: plan.FIFO}}
	end(fifo, result.Passed, "a b a workload time c")
	var labels []string
	for n, p := range w.next(true) {
		labels = append(labels, p.label)
		p.schedule.Strategy = plan.FIFO
		status, streams := result.Passed, []string{"b a a workload c", "a a b workload c", "a b workload a c", ""}[n]
		if n == 3 {
			status = result.Bug
		}
		end(p, status, streams)
	}
	if got, want := strings.Join(labels, " "), "late-1 late-2 late-3 late-6"; got != want {
		t.Fatalf("plans %s, want %s", got, want)
	}
	seeds := w.next(true)
	if len(seeds) != orderBatch || seeds[0].schedule.Strategy != plan.Swarm || seeds[0].schedule.Seed != 1 {
		t.Errorf("after the late steps: %v", seeds)
	}
	end(seeds[0], result.Passed, "b a a workload c") // an order that was run before
	var pairs []string
	for _, p := range w.pairs {
		pairs = append(pairs, fmt.Sprintf("%s: %v", p.label, p.schedule.Late))
	}
	want := []string{
		"late-1-1: [{a 1} {b 1}]", "late-1-3: [{a 1} {a 2}]", "late-1-5: [{a 1} {c 1}]",
		"late-2-2: [{b 1} {a 2}]", "late-2-5: [{b 1} {c 1}]",
		"late-3-5: [{a 2} {c 1}]",
	}
	if diff := cmp.Diff(want, pairs); diff != "" {
		t.Error(diff)
	}
	w.covered.Workload = "w"
	const text = "w: all orders with one late step: 4 of 4 run, 1 finding; with two: 0 of 6 run, 0 findings; " +
		"1 seed, 0 findings (5 different orders)"
	if got := w.covered.String(); got != text {
		t.Errorf("got  %s\nwant %s", got, text)
	}
}

// With a budget, late steps, seeds, and seeds with faults take turns, as long as there are any. A fault gets a seed of
// its own.
func TestSeedsAndFaultsTakeTurns(t *testing.T) {
	kill := []plan.Action{{Type: plan.RestartController, Target: "op"}}
	w := &orders{
		singles: []orderPlan{{label: "late-1"}}, pairs: []orderPlan{{label: "late-1-2"}},
		faults: []*plan.Plan{
			{TestName: "w-kill-1", Workload: "w", Actions: kill},
			{TestName: "w-kill-2", Workload: "w", Actions: kill},
		},
	}
	var labels []string
	for range 7 {
		all := w.next(true)
		labels = append(labels, all[0].label, all[len(all)-1].label)
		if want := strings.Contains(all[0].label, "kill"); want != (len(all[0].actions) == 1) {
			t.Errorf("%s has %d actions", all[0].label, len(all[0].actions))
		}
	}
	got, want := strings.Join(labels, " "), "late-1 late-1 swarm-1 swarm-5 swarm-1-kill-1 swarm-5-kill-1 "+
		"late-1-2 late-1-2 swarm-6 swarm-10 swarm-6-kill-2 swarm-10-kill-2 swarm-11 swarm-15"
	if got != want {
		t.Errorf("plans %s,\nwant %s", got, want)
	}
}

// Plans in which an event is late for one controller come before plans in which it is late for everybody.
func TestLateControllersComeFirst(t *testing.T) {
	w := &orders{traces: map[string]bool{}, known: map[string]bool{}, made: map[string]orderPlan{}}
	fifo := &plan.Plan{Schedule: &plan.Schedule{Strategy: plan.FIFO}}
	w.take(fifo, &result.Outcome{Status: result.Passed}, steps("apiserver-1 a apiserver-1 west/apiserver-1 b"))
	var labels []string
	for _, p := range w.next(true) {
		labels = append(labels, p.label)
	}
	if got, want := strings.Join(labels, " "), "late-2 late-5 late-1 late-3 late-4"; got != want {
		t.Errorf("plans %s, want %s", got, want)
	}
}

// With a budget, a quarter of the plans are of the pattern order, if the runs have a clock of their own. When all
// others have run, the pattern ends after a quarter of the budget.
func TestOrdersHaveAShare(t *testing.T) {
	for _, tt := range []struct {
		name    string
		budget  time.Duration
		virtual bool
		least   int // plans of the pattern order
		most    int
	}{
		{"a budget", 100 * time.Second, true, 25, 25 + 2*orderBatch},
		{"no budget", 0, true, 0, 0},
		{"real time", 100 * time.Second, false, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := config(t, &fake{answer: func(
					_ *plan.Plan, _ int, m *record.Meta, _ *[]record.Finding, _ *[]string,
				) error {
					time.Sleep(time.Second)
					m.Clock = &record.Clock{Virtual: tt.virtual, Took: time.Second}
					return nil
				}}, "v", "w")
				c.Budget = tt.budget
				orders := 0
				for i, o := range mustRun(t, c).Outcomes {
					if o.Pattern == pattern.Schedules {
						orders++
					} else if (orders+1)*orderShare <= i && tt.most > 0 {
						t.Errorf("only %d of the first %d plans are of the pattern order", orders, i)
					}
				}
				if orders < tt.least || orders > tt.most {
					t.Errorf("%d plans of the pattern order", orders)
				}
			})
		})
	}
}

// Those that have begun count, and the rest take turns.
func TestShare(t *testing.T) {
	begun, all := map[*task]bool{}, []*task{}
	for i, p := range []string{"order", "stale", "order", "down", "stale", "stale", "order", "stale", "stale"} {
		all = append(all, &task{pattern: p})
		begun[all[i]] = i == 0
	}
	var got []string
	for _, t := range share(all, begun) {
		got = append(got, t.pattern)
	}
	const want = "order stale down stale stale stale stale order order"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// Without a budget, there is an end.
func TestOrdersWithoutABudgetEnd(t *testing.T) {
	w := &orders{traces: map[string]bool{}, known: map[string]bool{}, made: map[string]orderPlan{}}
	w.pairs = []orderPlan{{label: "late-1-2"}}
	plans := 0
	for next := w.next(false); len(next) > 0; next = w.next(false) {
		if plans += len(next); plans > 1000 {
			t.Fatal("there is no end")
		}
	}
	if plans != seedsUnbudgeted {
		t.Errorf("%d plans, want %d", plans, seedsUnbudgeted)
	}
}
