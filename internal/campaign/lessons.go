package campaign

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// lessons are the runs without faults that workloads are learned from.
type lessons struct {
	left  map[string]int // that have not ended, of the workloads that are learned now or later
	ended int
	took  time.Duration // those that have ended, by the machine's clock; all together
}

// toLearn says how many runs it will take to learn a workload; 0: it is learned, or cannot be.
func (c *campaign) toLearn(workload string, runs int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lessons.left == nil {
		c.lessons.left = map[string]int{}
	}
	if c.lessons.left[workload] = runs; runs == 0 {
		delete(c.lessons.left, workload)
	}
}

// learning shows which run without faults begins, and about how long learning will still take. The caller calls ended
// with the run's record, or nil if there is none, and with the run's error.
func (c *campaign) learning(w workload, i, runs int) (ended func(*record.Run, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := fmt.Sprintf("learning workload %s: run %d of %d", w.id(), i, runs)
	if left := c.leftToLearn(); left > 0 {
		text += ", about " + wording.Roughly(left) + " left"
		if n := len(c.lessons.left); n > 1 {
			text += " for " + wording.Count(n, "workload")
		}
	}
	c.show(progress.Event{Type: progress.Status, Text: text})
	return func(r *record.Run, err error) {
		var failed *notPassedError
		if errors.As(err, &failed) {
			r = failed.run
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.lessons.left[w.id()] > 1 {
			c.lessons.left[w.id()]--
		}
		if r != nil {
			c.lessons.ended++
			c.lessons.took += r.Meta.Took()
		}
	}
}

// leftToLearn estimates how long learning will still take; 0: nobody knows. The caller holds the lock.
func (c *campaign) leftToLearn() time.Duration {
	if c.lessons.ended == 0 {
		return 0
	}
	left := 0
	for _, n := range c.lessons.left {
		left += n
	}
	return c.lessonsTake(left)
}

// learningTakes estimates how long it still takes to learn the workloads with these names; 0: unknown.
func (c *campaign) learningTakes(names []string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lessons.ended == 0 {
		return 0
	}
	left := 0
	for id, n := range c.lessons.left {
		if name, _, _ := strings.Cut(id, "@"); slices.Contains(names, name) {
			left += n
		}
	}
	return c.lessonsTake(left)
}

// lessonsTake estimates how long that many runs without faults take, by those that have ended. The caller holds the
// lock.
func (c *campaign) lessonsTake(runs int) time.Duration {
	runners := time.Duration(min(max(1, len(c.Runners)), max(1, runs)))
	return c.lessons.took / time.Duration(c.lessons.ended) * time.Duration(runs) / runners
}
