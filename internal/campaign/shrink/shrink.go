// Package shrink makes plans small: it takes away what a plan does not need to show a finding, by delta debugging
// (Zeller and Hildebrandt, 2002). What is left out of the result makes no difference; each thing that is left does.
package shrink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Config says what to shrink. Runner, Suite, Plan and Dir are required.
type Config struct {
	Runner run.Runner  // a session, or workers elsewhere
	Suite  *plan.Suite // as the runner has it, with the variant
	Plan   *plan.Plan  // complete and valid; it is not changed
	// Written is the plan as its author has written it, if Plan was read from a copy; nil: Plan is that.
	Written *plan.Plan
	// Finding must come in every run of the result. Zero: the first bug that the plan's first run finds.
	Finding record.Finding
	// Baseline is what the plan's workload does without faults, and History are the types that it was learned with. If
	// it is nil and the finding is one of the baseline, it is learned.
	Baseline *baseline.Baseline
	History  []plan.ResourceKey
	Dir      string // created; for run records
	Runs     int    // how often a plan must show the finding; default 2
	// Learn is how often a workload is run without faults to make its baseline, if there is none; default 2.
	Learn int
	// Budget is the time in which all runs end: no smaller plan is tried that is not expected to end in time for the
	// runs that confirm the result. The runs of the plan itself, without which there is nothing to shrink, count, and
	// are made in any case. 0: no limit.
	Budget time.Duration
	Took   time.Duration // how long a run of the plan took by the machine's clock; 0: unknown
	// Progress receives a line for people about each try; default: none.
	Progress func(format string, args ...any)

	once func(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, error) // for tests; nil: the runner
}

// Result is the smallest plan that was found.
type Result struct {
	Plan    *plan.Plan     // complete and valid, with Config.Plan's file
	Finding record.Finding // as the last run of the plan shows it
	Record  string         // that run's directory
	// Minimal: everything was tried. None of the reductions that are left keeps the finding.
	Minimal bool
	// Alone: the plan shows a bug in every run without a baseline too: the suite, or the plan's own invariant, says
	// what is wrong. Note says why not, and what else there is to say; empty: nothing.
	Alone bool
	Note  string
	// Invariant is the name of the invariant that was derived from the finding and is in the plan; empty: none.
	Invariant     string
	Before, After Size
	Tried         int // plans
	Runs          int
	Took          time.Duration
}

// Size is what a plan consists of. Lines are those of its YAML with its workload, also if that is the suite's, and
// without the description.
type Size struct{ Actions, Steps, Lines int }

// String says it in words.
func (s Size) String() string {
	return fmt.Sprintf("%d actions, %d workload steps, %d lines", s.Actions, s.Steps, s.Lines)
}

// NotShownError says that the plan itself does not show the finding in every run, so that it cannot be shrunk.
type NotShownError struct {
	Finding  string // its title; empty: any bug
	Came, Of int    // runs
}

func (e *NotShownError) Error() string {
	what := "a bug"
	if e.Finding != "" {
		what = fmt.Sprintf("%q", e.Finding)
	}
	return fmt.Sprintf("the plan has found %s in %d of %d runs; it can be shrunk if that comes every time",
		what, e.Came, e.Of)
}

// errBudget ends the search.
var errBudget = errors.New("the budget is used up")

// Shrink looks for the smallest plan with the finding. If the context ends or a run cannot be carried out, it returns
// the smallest plan until then together with the error; the result is nil if not even the plan itself was confirmed. A
// plan that does not show the finding every time is a *NotShownError.
func Shrink(ctx context.Context, config Config) (*Result, error) {
	c := newChecker(config)
	first, err := c.prepare(ctx)
	if err != nil {
		return nil, err
	}
	s := newSearch(c.Suite, first, c.shows)
	s.stepsLast = c.fromBaseline()
	s.scopes = c.objects()
	s.told = c.Progress
	if err = s.makeLate(ctx, c.last); err == nil {
		err = s.makePauses(ctx, c.last)
	}
	if err == nil {
		err = s.smallest(ctx)
	}
	r := &Result{Minimal: err == nil}
	if errors.Is(err, errBudget) {
		err = nil
	}
	r.Plan, r.Finding, r.Record = s.best, c.finding, c.last.Dir
	if err == nil {
		err = c.conclude(ctx, r)
	}
	r.Before, r.After = size(c.Suite, config.Plan, c.Written), size(c.Suite, r.Plan, c.Written)
	r.Tried, r.Runs, r.Took = s.tries, c.runs, time.Since(c.began)
	return r, err
}
