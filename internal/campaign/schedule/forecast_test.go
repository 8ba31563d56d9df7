package schedule

import (
	"fmt"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/result"
)

func TestGrouped(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1316: "1,316", 1234567: "1,234,567"} {
		if got := fmt.Sprint(Grouped(n)); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
}

// The time that a campaign still takes goes by the plans that have ended or, if there are estimates, by these. It is
// not longer than the budget.
func TestLeft(t *testing.T) {
	const plans, done = 11, 5
	started := func(limit, estimate time.Duration) *Schedule {
		s := New(Config{Budget: Budget{Limit: limit}})
		var all []*Plan
		for i := range plans {
			p := &Plan{Name: fmt.Sprintf("plan-%d", i), Estimate: estimate}
			all = append(all, p)
			if i < done {
				s.Resume(0, []*result.Outcome{{Plan: p.Name, Status: result.Passed, Took: 20 * time.Second}})
			}
		}
		s.Arrange(all)
		return s
	}
	if got, want := started(0, 0).Left(0), (plans-done)*20*time.Second; got != want {
		t.Errorf("%s left, want %s", got, want)
	}
	if got, limit := started(30*time.Second, 0).Left(0), 30*time.Second; got > limit {
		t.Errorf("%s left of a budget of %s", got, limit)
	}
	// Regression: slow plans at the end took as long as the quick ones before them.
	s := started(0, 0)
	for i, p := range s.Plans() {
		if p.cost = 20 * time.Second; i >= done {
			p.cost = time.Minute
		}
	}
	s.estimates = true
	if got, want := s.Left(0), (plans-done)*time.Minute; got != want {
		t.Errorf("%s left, want %s", got, want)
	}
}
