package order

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// model is a run whose streams each have some steps, which are there from the beginning one after the other.
type model struct {
	left   map[string]int
	waited map[string]time.Duration
}

// run lets a schedule choose until no step is left, and returns the streams of its choices.
func run(t *testing.T, s *plan.Schedule, streams map[string]int, draining bool) (choices, diverged []string) {
	t.Helper()
	c, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	m := model{left: map[string]int{}, waited: map[string]time.Duration{}}
	for name, n := range streams {
		m.left[name] = n
	}
	since := map[string]int{}
	for n := 1; len(m.left) > 0; n++ {
		if n > 1000 {
			t.Fatal("there is no end")
		}
		moment := Moment{Number: n, Draining: draining}
		for name, left := range m.left { // in any order
			if since[name] == 0 {
				since[name] = n
			}
			moment.Steps = append(moment.Steps, Step{
				Stream: name, Number: streams[name] - left + 1, Since: since[name], Waited: m.waited[name],
			})
		}
		i, why := c.Choose(moment)
		if why != "" {
			diverged = append(diverged, why)
		}
		if i == Time {
			choices = append(choices, "time")
			for name := range m.left {
				m.waited[name] += Quantum
			}
			continue
		}
		name := moment.Steps[i].Stream
		choices = append(choices, name)
		m.waited[name], since[name] = 0, n+1
		if m.left[name]--; m.left[name] == 0 {
			delete(m.left, name)
		}
	}
	return choices, append(diverged, c.Missing()...)
}

func TestFIFO(t *testing.T) {
	got, _ := run(t, &plan.Schedule{}, map[string]int{"b": 2, "a": 2, Workload: 1}, false)
	if want := []string{"a", "b", "a", "b", Workload}; !slices.Equal(got, want) {
		t.Errorf("chose %q, want %q", got, want)
	}
}

func TestLateSteps(t *testing.T) {
	tests := []struct {
		name     string
		late     []plan.LateStep
		draining bool
		want     string
		missing  string
	}{
		{"waits for all others, and then for time", []plan.LateStep{{Stream: "a", Step: 1}}, false,
			"b b workload" + strings.Repeat(" time", 10) + " a a", ""},
		{"holds back its stream from there on", []plan.LateStep{{Stream: "a", Step: 2}}, false,
			"a b b workload" + strings.Repeat(" time", 10) + " a", ""},
		{"waits for no time when the workload is over", []plan.LateStep{{Stream: "a", Step: 1}}, true,
			"b b workload a a", ""},
		{"two at once", []plan.LateStep{{Stream: "a", Step: 1}, {Stream: "b", Step: 2}}, true,
			"b workload a a b", ""},
		{"does not come", []plan.LateStep{{Stream: "c", Step: 3}}, true, "a b a b workload",
			`step 3 of the stream "c", which should be late, did not come`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			streams := map[string]int{"a": 2, "b": 2, Workload: 1}
			got, missing := run(t, &plan.Schedule{Late: tt.late}, streams, tt.draining)
			if text := strings.Join(got, " "); text != tt.want {
				t.Errorf("chose\n%s, want\n%s", text, tt.want)
			}
			if text := strings.Join(missing, "; "); text != tt.missing {
				t.Errorf("missing %q, want %q", text, tt.missing)
			}
		})
	}
}

// strategies are schedules of all strategies that have a seed.
func strategies(seed int) []*plan.Schedule {
	return []*plan.Schedule{
		{Strategy: plan.Random, Seed: seed}, {Strategy: plan.Swarm, Seed: seed},
		{Strategy: plan.PCT, Seed: seed, Depth: 3},
	}
}

// The order in which the steps are listed, and what was chosen in another run, change nothing.
func TestTheSameSeedChoosesTheSame(t *testing.T) {
	streams := map[string]int{"a": 5, "b": 5, "c": 5, Workload: 3}
	for n := range strategies(0) {
		different := map[string]bool{}
		for seed := range 20 {
			first, _ := run(t, strategies(seed)[n], streams, false)
			for range 5 {
				if again, _ := run(t, strategies(seed)[n], streams, false); !slices.Equal(first, again) {
					t.Fatalf("%s, seed %d: chose\n%q and then\n%q", strategies(0)[n].Strategy, seed, first, again)
				}
			}
			different[fmt.Sprint(first)] = true
		}
		if len(different) < 15 {
			t.Errorf("%s: 20 seeds make %d orders", strategies(0)[n].Strategy, len(different))
		}
	}
}

// A run that follows the choices of another makes the same ones.
func TestGivenChoices(t *testing.T) {
	streams := map[string]int{"a": 4, "b": 4, Workload: 2}
	for seed := range 10 {
		for _, s := range strategies(seed) {
			want, _ := run(t, s, streams, false)
			got, diverged := run(t, &plan.Schedule{Choices: want}, streams, false)
			if !slices.Equal(got, want) || diverged != nil {
				t.Errorf("chose %q, want %q; %q", got, want, diverged)
			}
		}
	}
}

