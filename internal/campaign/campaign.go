// Package campaign looks for bugs: it learns what a suite's workloads do without faults, makes plans that strike at
// each moment, runs them, and confirms what comes again. It keeps what it has found after each plan, so that a campaign
// that was interrupted or killed can be resumed.
//
// Package schedule decides what comes next, package learn learns workloads, and package lab carries out all runs. In
// this package, a queue hands out plans to workers as the schedule says, and a confirmer confirms findings.
package campaign

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/lab"
	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Config says what to look for. Runners, Suite and Dir are required.
type Config struct {
	result.Settings
	// Runners are used side by side; all run the same suite and executables.
	Runners []run.Runner
	Suite   *plan.Suite // as the runners have it
	// Dir is the directory for plans, records and the state. If it has a state, the campaign goes on from there.
	Dir string
	// Binaries and ControlPlane are the executables that the runners run, and Version is Trommel's: a baseline of
	// others is not used.
	Binaries     []builds.Binary
	ControlPlane string
	Version      string
	Builds       learn.Builds // the suite's other builds; nil: there are none
	Anew         bool         // learn also what there is a baseline of
	Plans        []*plan.Plan // run these; nil: generate plans
	// Shrink looks for a smaller plan; see Shrinking. It is called at the end, for the simplest plan of each group of
	// bugs. Alone: the smaller plan shows the finding without a baseline. If nil, plans stay as they are.
	Shrink func(ctx context.Context, r run.Runner, s Shrinking) (alone bool, err error)
	// Trace runs the plan of a confirmed bug once more, and records everything, to see what led to its worst finding.
	Trace bool
	// Progress receives how the campaign goes; default: none. The runners report their runs themselves.
	Progress progress.Listener
}

// Learn takes the workloads' baselines, and learns those that are missing or were made from something else, from all
// runs. The error is that of ctx.
func Learn(ctx context.Context, config Config) ([]*learn.Learned, error) {
	c := newCampaign(config)
	c.learner.Whole = true
	ctx, end := c.begun(ctx)
	defer end()
	if err := c.learnAll(ctx); err != nil {
		return nil, err
	}
	return c.known, nil
}

// Run runs the campaign. The error says what kept it from going on; the result is what it had until then.
func Run(ctx context.Context, config Config) (*result.Result, error) {
	c := newCampaign(config)
	ctx, end := c.begun(ctx)
	defer end()
	err := c.run(ctx)
	if rest := c.queue.keepRest(); rest != nil {
		err = errors.Join(err, rest)
	}
	return c.finish(err), err
}

// Generate learns the workloads and writes the plans that a campaign would run, without running them. It returns all
// candidates, the plans in the order in which a campaign would run them, then those without a plan. The result says
// what could not be learned.
func Generate(ctx context.Context, config Config) ([]pattern.Candidate, *result.Result, error) {
	c := newCampaign(config)
	ctx, end := c.begun(ctx)
	defer end()
	err := os.MkdirAll(c.Dir, record.DirMode)
	if err == nil {
		err = c.learnAll(ctx)
	}
	if err == nil {
		learned := c.known
		c.known = nil
		err = c.generate(learned)
	}
	var candidates []pattern.Candidate
	for _, t := range c.inOrder(nil) {
		candidates = append(candidates, *t.candidate)
	}
	for _, l := range c.planned() {
		for _, candidate := range l.Candidates {
			if candidate.Plan == nil {
				candidates = append(candidates, candidate)
			}
		}
	}
	return candidates, c.finish(err), err
}

func newCampaign(config Config) *campaign {
	c := &campaign{
		Config: config, clock: lab.NewClock(), paired: map[*learn.Learned]bool{}, tasks: map[*learn.Learned][]*task{},
		orders: map[string]*orders{},
		result: &result.Result{
			Settings: config.Settings, Outcomes: []result.Outcome{}, NotRun: []string{}, Next: []result.Unrun{},
			Unlearned: []result.Unlearned{}, Dropped: map[string]int{}, Empty: []string{},
			Suggested: []result.Suggestion{},
		},
	}
	if c.Plans == nil && c.Suite != nil {
		for i, s := range c.Suite.Generate.Skip {
			c.result.Skipped = append(c.result.Skipped, result.Skipped{At: c.Suite.SkipAt(i), What: s.String()})
		}
	}
	anyRuns := c.Learn == 0
	if anyRuns {
		c.Learn = 3
	}
	if c.Repeat == 0 {
		c.Repeat = 3
	}
	if c.Progress == nil {
		c.Progress = progress.Nobody
	}
	v := lab.Voice{To: c.Progress}
	c.queue = newQueue(v, c.clock, c.Settings, len(c.Runners), c.Dir)
	c.queue.chosen = c.Plans != nil
	c.queue.schedule.Learning.All = c.Plans != nil
	c.Lab = lab.New(c.Runners, c.Dir, v, c.queue.ran)
	c.learner = learn.New(learn.Config{
		Settings: c.Settings, Suite: c.Suite, Runners: len(c.Runners), Binaries: c.Binaries,
		ControlPlane: c.ControlPlane, Version: c.Version, Builds: c.Builds, Anew: c.Anew, AnyRuns: anyRuns,
		Plans: c.Plans, Schedule: c.queue.schedule.Learning, Lock: &c.queue.mu, Holds: c.queue.holds,
		HoldsRuns: func(runs int, estimate time.Duration) bool { return c.queue.holdsRuns(runs, "", estimate) },
	}, c.Lab, c.clock)
	c.confirmer = &confirmer{
		Config: &c.Config, Lab: c.Lab, queue: c.queue, quietly: map[string][]record.Finding{},
		widened: map[*learn.Learned]*baseline.Baseline{}, extra: map[string]*extra{},
		anew: map[string][]record.Finding{}, still: map[string]*still{},
	}
	return c
}

// campaign puts the parts together. Each part guards its own state.
type campaign struct {
	Config
	*lab.Lab
	clock     *lab.Clock
	queue     *queue
	learner   *learn.Learner
	confirmer *confirmer

	mu     sync.Mutex // guards what follows
	known  []*learn.Learned
	paired map[*learn.Learned]bool    // builds of which plans that upgrade were made; see between
	tasks  map[*learn.Learned][]*task // one for each candidate; nil: it has no plan, or that is in another shard
	orders map[string]*orders         // by ID of the workload
	// ordering is how long the plans of the pattern order ran.
	ordering time.Duration
	result   *result.Result
}

// begun returns the context of everything that the campaign does. The caller calls end when the campaign has ended.
func (c *campaign) begun(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	c.Begin(ctx)
	return ctx, func() {
		cancel()
		c.Wait()
	}
}

// finish completes the result. The error is what kept the campaign from going on.
func (c *campaign) finish(err error) *result.Result {
	all := c.planned()
	c.result.Unreached, c.result.Suggested = c.unreached(all), c.suggest(all)
	c.result.Outcomes = append(c.result.Outcomes, c.learner.Found()...)
	c.queue.finish(c.result, c.inOrder(nil))
	for _, l := range c.known {
		if w := c.orders[l.ID()]; w != nil {
			c.result.Orders = append(c.result.Orders, w.covered)
		}
	}
	if err != nil && c.result.Stopped == "" {
		c.result.Stopped = err.Error()
	}
	return c.result
}
