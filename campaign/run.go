package campaign

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/trommel-dev/trommel/generate"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// prepare learns the workloads and generates their plans.
func (c *campaign) prepare(ctx context.Context) ([]Learned, error) {
	if err := os.MkdirAll(c.Dir, record.DirMode); err != nil {
		return nil, err
	}
	learned, err := c.learn(ctx)
	if err != nil {
		return nil, err
	}
	var all []Learned
	for _, l := range learned {
		if l.Err != nil {
			c.result.Unstable = append(c.result.Unstable, l.Err)
			continue
		}
		l.candidates = generate.Generate(c.Suite, l.Reference, c.Patterns...)
		plans := 0
		for _, candidate := range l.candidates {
			if candidate.Plan == nil {
				c.result.Dropped[candidate.Dropped]++
			} else {
				plans++
			}
		}
		c.say("%s: %d plans", l.Workload, plans)
		all = append(all, l)
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
			err := c.try(ctx, &l, l.candidates[i])
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				c.say("%v", err)
				c.result.Failed = append(c.result.Failed, err)
			}
		}
		if !more {
			return nil
		}
	}
}

// try runs a plan, and again if it finds something.
func (c *campaign) try(ctx context.Context, l *Learned, candidate generate.Candidate) error {
	file, err := c.write(candidate)
	if err != nil {
		return err
	}
	r, meta, err := c.once(ctx, candidate.Plan, l.Options())
	if err != nil {
		return err
	}
	c.result.Records = append(c.result.Records, r.Dir)
	outcome := Outcome{
		Candidate: candidate, PlanFile: file, Record: r.Dir, Verdict: meta.Verdict, Reason: meta.Reason,
		Findings: r.Findings,
	}
	c.say("%s: %s %s", candidate.Plan.TestName, meta.Verdict, meta.Reason)
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
