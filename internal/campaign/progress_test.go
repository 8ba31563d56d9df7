package campaign

import (
	"fmt"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
)

func TestProgress(t *testing.T) {
	c := newCampaign(Config{})
	for i := range 11 {
		c.tasks = append(c.tasks, &task{})
		if i < 5 {
			name := fmt.Sprintf("plan-%d", i)
			c.done[name] = &Outcome{Plan: name, Status: Passed, Took: 20 * time.Second}
		}
	}
	if got, want := c.left(), 6*20*time.Second; got != want {
		t.Errorf("%s left, want %s", got, want)
	}
	c.Budget = 30 * time.Second
	if got := c.left(); got > c.Budget {
		t.Errorf("%s left of a budget of %s", got, c.Budget)
	}
	// Regression: slow plans at the end took as long as the quick ones before them.
	c.Budget = 0
	for i, t := range c.tasks {
		t.plan = &plan.Plan{TestName: fmt.Sprintf("plan-%d", i)}
	}
	c.next, c.forecast = len(c.done), forecast{costs: map[*task]time.Duration{}}
	for _, t := range c.tasks[c.next:] {
		c.forecast.costs[t] = time.Minute
	}
	if got, want := c.left(), time.Duration(len(c.tasks)-c.next)*time.Minute; got != want {
		t.Errorf("%s left, want %s", got, want)
	}
	for d, want := range map[time.Duration]string{
		1540 * time.Millisecond: "1.5 s", 61 * time.Second: "61 s", 9*time.Minute + 40*time.Second: "10 min",
		150 * time.Minute: "2.5 h",
	} {
		if got := wording.Roughly(d); got != want {
			t.Errorf("%s is %s, want %s", d, got, want)
		}
	}
}