func TestDivergence(t *testing.T) {
	got, diverged := run(t, &plan.Schedule{Choices: []string{"b", "c", "b"}}, map[string]int{"a": 1, "b": 2}, false)
	if want := []string{"b", "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("chose %q, want %q", got, want)
	}
	want := `choice 2: the schedule expects "c", but these wait: a, b`
	if len(diverged) != 2 || diverged[0] != want || diverged[1] != want {
		t.Errorf("got %q, want %q twice", diverged, want)
	}
	if _, diverged := run(t, &plan.Schedule{Choices: []string{"a", "a", "a"}}, map[string]int{"a": 2}, false); len(
		diverged) != 1 || diverged[0] != "the schedule has 3 choices, but the run only 2" {
		t.Errorf("got %q", diverged)
	}
}

// No strategy holds a step for ever, and none lets time pass while the workload's end waits for rest.
func TestNothingWaitsForEver(t *testing.T) {
	for seed := range 50 {
		for _, s := range strategies(seed) {
			c, err := New(s)
			if err != nil {
				t.Fatal(err)
			}
			if i, _ := c.Choose(Moment{Number: 1, Steps: []Step{{Stream: "a", Number: 1, Waited: Longest}}}); i != 0 {
				t.Errorf("%s, seed %d: a step waits for more than %s", s.Strategy, seed, Longest)
			}
			if got, _ := run(t, s, map[string]int{"a": 3, "b": 3}, true); slices.Contains(got, "time") {
				t.Errorf("%s, seed %d: time passes at the end: %q", s.Strategy, seed, got)
			}
		}
	}
}

// The step that was held through the most choices comes first. Steps of the workload are left out.
func TestSlowest(t *testing.T) {
	choices := []record.Choice{
		{Stream: "b", Step: 1, Enabled: []string{"a", "b", "c"}},
		{Stream: "a", Step: 1, Enabled: []string{"a", "b", "c"}},
		{Stream: "time", Enabled: []string{"b", "c"}}, {Stream: "b", Step: 2, Enabled: []string{"b", "c"}},
		{Stream: Workload, Step: 1, Enabled: []string{"c", Workload}}, {Stream: "c", Step: 1, Enabled: []string{"c"}},
	}
	var got []string
	for _, p := range Slowest(choices) {
		got = append(got, fmt.Sprintf("%s %d", p.Late.Stream, p.Late.Step))
	}
	if text := strings.Join(got, ", "); text != "c 1, b 2, a 1" {
		t.Errorf("slowest: %s", text)
	}
}

