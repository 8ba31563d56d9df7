package learn

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/lab"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// lessons are the runs without faults that workloads are learned from.
type lessons struct {
	lab.Voice
	mu       *sync.Mutex // guards what follows
	schedule *schedule.Learning
}

// wait adds a workload that is to be learned in so many runs, after the others. Later: time passes in it.
func (l *lessons) wait(w workload, runs int, later bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.schedule.Wait(w.id(), w.name, later)
	if !later {
		l.schedule.ToLearn(w.id(), runs)
	}
}

// toLearn takes in how many runs it will take to learn a workload; 0: it is learned, or cannot be.
func (l *lessons) toLearn(workload string, runs int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.schedule.ToLearn(workload, runs)
}

// learning shows which run without faults begins, and about how long learning will still take. The caller calls ended
// with the run's record, or nil if there is none, and with the run's error.
func (l *lessons) learning(w workload, i, runs int) (ended func(*record.Run, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := fmt.Sprintf("learning workload %s: run %d of %d", w.id(), i, runs)
	if left, n := l.schedule.Left(); left > 0 {
		text += ", about " + wording.Roughly(left) + " left"
		if n > 1 {
			text += " for " + wording.Count(n, "workload")
		}
	}
	l.Show(progress.Event{Type: progress.Status, Text: text})
	return func(r *record.Run, err error) {
		var failed *notPassedError
		if errors.As(err, &failed) {
			r = failed.run
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		took := time.Duration(0)
		if r != nil {
			took = r.Meta.Took()
		}
		l.schedule.Ended(w.id(), r != nil, took)
	}
}

// enough is a budget in which a workload of that many runs would probably have been learned, with as much time for its
// plans.
func (l *lessons) enough(runs int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	budget := 2 * max(l.schedule.Given(), l.schedule.Take(runs))
	return (budget + time.Minute - 1).Truncate(time.Minute)
}
