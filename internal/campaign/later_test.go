package campaign

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// looksAgain answers runs of a workload w whose controller looks again after a time. If as much has passed as the name
// of one of the plans says, it creates one more Secret.
func looksAgain(delay time.Duration, changes ...string) *fake {
	return &fake{answer: func(p *plan.Plan, _ int, meta *record.Meta, _ *[]record.Finding, history *[]string) error {
		meta.Clock = &record.Clock{Virtual: true}
		meta.Polls = []record.Poll{{Controller: "op", Queue: "q", Delay: delay}}
		for i := range p.Steps { // the clock jumps for the first time before the third object
			meta.Steps = append(meta.Steps, record.Step{Started: time.Unix(0, int64(i)*int64(1300*time.Millisecond))})
		}
		if p.Workload == "w" {
			meta.Steps = []record.Step{{Started: time.Unix(0, 0)}}
		}
		if slices.ContainsFunc(changes, func(name string) bool { return strings.HasPrefix(p.TestName, name+"-") }) {
			*history = append(*history, "op secret/default/later")
		}
		return nil
	}}
}

func TestWhatComesLater(t *testing.T) {
	for _, tt := range []struct {
		name    string
		delay   time.Duration
		changes []string
		runs    map[string]int // of the workloads
		plans   []string       // workloads of those that were run, besides w
	}{
		{"nothing is put off", 0, nil, map[string]int{}, nil},
		{"only for a moment", time.Second, nil, map[string]int{}, nil},
		{
			"nothing comes", 24 * time.Hour, nil,
			map[string]int{"w-then-25h13m-without-faults": 1, "w-then-126h5m-without-faults": 1}, nil,
		},
		{
			"something comes", 24 * time.Hour, []string{"w-then-25h13m"},
			map[string]int{"w-then-25h13m-without-faults": 3, "w-then-126h5m-without-faults": 1},
			[]string{"w-then-25h13m"},
		},
		{
			"something comes much later", 30 * time.Second, []string{"w-then-25h"},
			map[string]int{"w-then-25h-without-faults": 3}, []string{"w-then-25h"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := looksAgain(tt.delay, tt.changes...)
			c := config(t, f, "w")
			c.Patterns = []string{"time"}
			r := mustRun(t, c)
			runs := map[string]int{}
			for name, n := range f.runs {
				if strings.HasPrefix(name, "w-then-") && strings.HasSuffix(name, "-without-faults") {
					runs[name] = n
				}
			}
			if diff := cmp.Diff(tt.runs, runs); diff != "" {
				t.Error(diff)
			}
			var plans []string
			for _, o := range r.Outcomes {
				if o.Status != result.Passed || !o.Judged {
					t.Errorf("%+v", o)
				}
				if o.Workload != "w" && !slices.Contains(plans, o.Workload) {
					plans = append(plans, o.Workload)
				}
			}
			if diff := cmp.Diff(tt.plans, plans); diff != "" {
				t.Error(diff)
			}
			// What was learned is kept, also that there is nothing.
			f.runs = nil
			c.Dir = t.TempDir()
			mustRun(t, c)
			for name, n := range f.runs {
				if strings.HasSuffix(name, "-without-faults") {
					t.Errorf("%s: %d more runs", name, n)
				}
			}
			// The plans are compared with what was learned, also when they are run by themselves.
			for i := range r.Outcomes {
				suite, err := plan.LoadWith(r.Outcomes[i].File, c.Suite)
				if err != nil {
					t.Fatal(err)
				}
				if got := learn.WorkloadOf(suite); got != r.Outcomes[i].Workload {
					t.Errorf("%s is compared with %s, want %s", r.Outcomes[i].Plan, got, r.Outcomes[i].Workload)
				}
				c.Plans = append(c.Plans, suite)
			}
			f.runs = nil
			if c.Plans == nil {
				return
			}
			c.Dir = t.TempDir()
			mustRun(t, c)
			for name, n := range f.runs {
				if strings.HasSuffix(name, "-without-faults") {
					t.Errorf("%s: %d more runs", name, n)
				}
			}
		})
	}
}

// A campaign makes no runs for a pattern that was not chosen, or for which its budget has no time.
func TestLaterOnlyIfAskedFor(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"another pattern":         func(c *Config) { c.Patterns = []string{"intermediate"} },
		"the budget is used up":   func(c *Config) { c.Patterns, c.Budget = []string{"time"}, time.Nanosecond },
		"steps wait for nothing":  func(c *Config) { c.Suite.Pace = plan.PaceNone },
		"plans of somebody's own": func(c *Config) { c.Plans = []*plan.Plan{{TestName: "own", Workload: "w"}} },
	} {
		t.Run(name, func(t *testing.T) {
			f := looksAgain(24*time.Hour, "w-then-25h13m")
			c := config(t, f, "w")
			change(&c)
			mustRun(t, c)
			for name := range f.runs {
				if strings.HasPrefix(name, "w-then-") {
					t.Errorf("%s was run", name)
				}
			}
		})
	}
}
