package campaign

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/plan"
)

// If writing the whole state takes long, outcomes are appended to a file, and none is lost.
func TestStateOfManyPlans(t *testing.T) {
	c := newCampaign(Config{Dir: t.TempDir()})
	if err := c.resume(); err != nil {
		t.Fatal(err)
	}
	c.keeping = time.Hour // as if there were millions
	ended := func(name string, s result.Status) {
		o := &Outcome{Plan: name, Status: s}
		c.done[name] = o
		if err := c.keepOutcome(o); err != nil {
			t.Fatal(err)
		}
	}
	ended("a", Passed)
	ended("b", Passed)
	ended("b", Bug)
	newest := filepath.Join(c.Dir, newestFile)
	f, err := os.OpenFile(newest, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"plan":"half a li`); err != nil { // it was killed
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		s, err := ReadState(c.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Outcomes) != 2 || s.Outcomes[0].Plan != "a" || s.Outcomes[1].Status != Bug {
			t.Errorf("%+v", s.Outcomes)
		}
	}
	check()
	if err := c.keepRest(); err != nil {
		t.Fatal(err)
	}
	check()
	if _, err := os.Stat(newest); !os.IsNotExist(err) {
		t.Errorf("the file of newer outcomes is still there: %v", err)
	}
	c.keeping = 0
	ended("c", Passed) // the state is written at once
	if s, err := ReadState(c.Dir); err != nil || len(s.Outcomes) != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}

// BenchmarkKeep is what it costs to keep the outcome of one of many plans.
func BenchmarkKeep(b *testing.B) {
	c := newCampaign(Config{Dir: b.TempDir()})
	for i := range 10_000 {
		name := "create-intermediate-" + time.Duration(i).String()
		c.done[name] = &Outcome{
			Plan: name, File: "trommel-runs/test-20260102-150405/plans/" + name + ".yaml", Workload: "create",
			Pattern: "intermediate", Why: "op is killed right after its own write: secret/default/a is created",
			Status: Passed, Actions: 1, Triggers: 1, Judged: true, Took: 9 * time.Second,
			Record: "trommel-runs/test-20260102-150405/runs/" + name + "/1", Key: "0123456789abcdef0123",
		}
	}
	for b.Loop() {
		if err := c.keep(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/10_000, "µs/outcome")
}

// BenchmarkStatus is what it costs to show how far a campaign of many plans is, as it does twice for each plan.
func BenchmarkStatus(b *testing.B) {
	const plans = 10_000
	c := newCampaign(Config{Dir: b.TempDir()})
	c.forecast.costs = map[*task]time.Duration{}
	for i := range plans {
		t := &task{plan: &plan.Plan{TestName: "create-intermediate-" + time.Duration(i).String()}}
		c.tasks = append(c.tasks, t)
		c.forecast.costs[t] = 9 * time.Second
		if i < plans/2 {
			c.done[t.plan.TestName] = &Outcome{Plan: t.plan.TestName, Status: Passed, Took: 9 * time.Second}
		}
	}
	c.next = plans / 2
	for b.Loop() {
		c.showStatus()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/plans, "ns/plan")
}
