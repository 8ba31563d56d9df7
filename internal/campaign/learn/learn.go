// Package learn learns what the workloads of a campaign do without faults. It takes the baselines that are there, and
// makes those that are missing or were made from something else.
package learn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/lab"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/campaign/propose"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
)

// Config says what to learn.
type Config struct {
	result.Settings
	Suite   *plan.Suite
	Runners int // how many runs may go on side by side
	// Binaries and ControlPlane are the executables that the runners run, and Version is Trommel's: a baseline of
	// others is not used.
	Binaries     []builds.Binary
	ControlPlane string
	Version      string
	Builds       Builds       // the suite's other builds; nil: there are none
	Anew         bool         // learn also what there is a baseline of
	AnyRuns      bool         // a baseline counts that was learned from another number of runs; see Settings.Learn
	Plans        []*plan.Plan // learn what these are compared with; nil: plans are generated
	// Whole learns each workload from all runs at once. Otherwise the runs that are only needed to judge a difference
	// are made when there is one; see Learner.Rest.
	Whole bool
	// Schedule has the workloads that are to be learned. Lock guards it.
	Schedule *schedule.Learning
	Lock     *sync.Mutex
	// Holds reports whether something that takes that long ends within the budget of the campaign. HoldsRuns reports
	// it for a number of runs, each of which is estimated to take that long.
	Holds     func(takes time.Duration) bool
	HoldsRuns func(runs int, estimate time.Duration) bool
}

// Builds are those of a suite; a *builds.Set is one.
type Builds interface {
	Get(ctx context.Context, name string) (*builds.Build, error)
}

// Learner learns what workloads do without faults.
type Learner struct {
	Config
	*lab.Lab

	clock       *lab.Clock
	lessons     *lessons
	executables hashes

	mu     sync.Mutex         // guards what follows
	all    map[string]*lesson // by ID of the workload
	found  []result.Outcome   // see unsteady
	newest map[string]*newest // by workload
}

// New returns a learner whose runs a lab carries out.
func New(c Config, l *lab.Lab, clock *lab.Clock) *Learner {
	return &Learner{
		Config: c, Lab: l, clock: clock, newest: map[string]*newest{}, all: map[string]*lesson{},
		lessons: &lessons{Voice: l.Voice, schedule: c.Schedule, mu: c.Lock},
	}
}

// Found lists the bugs that learning has found.
func (lr *Learner) Found() []result.Outcome {
	lr.mu.Lock()
	defer lr.mu.Unlock()
	return slices.Clone(lr.found)
}

// lesson is a workload that is to be learned.
type lesson struct {
	workload
	learned *Learned
	why     string // it is learned, if there is a baseline
	after   *lesson
	by      time.Duration // what passes after the other workload; see later
}

// Begin takes the baselines that are there, and returns what is known of their workloads, also that they cannot be
// learned. The others wait in the schedule, those first from which plans promise most. Study learns them.
func (lr *Learner) Begin() (known []*Learned) {
	lr.build()
	workloads := lr.workloads()
	runs := lr.runsEach()
	for _, i := range inPromise(workloads, lr.Workloads, lr.Suite) {
		w := workloads[i]
		l := &lesson{workload: w}
		var err error
		l.learned, l.why, err = lr.take(w)
		l.learned.Place = Place{0, i}
		lr.mu.Lock()
		lr.all[w.id()] = l
		lr.mu.Unlock()
		switch {
		case err == nil && l.learned.Baseline == nil:
			lr.lessons.wait(w, runs, false)
		case err == nil && lr.Whole && l.learned.Baseline.Begun != nil:
			lr.lessons.wait(w, runs-len(l.learned.Baseline.Begun), false)
		default:
			lr.finish(w, l.learned, err)
			known = append(known, l.learned)
			lr.thenLater(l)
		}
	}
	slices.SortFunc(known, ByPlace)
	return known
}

// runsEach is how many runs each workload is learned from. If these are all runs, one of them has the other pace.
func (lr *Learner) runsEach() int {
	if lr.whole() {
		return lr.Learn + 1
	}
	return runsToBegin
}

// whole reports whether each workload is learned from all runs at once. What upgrades are compared with depends on
// several baselines, so that these are whole.
func (lr *Learner) whole() bool {
	return lr.Whole || lr.Upgrades(pattern.Upgrade) || lr.Upgrades(pattern.Rollback) || slices.ContainsFunc(lr.Plans,
		func(p *plan.Plan) bool { return workloadOf(p).build != "" })
}

// Study learns a workload that Begin or Study has let wait. It returns what is known then; nil: time passes in the
// workload and the controllers change nothing, or the budget has ended, so that the workload waits again. The error is
// that of ctx.
func (lr *Learner) Study(ctx context.Context, id string) (*Learned, error) {
	lr.mu.Lock()
	l := lr.all[id]
	lr.mu.Unlock()
	budget, stop := lr.untilBudgetEnds(ctx)
	defer stop()
	if l.after != nil {
		known, err := lr.studyLater(budget, l)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil && budget.Err() == nil {
			lr.Say("%s: no plans: %v", l.name, err)
		}
		return known, nil
	}
	lr.learnOne(budget, l)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case l.learned.Baseline == nil && budget.Err() != nil:
		lr.lessons.wait(l.workload, lr.runsEach(), false)
		return nil, nil
	}
	lr.thenLater(l)
	return l.learned, nil
}

