package schedule

import (
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/plan"
)

const (
	// learnShare is the part of a budget that learning has: a quarter. What is learned brings nothing before a plan is
	// run.
	learnShare = 4
	// laterShare is the part of a budget after which no workload is learned in which time passes: a third.
	laterShare = 3
)

// Learning decides which workload is learned next, and whether it is learned before plans that could begin. It
// estimates how long learning takes. Its methods are not safe for concurrent use.
type Learning struct {
	Budget
	All     bool     // the user has chosen what is learned: no workload is left out
	waiting []lesson // those that have not begun, the most valuable first
	begun   []string // names of workloads
	busy    map[string]time.Duration
	spent   time.Duration // lessons that have ended, by the machine's clock; all clusters together
	planned bool          // there were plans to run

	runs  map[string]int // that are still to be made, by lesson
	ended int
	took  time.Duration // the runs that have ended, by the machine's clock; all together
}

// lesson is a workload to learn, with one build.
type lesson struct {
	id   string
	name string // of the workload; all builds have the same one
	// later: it is a workload in which time passes, which repeats what another one does.
	later bool
}

// Wait adds a workload that is learned after the others. It has a name, and an ID for each build. Later: time passes in
// it.
func (l *Learning) Wait(id, name string, later bool) {
	l.waiting = append(l.waiting, lesson{id, name, later})
}

// Next returns the ID of the workload that a free worker learns now; empty: none. Plans: there are plans that the
// worker could run instead.
//
// Without plans, each worker learns. If there are plans, up to half of the workers learn. A single worker learns as
// long as learning has had at most a quarter of the time.
func (l *Learning) Next(now time.Duration, plans bool) (id string) {
	l.planned = l.planned || plans
	if plans && !l.turn(now) {
		return ""
	}
	i := slices.IndexFunc(l.waiting, func(w lesson) bool { return l.room(now, w, plans) })
	if i < 0 {
		return ""
	}
	next := l.waiting[i]
	l.waiting = slices.Delete(l.waiting, i, i+1)
	if !slices.Contains(l.begun, next.name) {
		l.begun = append(l.begun, next.name)
	}
	if l.busy == nil {
		l.busy = map[string]time.Duration{}
	}
	l.busy[next.id] = now
	return next.id
}

// turn reports whether a worker learns although there are plans.
func (l *Learning) turn(now time.Duration) bool {
	if l.Runners > 1 {
		return len(l.busy) < l.Runners/2
	}
	return len(l.busy) == 0 && l.spent*learnShare <= now-l.Spent
}

// room reports whether the budget has time for a workload. Before the first plan, learning may use the whole budget.
// While plans wait, learning has a quarter of the time of all workers.
// Without plans that wait, the workload must be learned before the budget ends. A workload is learned with all builds
// or with none, because an upgrade needs both.
func (l *Learning) room(now time.Duration, w lesson, plans bool) bool {
	switch {
	case l.Limit > 0 && now >= l.Limit:
		return false
	case l.Limit == 0 || l.All || slices.Contains(l.begun, w.name):
		return true
	case w.later && now-l.Spent > l.Given()/laterShare:
		return false
	case !l.planned:
		return true
	case plans:
		left := l.Given()/learnShare*l.runners() - l.used(now)
		return left > 0 && l.takes(append(slices.Clone(l.begun), w.name)) <= left
	}
	return now+l.takes([]string{w.name}) < l.Limit
}

// End takes in that a workload is learned, or cannot be.
func (l *Learning) End(now time.Duration, id string) {
	l.spent += now - l.busy[id]
	delete(l.busy, id)
	delete(l.runs, id)
}

// used is how long workers have learned, all together.
func (l *Learning) used(now time.Duration) time.Duration {
	used := l.spent
	for _, began := range l.busy {
		used += now - began
	}
	return used
}

// Busy reports whether workloads are being learned, and Over whether none is and none waits for it.
func (l *Learning) Busy() bool { return len(l.busy) > 0 }

// Over is described at Busy.
func (l *Learning) Over() bool { return len(l.busy) == 0 && len(l.waiting) == 0 }

// Waiting returns the IDs of the workloads that were not learned, in order. Later: those in which time passes.
func (l *Learning) Waiting(later bool) (ids []string) {
	for _, w := range l.waiting {
		if w.later == later {
			ids = append(ids, w.id)
		}
	}
	return ids
}

// Unlearned returns how many workloads are still to be learned.
func (l *Learning) Unlearned() int { return len(l.waiting) + len(l.busy) }

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

// Left estimates how long learning still takes, and for how many workloads. Zero: unknown.
func (l *Learning) Left() (left time.Duration, workloads int) {
	runs := 0
	for _, n := range l.runs {
		runs += n
	}
	return l.Take(runs), len(l.runs)
}

// takes estimates how long workers still need to learn the workloads with these names, all together; 0: unknown.
func (l *Learning) takes(names []string) time.Duration {
	if l.ended == 0 {
		return 0
	}
	runs := 0
	for id, n := range l.runs {
		if name, _, _ := strings.Cut(id, "@"); slices.Contains(names, name) {
			runs += n
		}
	}
	return l.took / time.Duration(l.ended) * time.Duration(runs)
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
