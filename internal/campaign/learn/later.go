package learn

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

const (
	// noticeable is the shortest time after which a controller looks again that is a reason to let more time pass:
	// shorter ones are repetitions of what has failed.
	noticeable = 5 * time.Second
	// aDay is the least that passes at once to see what comes much later.
	aDay = 25 * time.Hour
	// severalTimes is how much further much later is than the next look.
	severalTimes = 5
	// laterRuns is how many runs what comes later is learned from, at most.
	laterRuns = 3
	// breath is how long nothing is to happen before the clock jumps, and after it.
	breath = 10 * time.Second
)

// later is a workload that goes on after one that was learned: time passes.
type later struct {
	workload
	by time.Duration // what passes first
}

// laterOf lists the workloads in which time passes after the learned one. A controller that has work put off looks
// again then. Time passes twice: so what a controller does that counts the time anew after a restart comes, too. The
// clock must not jump while something is under way, so the workload must be one that waits for rest.
func (lr *Learner) laterOf(l *Learned) []later {
	ref := l.Baseline
	steps := lr.Suite.Workloads[l.Workload].Steps
	if ref == nil || l.Build != "" {
		return nil
	}
	if !ref.Virtual || ref.Pace != plan.PaceRest || slices.ContainsFunc(steps, func(s plan.Step) bool {
		return s.Go != "" || s.AdvanceTime > 0 // no file can have the first, and the second lets time pass already
	}) {
		return nil
	}
	var longest time.Duration
	for _, p := range ref.Polls {
		longest = max(longest, p.Delay)
	}
	if longest < noticeable {
		return nil
	}
	next := (longest + longest/20).Truncate(time.Minute) + time.Minute
	first := []time.Duration{max(severalTimes*next, aDay)}
	if longest > lr.Suite.Timeouts.Rest {
		first = slices.Insert(first, 0, next) // otherwise that much has passed already
	}
	var all []later
	for _, by := range first {
		name := laterName(l.Workload, by)
		if _, taken := lr.Suite.Workloads[name]; taken || slices.Contains(ref.Uneventful, by) {
			continue
		}
		all = append(all, later{workload{name: name, steps: slices.Concat(steps, []plan.Step{
			{Sleep: breath}, {AdvanceTime: by}, {Sleep: breath}, {AdvanceTime: next},
		})}, by})
	}
	return all
}

func laterName(workload string, by time.Duration) string {
	return workload + "-then-" + plan.FormatDuration(by)
}

// ofLater finds the name of the workload in that of a plan in which time passes.
var ofLater = regexp.MustCompile(`^(.+-then-[0-9a-z.]+)-` + pattern.Time + `-[0-9]+$`)

// WorkloadOf names what a plan exercises, as baselines are named: its workload; that of a generated plan in which time
// passes after a workload; or "plan-<testName>" if it has other steps of its own.
func WorkloadOf(p *plan.Plan) string {
	if len(p.Steps) == 0 {
		return p.Workload
	}
	if found := ofLater.FindStringSubmatch(p.TestName); found != nil {
		return found[1]
	}
	return "plan-" + p.TestName
}

// thenLater lets the workloads wait in which time passes after one that was learned. It takes the baselines that are
// there when they are to be learned.
func (lr *Learner) thenLater(l *lesson) {
	if lr.Whole || lr.Plans != nil || !pattern.Chosen(pattern.Time, lr.Patterns) {
		return
	}
	for i, w := range lr.laterOf(l.learned) {
		next := &lesson{workload: w.workload, after: l, by: w.by, learned: lr.unknown(w.workload)}
		next.learned.Place, next.learned.Steps = Place{1, l.learned.Place[1], i}, w.steps
		lr.mu.Lock()
		lr.all[w.id()] = next
		lr.mu.Unlock()
		lr.lessons.wait(w.workload, 0, true)
	}
}

// studyLater takes or learns the baseline of a workload in which time passes. It returns nil if the controllers change
// nothing then; the baseline of the workload before remembers that.
func (lr *Learner) studyLater(ctx context.Context, w *lesson) (*Learned, error) {
	l, before := w.learned, lr.Newest(w.after.learned)
	var err error
	if l.Source, err = lr.source(w.workload); err != nil {
		return nil, err
	}
	if _, err = lr.load(l); err != nil {
		return nil, err
	}
	if l.Baseline == nil {
		lr.Show(progress.Event{Type: progress.Status, Text: fmt.Sprintf(
			"%s: what comes when %s have passed?", before.Workload, plan.FormatDuration(w.by))})
		quiet, err := lr.withoutFaults(w.workload)
		if err != nil {
			return nil, err
		}
		first, err := lr.fine(ctx, quiet, run.RunOptions{Trace: true, FindTypes: true})
		if err != nil {
			return nil, err
		}
		changes, err := facts.Changes(first)
		if err != nil {
			return nil, err
		}
		if !eventful(changes, first.Meta.Steps, w.steps) {
			return nil, lr.uneventful(ctx, before, w.by)
		}
		lr.Say("%s: the controllers change something when %s have passed: learning what", before.Workload,
			plan.FormatDuration(w.by))
		l.Anew = true
		l.Baseline, _, err = lr.compareRuns(ctx, w.workload, quiet, []*record.Run{first}, min(lr.Learn, laterRuns),
			false)
		if err != nil {
			return nil, err
		}
		l.Baseline.Source = l.Source
		if err := errors.Join(l.Baseline.Write(l.File), l.Baseline.WriteMasks(l.Masks),
			forget(l.Allowed)); err != nil {
			return nil, err
		}
	}
	return l, l.readStated()
}

// eventful reports whether a controller under test has changed something after the clock has jumped for the first time.
func eventful(changes []facts.Change, began []record.Step, steps []plan.Step) bool {
	k := slices.IndexFunc(steps, func(s plan.Step) bool { return s.AdvanceTime > 0 })
	return k >= 0 && k < len(began) && slices.ContainsFunc(changes, func(c facts.Change) bool {
		return c.By != "" && !c.Time.Before(began[k].Started)
	})
}