// A late step that waits when the run ends has been late.
func TestLateUntilTheEnd(t *testing.T) {
	c, err := New(&plan.Schedule{Late: []plan.LateStep{{Stream: "a", Step: 2}, {Stream: "b", Step: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	missing := c.Missing(Step{Stream: "a", Number: 2})
	if len(missing) != 1 || !strings.Contains(missing[0], `step 1 of the stream "b"`) {
		t.Errorf("missing: %q", missing)
	}
}

// Orders that differ only in steps that commute have the same trace.
func TestTrace(t *testing.T) {
	const (
		op, other = "op receives pod", "other receives pod"
		call      = "op reconciles default/db (db)"
		server    = "apiserver-1 receives pod"
		second    = "apiserver-2 receives pod"
	)
	// Each choice is a stream. All that go on later wait from the beginning on, but for those that begin with ">": the
	// choice before makes them come.
	run := func(streams ...string) string {
		choices := make([]record.Choice, len(streams))
		for i, stream := range streams {
			stream, comes := strings.CutPrefix(stream, ">")
			choices[i].Stream = stream
			for j := i; j >= 0 && stream != record.TimeStream && (j == i || !comes); j-- {
				choices[j].Enabled = append(choices[j].Enabled, stream)
			}
		}
		return Trace(choices)
	}
	for _, test := range []struct {
		a, b []string
		same bool
	}{
		{[]string{op, other}, []string{other, op}, true},
		{[]string{call, other}, []string{other, call}, true},
		{[]string{server, second}, []string{second, server}, true},
		{[]string{server, op}, []string{op, server}, true},
		{[]string{op, other, ">" + call}, []string{other, op, ">" + call}, false}, // another step makes the call come
		{[]string{call, server, op}, []string{server, call, op}, false},
		{[]string{call, server}, []string{server, call}, true}, // no controller receives that type
		{[]string{op, call}, []string{call, op}, false},
		{[]string{op, record.TimeStream}, []string{record.TimeStream, op}, false},
		{[]string{op, Workload}, []string{Workload, op}, false},
		{[]string{op, other, op}, []string{other, op, op}, true},
	} {
		if same := run(test.a...) == run(test.b...); same != test.same {
			t.Errorf("%q and %q have the same trace: %t", test.a, test.b, same)
		}
	}
}

// If steps go on for ever, time passes all the same, also at the end.
func TestBusy(t *testing.T) {
	for _, draining := range []bool{false, true} {
		c, err := New(&plan.Schedule{Strategy: plan.FIFO, Late: []plan.LateStep{{Stream: "late", Step: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		var elapsed time.Duration
		n := 0
		for ; elapsed < Longest; n++ {
			i, _ := c.Choose(Moment{Number: n + 1, Draining: draining, Elapsed: elapsed, Steps: []Step{
				{Stream: "late", Number: 1, Since: 1, Waited: elapsed}, {Stream: "loop", Number: n + 1, Since: n + 1},
			}})
			switch {
			case i == Time:
				elapsed += Quantum
			case i != 1:
				t.Fatalf("choice %d: %d", n, i)
			case n > 1000:
				t.Fatal("time does not pass")
			}
		}
		if want := busyAfter + 10 + 9*busyEvery; n < busyAfter || n > want {
			t.Errorf("time has passed after %d choices", n)
		}
		// Time that passes without need ends that.
		c.Choose(Moment{Number: n + 1, Elapsed: elapsed + time.Second, Steps: []Step{{Stream: "loop"}}})
		for range 2 * busyEvery {
			m := Moment{Number: n + 2, Elapsed: elapsed + 2*time.Second, Steps: []Step{{Stream: "loop"}}}
			if i, _ := c.Choose(m); i == Time {
				t.Error("time passes without need")
			}
		}
	}
}

// An event goes on first, and cannot be late, as long as no controller has received one of its type.
func TestOnlyTheControlPlane(t *testing.T) {
	const set, pod, delivery = "apiserver-1 receives replicaset", "west/apiserver-1 receives pod", "op receives pod"
	for _, tt := range []struct {
		name     string
		strategy plan.Strategy
		late     []plan.LateStep
		first    []string // the streams that may go on first
	}{
		{"seeds", plan.Swarm, nil, []string{set}},
		{"fifo", plan.FIFO, nil, []string{set}},
		{"late", plan.FIFO, []plan.LateStep{{Stream: set, Step: 1}}, []string{delivery}},
	} {
		for seed := range 20 {
			c, err := New(&plan.Schedule{Strategy: tt.strategy, Seed: seed, Late: tt.late})
			if err != nil {
				t.Fatal(err)
			}
			m := Moment{Number: 1, Steps: []Step{
				{Stream: delivery, Number: 1, Since: 1}, {Stream: pod, Number: 1, Since: 1},
				{Stream: set, Number: 1, Since: 1},
			}}
			i, _ := c.Choose(m)
			if i == Time || !slices.Contains(tt.first, m.Steps[i].Stream) {
				t.Errorf("%s, seed %d: choice %d", tt.name, seed, i)
			}
		}
	}
	var got []int
	for _, p := range Points([]record.Choice{
		{Number: 1, Stream: pod, Enabled: []string{pod, set}},
		{Number: 2, Stream: set, Enabled: []string{delivery, set}},
		{Number: 3, Stream: delivery, Enabled: []string{delivery, pod}},
		{Number: 4, Stream: pod, Enabled: []string{pod}},
	}, 0) {
		got = append(got, p.Number)
	}
	if !slices.Equal(got, []int{3, 4}) {
		t.Errorf("points %v", got)
	}
}

// In which order the control plane receives what no controller does changes no choice of a seed, and choices that are
// given again need not say it.
func TestOrderOfTheControlPlane(t *testing.T) {
	const set, budget = "apiserver-1 receives replicaset", "apiserver-1 receives poddisruptionbudget"
	choices := func(s *plan.Schedule, control ...string) (real, all []string) {
		c, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; len(all) < 20; n++ {
			m := Moment{Number: n, Steps: []Step{{Stream: "a", Number: n}, {Stream: "b", Number: n}}}
			if n%3 == 0 {
				for _, stream := range control {
					m.Steps = append(m.Steps, Step{Stream: stream, Number: n, Since: n})
				}
			}
			stream := record.TimeStream
			i, diverged := c.Choose(m)
			if i != Time {
				stream = m.Steps[i].Stream
			}
			if all = append(all, stream); stream != set && stream != budget {
				real = append(real, stream)
			}
			if diverged != "" {
				t.Error(diverged)
			}
		}
		return real, all
	}
	for seed := range 10 {
		for _, s := range strategies(seed) {
			want, all := choices(s, set)
			if got, _ := choices(s, budget); !slices.Equal(got, want) {
				t.Errorf("%s, seed %d: %q, want %q", s.Strategy, seed, got, want)
			}
			if got, _ := choices(&plan.Schedule{Choices: all}, budget); !slices.Equal(got, want) {
				t.Errorf("%s, seed %d, given: %q, want %q", s.Strategy, seed, got, want)
			}
		}
	}
}
