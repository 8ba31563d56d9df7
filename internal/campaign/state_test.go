package campaign

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
)

// If writing the whole state takes long, outcomes are appended to a file, and none is lost.
func TestStateOfManyPlans(t *testing.T) {
	c := newCampaign(Config{Dir: t.TempDir()})
	q := c.queue
	if err := q.resume(); err != nil {
		t.Fatal(err)
	}
	q.store.keeping = time.Hour // as if there were millions
	ended := func(name string, s result.Status) {
		o := &result.Outcome{Plan: name, Status: s}
		q.schedule.Resume(0, []*result.Outcome{o})
		if err := q.keepOutcome(o); err != nil {
			t.Fatal(err)
		}
	}
	ended("a", result.Passed)
	ended("b", result.Passed)
	ended("b", result.Bug)
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
		if len(s.Outcomes) != 2 || s.Outcomes[0].Plan != "a" || s.Outcomes[1].Status != result.Bug {
			t.Errorf("%+v", s.Outcomes)
		}
	}
	check()
	if err := q.keepRest(); err != nil {
		t.Fatal(err)
	}
	check()
	if _, err := os.Stat(newest); !os.IsNotExist(err) {
		t.Errorf("the file of newer outcomes is still there: %v", err)
	}
	q.store.keeping = 0
	ended("c", result.Passed) // the state is written at once
	if s, err := ReadState(c.Dir); err != nil || len(s.Outcomes) != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}

// BenchmarkKeep is what it costs to keep the outcome of one of many plans.
func BenchmarkKeep(b *testing.B) {
	c := newCampaign(Config{Dir: b.TempDir()})
	for i := range 10_000 {
		name := "create-intermediate-" + time.Duration(i).String()
		c.queue.schedule.Resume(0, []*result.Outcome{{
			Plan: name, File: "trommel-runs/test-20260102-150405/plans/" + name + ".yaml", Workload: "create",
			Pattern: "intermediate", Why: "op is killed right after its own write: secret/default/a is created",
			Status: result.Passed, Actions: 1, Triggers: 1, Judged: true, Took: 9 * time.Second,
			Record: "trommel-runs/test-20260102-150405/runs/" + name + "/1", Key: "0123456789abcdef0123",
		}})
	}
	for b.Loop() {
		if err := c.queue.keep(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/10_000, "µs/outcome")
}

// BenchmarkStatus is what it costs to show how far a campaign of many plans is, as it does twice for each plan.
func BenchmarkStatus(b *testing.B) {
	const plans = 10_000
	c := newCampaign(Config{Dir: b.TempDir()})
	s := c.queue.schedule
	var all []*schedule.Plan
	for i := range plans {
		p := &schedule.Plan{
			Name: "create-intermediate-" + time.Duration(i).String(), Estimate: 9 * time.Second,
		}
		all = append(all, p)
		if i < plans/2 {
			s.Resume(0, []*result.Outcome{{Plan: p.Name, Status: result.Passed, Took: 9 * time.Second}})
		}
	}
	s.Arrange(all)
	s.Ready(0)
	for b.Loop() {
		c.queue.showStatus()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/plans, "ns/plan")
}