// End says which workloads were not learned. Stopped is why the campaign has stopped; empty: it has not. Planned: there
// were plans.
func (lr *Learner) End(stopped string, planned bool) {
	lr.lessons.mu.Lock()
	unlearned, late := lr.lessons.schedule.Waiting(false), lr.lessons.schedule.Waiting(true)
	lr.lessons.mu.Unlock()
	slices.Sort(unlearned)
	if n := len(unlearned); n > 0 {
		if !planned && lr.Budget > 0 {
			stopped = "the budget ended during learning; --budget " +
				plan.FormatDuration(lr.lessons.enough(lr.runsEach())) + " is probably enough"
		}
		lr.Say("%s; %s not learned: %s", stopped, wording.Count(n, "workload"), wording.First(unlearned, result.Most))
	}
	if len(late) > 0 {
		lr.Say("too little of the budget was left to learn what comes when time has passed: %s",
			wording.First(late, result.Most))
	}
}

// untilBudgetEnds returns a context that ends with the budget. The caller must call stop in the end.
func (lr *Learner) untilBudgetEnds(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if lr.Budget > 0 {
		go func() {
			// Time may be left out of the campaign's clock meanwhile.
			for left := lr.Budget - lr.clock.Elapsed(); left > 0; left = lr.Budget - lr.clock.Elapsed() {
				select {
				case <-ctx.Done():
					return
				case <-time.After(left):
				}
			}
			cancel(schedule.ErrBudget)
		}()
	}
	return ctx, func() { cancel(nil) }
}

// take takes the baseline of a workload, if there is one of what there is now. Otherwise why says why it is learned.
func (lr *Learner) take(w workload) (l *Learned, why string, err error) {
	l = lr.unknown(w)
	if l.Source, err = lr.source(w); err == nil {
		why, err = lr.load(l)
	}
	return l, why, err
}

// unknown is what is known of a workload before it is learned.
func (lr *Learner) unknown(w workload) *Learned {
	return &Learned{
		Workload: w.id(), Build: w.build, File: BaselineFile(lr.Baselines, w.id()),
		Masks: MaskFile(lr.Baselines, w.id()), Allowed: AllowedFile(lr.Baselines, w.id()),
	}
}

// learnOne learns a workload, and reports that.
func (lr *Learner) learnOne(ctx context.Context, l *lesson) {
	var err error
	if l.learned.Baseline != nil { // only its beginning is known
		var whole *Learned
		if whole, err = lr.complete(ctx, l.learned); err == nil {
			l.learned = whole
			return
		}
	} else {
		lr.Say("%s: learning what it does without faults%s", l.id(), l.why)
		l.learned.Anew = true
		err = lr.study(ctx, l.workload, l.learned)
	}
	lr.finish(l.workload, l.learned, err)
	if l.learned.Err != nil && ctx.Err() == nil {
		lr.Say("%v", l.learned.Err)
	}
}

// finish adds to a baseline what people and campaigns have stated about it, and notes an error.
func (lr *Learner) finish(w workload, l *Learned, err error) {
	if err == nil {
		err = l.readStated()
	}
	l.wait, l.trouble = lr.endings(w, l.Baseline, err)
	if err != nil {
		l.Baseline, l.Err = nil, fmt.Errorf("learn workload %q: %w", w.id(), err)
	}
}

// endings returns what the end states of runs without faults show about the workload: what it can wait for, if it waits
// for little (nil: nothing), and what is wrong with its sample. If a run did not pass, the baseline is nil, and the
// error has the run.
func (lr *Learner) endings(w workload, ref *baseline.Baseline, err error) (wait *plan.Step, trouble string) {
	var runs [][]facts.Change
	var failed *notPassedError
	switch {
	case errors.As(err, &failed):
		changes, err := facts.Changes(failed.run)
		if err != nil {
			return nil, ""
		}
		runs = [][]facts.Change{changes}
	case err == nil:
		runs = append([][]facts.Change{ref.Changes}, ref.Others...)
	}
	steps := slices.Concat(w.steps, lr.Suite.Workloads[w.name].Steps)
	return propose.SuggestWait(steps, runs...), propose.Trouble(runs...)
}

// forget deletes a file that may not be there.
func forget(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// load reads the baseline if there is one of the source. Otherwise why says why it is learned, unless there was none.
func (lr *Learner) load(l *Learned) (why string, err error) {
	if lr.Anew {
		return "", nil
	}
	ref, err := baseline.Read(l.File)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return fmt.Sprintf(" again: the baseline cannot be read: %v", err), nil
	}
	source := l.Source
	if lr.AnyRuns {
		source.Runs = ref.Source.Runs
	}
	if differ := source.Differs(ref.Source); len(differ) > 0 {
		return fmt.Sprintf(" again: %s changed", and(differ)), nil
	}
	if ref.Begun != nil && !areThere(ref.Begun) {
		return " again: the records of its first runs are gone", nil
	}
	l.Baseline = ref
	if first, err := baseline.Read(l.firstFile()); err == nil && len(first.Source.Differs(ref.Source)) == 0 {
		l.first = first
	}
	return "", nil
}

// and joins words.
func and(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
