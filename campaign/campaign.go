// Package campaign looks for bugs without being told where: it learns what a suite's workloads do without faults, makes
// plans that strike at each moment, runs them, and believes what comes again.
package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/generate"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/run"
)

// Runner runs plans, one at a time; a *run.Session is one.
type Runner interface {
	RunWith(ctx context.Context, p *plan.Plan, recordDir string, o run.RunOptions) (*record.Meta, error)
}

// Config says what to look for. Runners, Suite, Dir and References are required.
type Config struct {
	// Runners are used side by side; all run the same suite and executables.
	Runners []Runner
	Suite   *plan.Suite // as the runners have it
	Dir     string      // created; for plans and records
	// References is the directory of the references, which campaigns share. It is created.
	References string
	// Binaries and ControlPlane are the executables that the runners run, and Version is Trommel's: a reference of
	// others is not used.
	Binaries     []run.Binary
	ControlPlane string
	Version      string
	Workloads    []string // default: all of the suite
	Patterns     []string // default: all
	// Learn is the number of runs without faults for each workload that are compared; default 3.
	Learn  int
	Anew   bool          // learn also what there is a reference of
	Repeat int           // how often a finding must come to be believed; default 3
	Budget time.Duration // no new plan is begun after it; 0: no limit
	// FailFast stops the campaign after the first confirmed finding.
	FailFast bool
	Console  Console // default: nobody
}

// Console shows people how a campaign goes. Its methods must not block for long; they may be called concurrently.
type Console interface {
	// Info shows a line that stays.
	Info(text string)
}

// nobody is the default console.
type nobody struct{}

func (nobody) Info(string) {}

// Result is what a campaign has found.
type Result struct {
	Findings    []Finding // each came every time
	Unconfirmed []Finding // came at least once and not every time
	// Inconclusive are plans that did not happen, or of which nothing could be said.
	Inconclusive []Outcome
	Passed       int
	Dropped      map[string]int // candidates for which there was no plan, by rule
	NotRun       int            // plans that were not started: the budget was used up, or FailFast has ended the campaign
	Unstable     []error        // workloads that end differently without faults, or not well
	Failed       []error        // runs that could not be carried out
	Records      []string       // directories of the run records, of each plan's first run
}

// Finding is a plan that shows a bug.
type Finding struct {
	Outcome
	Came, Of int // runs with the finding, runs
}

// Outcome is a plan with what its first run said.
type Outcome struct {
	Candidate generate.Candidate
	PlanFile  string
	Record    string // the directory
	Verdict   record.Verdict
	Reason    string
	Findings  []record.Finding
}

// Run runs the campaign. The error says what kept it from going on; the result is what it had until then.
func Run(ctx context.Context, config Config) (*Result, error) {
	c := newCampaign(config)
	err := c.run(ctx)
	return c.result, err
}

// Generate learns the workloads and writes the plans that a campaign would run, without running them. It returns all
// candidates, also those without a plan. The result says what could not be learned.
func Generate(ctx context.Context, config Config) ([]generate.Candidate, *Result, error) {
	c := newCampaign(config)
	all, err := c.prepare(ctx)
	var candidates []generate.Candidate
	for _, l := range all {
		for _, candidate := range l.candidates {
			if candidate.Plan != nil {
				if _, err := c.write(candidate); err != nil {
					return nil, c.result, err
				}
			}
			candidates = append(candidates, candidate)
		}
	}
	return candidates, c.result, err
}

func newCampaign(config Config) *campaign {
	c := &campaign{Config: config, began: time.Now(), result: &Result{Dropped: map[string]int{}}}
	if c.Learn == 0 {
		c.Learn = 3
	}
	if c.Repeat == 0 {
		c.Repeat = 3
	}
	if c.Console == nil {
		c.Console = nobody{}
	}
	if len(c.Workloads) == 0 {
		c.Workloads = slices.Sorted(maps.Keys(c.Suite.Workloads))
	}
	c.free = make(chan Runner, len(c.Runners))
	for _, r := range c.Runners {
		c.free <- r
	}
	return c
}

type campaign struct {
	Config
	began  time.Time
	result *Result
	free   chan Runner // that no run uses

	executables hashes

	mu   sync.Mutex
	runs map[string]int // by plan
}

func (c *campaign) say(format string, args ...any) { c.Console.Info(fmt.Sprintf(format, args...)) }

// once runs a plan on a free runner, and reads its record. It waits for the runner. The record is whole, or absent.
func (c *campaign) once(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, *record.Meta, error) {
	var runner Runner
	select {
	case runner = <-c.free:
		defer func() { c.free <- runner }()
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	c.mu.Lock()
	if c.runs == nil {
		c.runs = map[string]int{}
	}
	c.runs[p.TestName]++
	dir := filepath.Join(c.Dir, "runs", p.TestName, fmt.Sprint(c.runs[p.TestName]))
	c.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(dir), record.DirMode); err != nil {
		return nil, nil, err
	}
	partial := dir + partialSuffix
	for _, old := range []string{dir, partial} { // of a campaign that was killed
		if err := os.RemoveAll(old); err != nil {
			return nil, nil, err
		}
	}
	meta, err := runner.RunWith(ctx, p, partial, o)
	if ctx.Err() != nil {
		return nil, nil, errors.Join(context.Cause(ctx), os.RemoveAll(partial))
	}
	if _, statErr := os.Stat(partial); statErr == nil {
		err = errors.Join(err, os.Rename(partial, dir))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.TestName, err)
	}
	r, err := record.Open(dir)
	return r, meta, err
}

// partialSuffix marks the record of a run that has not ended.
const partialSuffix = ".partial"
