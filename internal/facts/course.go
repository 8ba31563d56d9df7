package facts

import (
	"slices"
	"time"

	"github.com/trommel-dev/trommel/record"
)

// Course is when a workload went on.
type Course struct {
	Steps []record.Step `json:"steps"` // those that began
	Ended time.Time     `json:"ended"`
}

// Course is when the run's workload went on.
func (f *Follower) Course() Course { return f.course }

// StepAt is the index of the step that goes on at a time; -1: none has begun.
func (c Course) StepAt(at time.Time) int {
	n := slices.IndexFunc(c.Steps, func(s record.Step) bool { return s.Started.After(at) })
	if n < 0 {
		n = len(c.Steps)
	}
	return n - 1
}

// Began is when the first step of a workload began, or the first action of the plan, if it was earlier; zero: neither
// did.
func Began(steps []record.Step, actions []record.Action) (first time.Time) {
	if len(steps) > 0 {
		first = steps[0].Started
	}
	for _, a := range actions {
		if !a.Fired.IsZero() && (first.IsZero() || a.Fired.Before(first)) {
			first = a.Fired
		}
	}
	return first
}
