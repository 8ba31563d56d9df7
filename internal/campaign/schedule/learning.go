package schedule

import (
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/plan"
)

// learnShare is the part of a budget that learning has: a quarter. What is learned brings nothing before a plan is run.
const learnShare = 4

// Learning decides which workloads are learned within the budget, and estimates how long that takes. Its methods are
// not safe for concurrent use.
type Learning struct {
	Budget
	All   bool     // the user has chosen what is learned: no workload is left out
	begun []string // names of workloads
	// vain are the names of workloads that were begun and cannot be learned.
	vain  []string
	left  []string // names of those that are not begun
	runs  map[string]int
	ended int
	took  time.Duration // the runs that have ended, by the machine's clock; all together
}

// ToLearn takes in how many runs it will take to learn a workload with a build; 0: it is learned, or cannot be.
func (l *Learning) ToLearn(id string, runs int) {
	if l.runs == nil {
		l.runs = map[string]int{}
	}
	if l.runs[id] = runs; runs == 0 {
		delete(l.runs, id)
	}
}

// Ended takes in that a run of a workload has ended. Ran: it took that long, and has a record.
func (l *Learning) Ended(id string, ran bool, took time.Duration) {
	if l.runs[id] > 1 {
		l.runs[id]--
	}
	if ran {
		l.ended++
		l.took += took
	}
}

// Failed takes in that a workload cannot be learned.
func (l *Learning) Failed(name string) {
	if !slices.Contains(l.vain, name) {
		l.vain = append(l.vain, name)
	}
}

// Begin reports whether another workload is to be learned: if its runs, and those that others still need, take as long
// as the runs so far, they end within the share. The first ones, apart from those that cannot be learned, may take the
// whole budget: without them there is no plan. A workload is learned with all builds or with none, because an upgrade
// needs both.
func (l *Learning) Begin(now time.Duration, name string) bool {
	switch {
	case slices.Contains(l.begun, name):
		return true
	case slices.Contains(l.left, name):
		return false
	case l.Limit > 0 && !l.All && len(l.begun) > 0:
		share := l.Given() / learnShare
		if len(l.begun)-len(l.vain) < max(1, l.Runners) {
			share = l.Given()
		}
		left := share - (now - l.Spent)
		if left <= 0 || l.takes(append(l.begun, name)) > left {
			l.left = append(l.left, name)
			return false
		}
	}
	l.begun = append(l.begun, name)
	return true
}

// Left estimates how long learning still takes, and for how many workloads. Zero: unknown.
func (l *Learning) Left() (left time.Duration, workloads int) {
	runs := 0
	for _, n := range l.runs {
		runs += n
	}
	return l.Take(runs), len(l.runs)
}

// takes estimates how long it still takes to learn the workloads with these names; 0: unknown.
func (l *Learning) takes(names []string) time.Duration {
	runs := 0
	for id, n := range l.runs {
		if name, _, _ := strings.Cut(id, "@"); slices.Contains(names, name) {
			runs += n
		}
	}
	return l.Take(runs)
}

// Take estimates how long that many runs without faults take, by those that have ended.
func (l *Learning) Take(runs int) time.Duration {
	if l.ended == 0 {
		return 0
	}
	runners := time.Duration(min(max(1, l.Runners), max(1, runs)))
	return l.took / time.Duration(l.ended) * time.Duration(runs) / runners
}

// Promise returns a number that is lower the more the plans of a workload promise. Old state of what is deleted does
// harm when it is there again, and a change that comes back may be missed. All workloads begin with a creation, so that
// the others show little more.
func Promise(steps []plan.Step) int {
	deleted, again, changes := false, false, 0
	for _, s := range steps {
		switch {
		case s.Delete != nil:
			deleted = true
		case s.Apply != nil, s.Patch != nil:
			again = again || deleted
			changes++
		}
	}
	switch {
	case again:
		return 0
	case deleted:
		return 1
	case changes > 2:
		return 2
	}
	return 3
}
