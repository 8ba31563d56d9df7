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

	"golang.org/x/sync/errgroup"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/lab"
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
	// Unstudied are the workloads for whose learning the budget was too short, after All.
	Unstudied []string
	// Cut: the budget ended while workloads were being learned.
	Cut bool

	clock       *lab.Clock
	lessons     *lessons
	executables hashes

	mu     sync.Mutex         // guards what follows
	found  []result.Outcome   // see unsteady
	newest map[string]*newest // by workload
}

// New returns a learner whose runs a lab carries out.
func New(c Config, l *lab.Lab, clock *lab.Clock) *Learner {
	return &Learner{
		Config: c, Lab: l, clock: clock, newest: map[string]*newest{},
		lessons: &lessons{Voice: l.Voice, clock: clock, schedule: schedule.Learning{
			Budget: schedule.Budget{Limit: c.Budget, Runners: c.Runners}, All: c.Plans != nil,
		}},
	}
}

// Resume takes in how long earlier sessions of the campaign took.
func (lr *Learner) Resume(spent time.Duration) { lr.lessons.resume(spent) }

// Found lists the bugs that learning has found.
func (lr *Learner) Found() []result.Outcome {
	lr.mu.Lock()
	defer lr.mu.Unlock()
	return slices.Clone(lr.found)
}

// All returns what is known of the workloads, in order. Those for whose learning the budget is too short are left
// out. It returns when the budget ends: no plan could follow. The error is that of ctx.
func (lr *Learner) All(ctx context.Context) ([]Learned, error) {
	lr.build()
	budget, stop := lr.untilBudgetEnds(ctx)
	defer stop()
	workloads := lr.workloads()
	all := make([]Learned, len(workloads))
	why, errs := make([]string, len(workloads)), make([]error, len(workloads))
	for i, w := range workloads {
		all[i], why[i], errs[i] = lr.take(w)
		if errs[i] == nil && all[i].Baseline == nil {
			lr.lessons.toLearn(w.id(), lr.Learn+1)
		}
	}
	left := make([]bool, len(workloads)) // for another campaign
	var group errgroup.Group
	group.SetLimit(max(1, lr.Runners))
	for _, i := range inPromise(workloads, lr.Workloads, lr.Suite) {
		group.Go(func() error {
			learns := errs[i] == nil && all[i].Baseline == nil
			if left[i] = learns && !lr.lessons.begin(workloads[i].name); left[i] {
				lr.lessons.toLearn(workloads[i].id(), 0)
				return nil
			}
			lr.learnOne(budget, workloads[i], &all[i], why[i], errs[i])
			left[i] = learns && all[i].Baseline == nil && budget.Err() != nil
			return nil
		})
	}
	_ = group.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var known []Learned
	for i := range all {
		if left[i] {
			lr.Unstudied = append(lr.Unstudied, all[i].Workload)
		} else {
			known = append(known, all[i])
		}
	}
	if n := len(lr.Unstudied); n > 0 {
		why := "learning has had a quarter of the budget"
		if lr.Cut = budget.Err() != nil; lr.Cut {
			why = "the budget ended during learning; --budget " +
				plan.FormatDuration(lr.lessons.enough(lr.Learn+1)) + " is probably enough"
		}
		lr.Say("%s; %s not learned: %s", why, wording.Count(n, "workload"),
			wording.First(lr.Unstudied, result.Most))
	}
	return known, nil
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
func (lr *Learner) take(w workload) (l Learned, why string, err error) {
	l = Learned{Workload: w.id(), Build: w.build, File: BaselineFile(lr.Baselines, w.id())}
	l.Masks, l.Allowed = MaskFile(lr.Baselines, w.id()), AllowedFile(lr.Baselines, w.id())
	if l.Source, err = lr.source(w); err == nil {
		l.Baseline, why, err = lr.load(l.File, l.Source)
	}
	return l, why, err
}

// learnOne learns a workload without a baseline, and reports that, unless there was an error. It adds to the baseline
// what people and campaigns have stated about it.
func (lr *Learner) learnOne(ctx context.Context, w workload, l *Learned, why string, err error) {
	workload := w.id()
	if err == nil && l.Baseline == nil {
		lr.Say("%s: learning what it does without faults%s", workload, why)
		l.Anew = true
		l.Baseline, err = lr.study(ctx, w)
		if err == nil {
			l.Baseline.Source = l.Source
			err = errors.Join(l.Baseline.Write(l.File), l.Baseline.WriteMasks(l.Masks), forget(l.Allowed))
		}
	}
	if err == nil {
		err = l.Baseline.ReadAllowed(l.Allowed)
	}
	if err == nil {
		var edited []baseline.MaskEntry
		edited, err = baseline.ReadMasks(l.Masks)
		l.Baseline.Override(edited)
	}
	l.wait, l.trouble = lr.endings(w, l.Baseline, err)
	if err != nil {
		lr.lessons.failed(w.name)
		l.Baseline, l.Err = nil, fmt.Errorf("learn workload %q: %w", workload, err)
		if ctx.Err() == nil {
			lr.Say("%v", l.Err)
		}
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

// load reads the baseline if there is one of this source. Otherwise why says why it is learned, unless there was none.
func (lr *Learner) load(file string, source baseline.Source) (ref *baseline.Baseline, why string, err error) {
	if lr.Anew {
		return nil, "", nil
	}
	ref, err = baseline.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, fmt.Sprintf(" again: the baseline cannot be read: %v", err), nil
	}
	if lr.AnyRuns {
		source.Runs = ref.Source.Runs
	}
	if differ := source.Differs(ref.Source); len(differ) > 0 {
		return nil, fmt.Sprintf(" again: %s changed", and(differ)), nil
	}
	return ref, "", nil
}

// and joins words.
func and(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
