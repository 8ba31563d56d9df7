// Package campaign looks for bugs without being told where: it learns what a suite's workloads do without faults, makes
// plans that strike at each moment, runs them, and believes what comes again.
package campaign

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/generate"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/reference"
	"github.com/trommel-dev/trommel/run"
)

// Config says what to look for. Session, Suite and Dir are required.
type Config struct {
	Session   *run.Session
	Suite     *plan.Suite   // as the session has it
	Dir       string        // created; for plans and records
	Workloads []string      // default: all of the suite
	Patterns  []string      // default: all
	Learn     int           // runs without faults for each workload; default 3
	Repeat    int           // how often a finding must come to be believed; default 3
	Budget    time.Duration // no new plan is begun after it; 0: no limit
	FailFast  bool          // stop after the first confirmed finding
	// Progress is told a line for people now and then; default: nobody.
	Progress func(format string, args ...any)
}

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
	if c.Progress == nil {
		c.Progress = func(string, ...any) {}
	}
	if len(c.Workloads) == 0 {
		c.Workloads = slices.Sorted(maps.Keys(c.Suite.Workloads))
	}
	return c
}

type campaign struct {
	Config
	began  time.Time
	result *Result
	runs   int
}

// learned is a workload with what is to be run of it.
type learned struct {
	ref        *reference.Reference
	history    []plan.ResourceKey
	candidates []generate.Candidate // also those without a plan
}

// prepare learns the workloads and generates their plans.
func (c *campaign) prepare(ctx context.Context) ([]learned, error) {
	if err := os.MkdirAll(c.Dir, record.DirMode); err != nil {
		return nil, err
	}
	var all []learned
	for _, workload := range c.Workloads {
		c.Progress("%s: learning what it does without faults", workload)
		l, err := c.learn(ctx, workload)
		if ctx.Err() != nil {
			return all, context.Cause(ctx)
		}
		if err != nil {
			err = fmt.Errorf("learn workload %q: %w", workload, err)
			c.Progress("%v", err)
			c.result.Unstable = append(c.result.Unstable, err)
			continue
		}
		l.candidates = generate.Generate(c.Suite, l.ref, c.Patterns...)
		plans := 0
		for _, candidate := range l.candidates {
			if candidate.Plan == nil {
				c.result.Dropped[candidate.Dropped]++
			} else {
				plans++
			}
		}
		c.Progress("%s: %d plans", workload, plans)
		all = append(all, *l)
	}
	return all, nil
}

func (c *campaign) run(ctx context.Context) error {
	all, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	// One plan of each workload, then the next: those that differ most from the others come first.
	for i := 0; ; i++ {
		more := false
		for _, l := range all {
			if i >= len(l.candidates) {
				continue
			}
			more = true
			if l.candidates[i].Plan == nil {
				continue
			}
			if c.Budget > 0 && time.Since(c.began) > c.Budget || c.FailFast && len(c.result.Findings) > 0 {
				c.result.NotRun++
				continue
			}
			err := c.try(ctx, l, l.candidates[i])
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				c.Progress("%v", err)
				c.result.Failed = append(c.result.Failed, err)
			}
		}
		if !more {
			return nil
		}
	}
}

// learn runs a workload without faults. The first run shows which types the controllers have to do with.
func (c *campaign) learn(ctx context.Context, workload string) (*learned, error) {
	quiet := &plan.Plan{TestName: workload + "-without-faults", Workload: workload}
	quiet.Complete(c.Suite)
	if err := quiet.Validate(c.Suite); err != nil {
		return nil, err
	}
	l := &learned{}
	var runs []*record.Run
	for i := 0; i <= c.Learn; i++ {
		r, meta, err := c.once(ctx, quiet, run.RunOptions{Trace: true, History: l.history})
		if err != nil {
			return nil, err
		}
		if meta.Verdict != record.Pass {
			return nil, fmt.Errorf("it does not pass without faults: %s: %s", meta.Verdict, meta.Reason)
		}
		if i == 0 {
			l.history = reference.Types(r)
			continue
		}
		runs = append(runs, r)
	}
	var err error
	if l.ref, err = reference.Learn(workload, runs, c.Suite.Masks...); err != nil {
		return nil, err
	}
	return l, l.ref.Write(filepath.Join(c.Dir, "reference", workload+".json"))
}

// once runs a plan and reads its record.
func (c *campaign) once(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, *record.Meta, error) {
	c.runs++
	dir := filepath.Join(c.Dir, "runs", fmt.Sprintf("%04d-%s", c.runs, p.TestName))
	meta, err := c.Session.RunWith(ctx, p, dir, o)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.TestName, err)
	}
	r, err := record.Open(dir)
	return r, meta, err
}

// try runs a plan, and again if it finds something.
func (c *campaign) try(ctx context.Context, l learned, candidate generate.Candidate) error {
	file, err := c.write(candidate)
	if err != nil {
		return err
	}
	o := run.RunOptions{History: l.history, Reference: l.ref}
	r, meta, err := c.once(ctx, candidate.Plan, o)
	if err != nil {
		return err
	}
	c.result.Records = append(c.result.Records, r.Dir)
	outcome := Outcome{
		Candidate: candidate, PlanFile: file, Record: r.Dir, Verdict: meta.Verdict, Reason: meta.Reason,
		Findings: r.Findings,
	}
	c.Progress("%s: %s %s", candidate.Plan.TestName, meta.Verdict, meta.Reason)
	switch meta.Verdict {
	case record.Pass:
		c.result.Passed++
		return nil
	case record.Bug:
	default:
		c.result.Inconclusive = append(c.result.Inconclusive, outcome)
		return nil
	}
	return c.confirm(ctx, l, outcome)
}

// confirm runs a plan again that has found something. What comes every time is believed.
func (c *campaign) confirm(ctx context.Context, l learned, first Outcome) (err error) {
	f := Finding{Outcome: first, Came: 1, Of: 1}
	same := bugs(first.Findings)
	for f.Of < c.Repeat {
		var r *record.Run
		r, _, err = c.once(ctx, first.Candidate.Plan, run.RunOptions{History: l.history, Reference: l.ref})
		if err != nil {
			break // what was found so far is reported
		}
		f.Of++
		again := bugs(r.Findings)
		common := slices.DeleteFunc(slices.Clone(same), func(x record.Finding) bool {
			return !slices.ContainsFunc(again, x.Same)
		})
		if len(common) > 0 {
			f.Came++
			same = common
		}
	}
	if err == nil && f.Came == f.Of {
		f.Findings = same
		c.result.Findings = append(c.result.Findings, f)
	} else {
		c.result.Unconfirmed = append(c.result.Unconfirmed, f)
	}
	return err
}

// bugs are the findings about the controllers.
func bugs(all []record.Finding) []record.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f record.Finding) bool { return !f.IsBug() })
}

func (c *campaign) write(candidate generate.Candidate) (file string, err error) {
	data, err := plan.Marshal(candidate.Plan)
	if err != nil {
		return "", err
	}
	file = filepath.Join(c.Dir, "plans", candidate.Plan.TestName+".yaml")
	if err := os.MkdirAll(filepath.Dir(file), record.DirMode); err != nil {
		return "", err
	}
	return file, os.WriteFile(file, data, record.FileMode)
}
