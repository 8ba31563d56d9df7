package learn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// runsToBegin is how many runs plans are made from, if these are alike.
const runsToBegin = 2

// study runs a workload without faults. Its steps begin when the controllers are at rest, unless the suite or the
// workload does not allow that: so what it does depends less on who is faster. The first run shows which types the
// controllers have to do with; the others follow it, side by side if there are runners for that. The last of them keeps
// the other pace: what it ends like is right, too. All begin at different phases of the controllers' loops: see shift.
// If two runs already differ in more than fields, it begins no others.
//
// Plans can be made from two runs that are alike. All that the others add are reasons why a difference does not count.
// So they are made when there is a difference to judge; see Rest.
func (lr *Learner) study(ctx context.Context, w workload, l *Learned) error {
	all := lr.runsEach()
	lr.lessons.toLearn(w.id(), all)
	defer lr.lessons.toLearn(w.id(), 0)
	ended := lr.lessons.learning(w, 1, all)
	quiet, first, err := lr.firstLook(ctx, w)
	ended(first, err)
	if err != nil {
		return err
	}
	for _, f := range first.Findings {
		if f.Judge == record.JudgeHot {
			lr.Say("%s: %s", w.id(), f.Title)
		}
	}
	begun := []*record.Run{first}
	if !lr.whole() {
		ref, runs, err := lr.compareRuns(ctx, w, quiet, begun, runsToBegin, false)
		if err != nil {
			return err
		}
		if baseline.Steady(ref) {
			ref.Source = l.Source
			for _, r := range runs {
				ref.Begun = append(ref.Begun, r.Dir)
			}
			l.Baseline = ref
			return errors.Join(l.Baseline.Write(l.File), ref.WriteMasks(l.Masks), forget(l.Allowed),
				forget(l.firstFile()))
		}
		begun = runs
	}
	ref, runs, err := lr.compareRuns(ctx, w, quiet, begun, lr.Learn, true)
	if err != nil {
		return err
	}
	ref.Source = l.Source
	l.Baseline = ref
	err = forget(l.firstFile())
	if len(begun) == 1 { // plans are those that two runs would have led to
		first, firstErr := lr.summary(w, quiet, runs[:runsToBegin], ref.Types)
		if firstErr == nil && baseline.Steady(first) {
			first.Source = l.Source
			l.first, err = first, errors.Join(err, first.Write(l.firstFile()))
		}
	}
	return errors.Join(err, ref.Write(l.File), ref.WriteMasks(l.Masks), forget(l.Allowed))
}

// compareRuns goes on with study after some of that many runs. Paces: there is one more, with the other pace. It
// returns the runs with the same pace.
func (lr *Learner) compareRuns(
	ctx context.Context, w workload, quiet *plan.Plan, begun []*record.Run, number int, paces bool,
) (*baseline.Baseline, []*record.Run, error) {
	all := number
	if paces {
		all++
	}
	lr.lessons.toLearn(w.id(), all-len(begun))
	defer lr.lessons.toLearn(w.id(), 0)
	runs := make([]*record.Run, max(number, len(begun)))
	copy(runs, begun)
	types := baseline.Types(runs[0])
	for _, key := range w.types {
		if !slices.Contains(types, key) {
			types = append(types, key)
		}
	}
	options := run.RunOptions{Trace: true, History: types}
	if !runs[0].Meta.Rested {
		// It has waited for ten minutes of its own time. The others wait as long as plans do.
		options.Polls = runs[0].Meta.Polls
	}
	var mu sync.Mutex // guards runs
	group, others := errgroup.WithContext(ctx)
	group.SetLimit(max(1, lr.Runners))
	for i := len(begun); i < len(runs); i++ {
		group.Go(func() error {
			if others.Err() != nil {
				return nil
			}
			ended := lr.lessons.learning(w, i+1, all)
			own := options
			own.Shift = Shift(i)
			r, err := lr.fine(others, quiet, own)
			ended(r, err)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			runs[i] = r
			there := slices.DeleteFunc(slices.Clone(runs), func(r *record.Run) bool { return r == nil })
			_, err = baseline.Learn(w.name, there, lr.Suite.Masks...)
			return err
		})
	}
	odd := *quiet
	if odd.Pace == plan.PaceRest {
		odd.Pace = plan.PaceNone
	} else {
		odd.Pace = plan.PaceRest
	}
	var other *record.Run
	var meta *record.Meta
	group.Go(func() (err error) {
		if others.Err() != nil || !paces {
			return nil
		}
		ended := lr.lessons.learning(w, all, all)
		own := options
		own.Shift = Shift(number)
		other, meta, err = lr.Once(others, &odd, own)
		ended(other, err)
		return err
	})
	if err := group.Wait(); err != nil {
		if failed := (*notPassedError)(nil); errors.As(err, &failed) {
			for _, r := range runs {
				if r != nil {
					failed.passed++
				}
			}
		}
		lr.unsteady(ctx, w, quiet, runs, options, err)
		return nil, nil, err
	}
	ref, err := lr.summary(w, quiet, runs, types)
	if err != nil {
		return nil, nil, err
	}
	if len(begun) == 1 {
		for _, title := range wasted(runs) {
			lr.Say("%s: without faults, %s", w.id(), title)
		}
	}
	if meta == nil {
		return ref, runs, nil
	}
	if meta.Verdict == record.Pass {
		return ref, runs, lr.allowOther(ctx, w, &odd, ref, other)
	}
	if odd.Pace == plan.PaceRest {
		// The workload may wait for what is there only for a moment.
		lr.Say("%s: it does not pass if the controllers get time after each step: %s", w.id(), meta.Reason)
	} else {
		lr.Say("%s: it does not pass if its steps follow one another at once: %s", w.id(), meta.Reason)
	}
	return ref, runs, nil
}

