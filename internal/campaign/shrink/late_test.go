package shrink

import (
	"context"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// seeded is a run in which the second step of b waited for two choices, one of which let time pass, and the first of c
// for one.
func seeded() *record.Run {
	r := &record.Run{}
	add := func(stream string, step int, enabled ...string) {
		r.Events = append(r.Events, record.Event{Choice: &record.Choice{
			Number: len(r.Events) + 1, Stream: stream, Step: step, What: stream + "'s step", Enabled: enabled,
		}})
	}
	add("b", 1, "b")
	add("a", 1, "a", "b")
	add(record.TimeStream, 0, "b")
	add("b", 2, "b", "c")
	add("c", 1, "c")
	return r
}

// A seed becomes the late step that the finding needs; if it needs two, these.
func TestSeedBecomesLateSteps(t *testing.T) {
	for _, tt := range []struct {
		name string
		want []plan.LateStep
	}{
		{"one", []plan.LateStep{{Stream: "c", Step: 1}}},
		{"two", []plan.LateStep{{Stream: "b", Step: 2}, {Stream: "c", Step: 1}}},
		{"more", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			suite, first := parsed(t, "schedule: {strategy: swarm, seed: 3}\n")
			shows := func(_ context.Context, p *plan.Plan) (bool, string, error) {
				if p.Schedule.Strategy == plan.Swarm {
					return true, "", nil
				}
				left := 0
				for _, l := range tt.want {
					for _, have := range p.Schedule.Late {
						if have == l {
							left++
						}
					}
				}
				return tt.want != nil && left == len(tt.want), "", nil
			}
			s := newSearch(suite, first, shows)
			if err := s.makeLate(t.Context(), seeded()); err != nil {
				t.Fatal(err)
			}
			got := s.best.Schedule
			if tt.want == nil {
				if got.Strategy != plan.Swarm {
					t.Errorf("the schedule is %v", got)
				}
				return
			}
			if got.Strategy != plan.FIFO || len(got.Late) != len(tt.want) {
				t.Fatalf("the schedule is %v, want %v late", got, tt.want)
			}
			if text := textOf(s.best); !strings.Contains(text, "late:") {
				t.Errorf("the plan is\n%s", text)
			}
		})
	}
}

// parsed returns a suite and a complete plan of its workload with this text in it.
func parsed(t *testing.T, text string) (*plan.Suite, *plan.Plan) {
	t.Helper()
	suite, err := plan.ParseSuite([]byte(
		"controllers: [{name: op, build: {dir: .}}]\nworkloads: {w: [{sleep: 1s}]}\n"), "trommel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Parse([]byte("testName: p\nworkload: w\n"+text), "p.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p.Complete(suite)
	return suite, p
}

// A fault that shows the finding in any order needs no schedule.
func TestFaultInAnyOrder(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		suite, first := parsed(t, "schedule: {strategy: swarm, seed: 3}\n"+
			"actions:\n- actionType: restartController\n  actionTarget: op\n"+
			"  trigger: {definitions: [{triggerName: t, condition: {triggerType: onTimeout, timeout: 1s}}]}\n")
		s := newSearch(suite, first, func(_ context.Context, p *plan.Plan) (bool, string, error) {
			seeded := p.Schedule != nil && p.Schedule.Strategy == plan.Swarm
			return len(p.Actions) == 1 && (seeded || p.Schedule == nil && !inOrder), "", nil
		})
		if err := s.makeLate(t.Context(), seeded()); err != nil {
			t.Fatal(err)
		}
		if got := s.best.Schedule != nil; got != inOrder {
			t.Errorf("the plan needs its order: %v, want %v\n%s", got, inOrder, textOf(s.best))
		}
	}
}
