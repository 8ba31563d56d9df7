// Package order chooses which step of an ordered run goes on. docs/orders.md says what steps and streams are.
//
// It promises that the same schedule and the same moments give the same choices: strategies have no clock and no
// source of random numbers but the seed. One goroutine owns a Chooser.
package order

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Step is a step that could go on: the first one of its stream.
type Step struct {
	Stream string
	Number int           // in its stream, from 1
	Since  int           // the number of the choice at which it was first there
	Waited time.Duration // since then, by the run's clock
	What   string        // it in words
}

// Moment is a moment of rest at which something waits.
type Moment struct {
	Number int    // of the choice, from 1
	Steps  []Step // at least one; the order does not matter
	// Draining: the workload is over. Time must not pass before all steps have gone on, because what judges a run waits
	// for rest.
	Draining bool
	Elapsed  time.Duration // since the run is ordered, by the run's clock
}

// Time is chosen to let time pass instead of a step. It passes until another step waits, or for Quantum.
const Time = -1

// Quantum is for how long a choice lets time pass at most, by the run's clock.
const Quantum = time.Second

// Longest is how long a step waits at most, by the run's clock. It is less than the shortest sensible limit of a hold,
// and more than workloads sleep between two steps.
const Longest = 10 * time.Second

// MostPasses is how many choices of a run let time pass at most. What the workload waits for must come in time.
const MostPasses = 60

// Workload is the stream of the workload's steps.
const Workload = "workload"

// strategy is a pure function of the schedule and the moment. The steps are sorted by Since and stream, and time says
// whether it may be chosen.
type strategy interface {
	choose(number int, steps []Step, time bool) int
}

// Chooser chooses by a schedule.
type Chooser struct {
	schedule *plan.Schedule
	strategy strategy
	met      map[plan.LateStep]bool // the late steps that have gone on
	received types
	number   int // of the choice, without those of first
	next     int // the index of the next one of the schedule's choices
	passes   int // choices that let time pass
	busy     busy
	diverged string
}

// New returns a chooser for a complete, valid schedule.
func New(s *plan.Schedule) (*Chooser, error) {
	c := &Chooser{schedule: s, met: map[plan.LateStep]bool{}, received: types{}}
	switch s.Strategy {
	case plan.FIFO, "":
		c.strategy = fifo{}
	case plan.Random:
		c.strategy = random{dice(s.Seed)}
	case plan.Swarm:
		c.strategy = swarm{dice(s.Seed)}
	case plan.PCT:
		c.strategy = newPCT(dice(s.Seed), s.Depth)
	default:
		return nil, fmt.Errorf("unknown strategy %q", s.Strategy)
	}
	return c, nil
}

// Choose returns the index of the step that goes on, or Time. Diverged says that the schedule expects another choice
// here, which is impossible; from then on its choices do not count any more.
func (c *Chooser) Choose(m Moment) (index int, diverged string) {
	c.received.note(Streams(m.Steps))
	busy := c.busy.passes(m.Elapsed)
	if i := c.first(m.Steps); i >= 0 && !busy {
		return i, ""
	}
	c.number++
	if want := c.given(); want != "" && c.diverged == "" {
		if want == record.TimeStream && (busy || !m.Draining) {
			return Time, ""
		}
		if i := slices.IndexFunc(m.Steps, func(s Step) bool { return s.Stream == want }); i >= 0 {
			c.gone(m.Steps[i])
			return i, ""
		}
		c.diverged = fmt.Sprintf("choice %d: the schedule expects %q, but these wait: %s", m.Number, want,
			strings.Join(Streams(m.Steps), ", "))
		diverged = c.diverged
	}
	if busy {
		return Time, diverged
	}
	if c.passes >= MostPasses {
		m.Draining = true
	}
	index = c.pick(m)
	if index == Time {
		c.passes++
	} else {
		c.gone(m.Steps[index])
	}
	return index, diverged
}

// first returns the index of the step that goes on first, because only the control plane receives it; -1: there is
// none. In which order these come is not repeatable: several controllers of Kubernetes work at the same time. So they
// are left out of the schedule.
func (c *Chooser) first(steps []Step) int {
	first := -1
	for i, s := range steps {
		if c.received.lack(s.Stream) && !c.isLate(s) && (first < 0 || before(s, steps[first]) < 0) {
			first = i
		}
	}
	return first
}

// given returns the next one of the schedule's choices, and takes it; empty: there is none.
func (c *Chooser) given() (stream string) {
	for c.next < len(c.schedule.Choices) {
		stream, c.next = c.schedule.Choices[c.next], c.next+1
		if !c.received.lack(stream) {
			return stream
		}
	}
	return ""
}

// pick chooses by the strategy and the late steps.
func (c *Chooser) pick(m Moment) int {
	sorted := make([]int, len(m.Steps))
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortFunc(sorted, func(a, b int) int { return before(m.Steps[a], m.Steps[b]) })
	var prompt, late, overdue []int
	for _, i := range sorted {
		s := m.Steps[i]
		switch {
		case s.Waited >= Longest:
			overdue = append(overdue, i)
		case c.isLate(s):
			late = append(late, i)
		default:
			prompt = append(prompt, i)
		}
	}
	if len(overdue) > 0 {
		return overdue[0]
	}
	if len(prompt) == 0 {
		if m.Draining {
			return late[0]
		}
		return Time
	}
	steps := make([]Step, len(prompt))
	for n, i := range prompt {
		steps[n] = m.Steps[i]
	}
	if n := c.strategy.choose(c.number, steps, !m.Draining); n != Time {
		return prompt[n]
	}
	return Time
}

func (c *Chooser) isLate(s Step) bool {
	return slices.Contains(c.schedule.Late, plan.LateStep{Stream: s.Stream, Step: s.Number})
}

func (c *Chooser) gone(s Step) {
	if c.isLate(s) {
		c.met[plan.LateStep{Stream: s.Stream, Step: s.Number}] = true
	}
}

// Missing lists what the schedule names and did not come, one sentence each; held are the steps that wait in the end.
// It includes where the run diverged.
func (c *Chooser) Missing(held ...Step) []string {
	for _, s := range held {
		c.gone(s)
	}
	var all []string
	if c.diverged != "" {
		all = append(all, c.diverged)
	} else if n := len(c.schedule.Choices); c.next < n {
		all = append(all, fmt.Sprintf("the schedule has %d choices, but the run only %d", n, c.number))
	}
	for _, l := range c.schedule.Late {
		if !c.met[l] {
			all = append(all, fmt.Sprintf("step %d of the stream %q, which should be late, did not come", l.Step,
				l.Stream))
		}
	}
	return all
}

// before is the order of fifo: what has waited for longest, and steps of the workload last: they begin when nothing
// else can go on.
func before(a, b Step) int {
	switch {
	case (a.Stream == Workload) != (b.Stream == Workload):
		if a.Stream == Workload {
			return 1
		}
		return -1
	case a.Since != b.Since:
		return a.Since - b.Since
	}
	return strings.Compare(a.Stream, b.Stream)
}

// Streams lists the streams of steps, sorted.
func Streams(steps []Step) []string {
	all := make([]string, len(steps))
	for i, s := range steps {
		all[i] = s.Stream
	}
	slices.Sort(all)
	return all
}