// summary is what runs of a workload have in common.
func (lr *Learner) summary(
	w workload, quiet *plan.Plan, runs []*record.Run, types []plan.ResourceKey,
) (*baseline.Baseline, error) {
	ref, err := baseline.Learn(w.name, runs, lr.Suite.Masks...)
	if err != nil {
		return nil, err
	}
	ref.Types, ref.Reached, ref.Pace = types, facts.Reached(runs[0]), quiet.Pace
	ref.Calls = facts.Calls(runs)
	ref.Took = usual(runs)
	ref.Unlisted = runs[0].Meta.Unlisted
	ref.Rested = true
	for _, r := range runs {
		ref.Rested = ref.Rested && r.Meta.Rested
		ref.Startup = max(ref.Startup, r.Meta.Startup)
		for _, p := range r.Meta.Polls {
			if !slices.Contains(ref.Polls, p) {
				ref.Polls = append(ref.Polls, p)
			}
		}
	}
	return ref, nil
}

// wasted lists the titles of the notes about what controllers create for nothing in each of the runs.
func wasted(runs []*record.Run) (titles []string) {
	for _, f := range runs[0].Findings {
		in := func(r *record.Run) bool { return slices.ContainsFunc(r.Findings, f.Same) }
		if f.Judge == record.JudgeWaste && !slices.ContainsFunc(runs, func(r *record.Run) bool { return !in(r) }) {
			titles = append(titles, f.Title)
		}
	}
	return titles
}

// allowOther takes in the end of a run with the other pace. If that is none, the end may be the wrong one of a race, so
// it is compared with what the controllers make of what the workload asks for in the end.
func (lr *Learner) allowOther(
	ctx context.Context, w workload, odd *plan.Plan, ref *baseline.Baseline, other *record.Run,
) error {
	if odd.Pace == plan.PaceRest {
		return ref.Allow(other)
	}
	end, err := facts.Follow(other)
	if err != nil {
		return err
	}
	steps := slices.Concat(w.steps, lr.Suite.Workloads[w.name].Steps)
	var fresh *record.Run
	if len(ref.Compare(end.Objects())) > 0 {
		fresh, err = Fresh{
			Suite: lr.Suite, Workload: w.name, Build: w.build, Steps: steps, Pace: ref.Pace, Baseline: ref, Done: other,
		}.Run(ctx, lr.Once)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			lr.Say("%s: %v", w.id(), err)
		}
	}
	return ref.AllowUnpaced(other, fresh, confirm.Waits(steps))
}

// firstLook runs the workload for the first time, and returns the plan for the further runs. If the workload fails with
// time between its steps, a second run follows without, unless that run could only fail in the same way.
func (lr *Learner) firstLook(ctx context.Context, w workload) (*plan.Plan, *record.Run, error) {
	quiet, err := lr.withoutFaults(w)
	if err != nil {
		return nil, nil, err
	}
	options := run.RunOptions{Trace: true, FindTypes: true, History: w.types}
	if quiet.Pace == plan.PaceRest {
		r, meta, err := lr.Once(ctx, quiet, options)
		if err != nil || meta.Verdict == record.Pass {
			return quiet, r, err
		}
		if hopeless(slices.Concat(w.steps, lr.Suite.Workloads[w.name].Steps), r) || !lr.Holds(meta.Took()) {
			return quiet, nil, &notPassedError{run: r, meta: meta}
		}
		quiet.Pace = plan.PaceNone
	}
	r, err := lr.fine(ctx, quiet, options)
	return quiet, r, err
}

// withoutFaults is the plan that runs only a workload.
func (lr *Learner) withoutFaults(w workload) (*plan.Plan, error) {
	p := &plan.Plan{TestName: w.id() + "-without-faults", Steps: w.steps, Build: w.build, Pace: plan.PaceRest}
	if lr.Suite.Pace == plan.PaceNone {
		p.Pace = plan.PaceNone
	}
	if w.steps == nil {
		p.Workload = w.name
	}
	p.Complete(lr.Suite)
	return p, p.Validate(lr.Suite)
}

// fine runs a plan that must pass.
func (lr *Learner) fine(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, error) {
	r, meta, err := lr.Once(ctx, p, o)
	if err != nil {
		return nil, err
	}
	if meta.Verdict != record.Pass {
		return nil, &notPassedError{run: r, meta: meta}
	}
	return r, nil
}

// notPassedError says that a workload does not pass without faults.
type notPassedError struct {
	run    *record.Run
	meta   *record.Meta
	passed int // runs of the same workload that have passed
}

func (e *notPassedError) Error() string {
	text := "it does not pass without faults"
	if e.passed > 0 {
		text = fmt.Sprintf("it fails in 1 of %d runs without faults", e.passed+1)
	}
	text += fmt.Sprintf(": %s: %s", e.meta.Verdict, e.meta.Reason)
	for _, f := range e.run.Findings {
		if f.Judge == record.JudgeHot && !strings.Contains(text, f.Title) {
			text += "; " + f.Title
		}
	}
	return fmt.Sprintf("%s (%s)", text, e.run.Dir)
}

// usual is how long a run took that is neither among the quick ones nor among the slow ones, by the machine's clock.
func usual(runs []*record.Run) time.Duration {
	var took []time.Duration
	for _, r := range runs {
		took = append(took, r.Meta.Took())
	}
	slices.Sort(took)
	return took[len(took)/2]
}
