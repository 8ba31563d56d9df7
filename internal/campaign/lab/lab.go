// Package lab carries out the runs of a campaign on the runners that it has, keeps their records, and reports how the
// campaign goes.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Lab carries out runs, and keeps their records.
type Lab struct {
	Voice
	pool *pool
	dir  string          // of the campaign
	life context.Context // ends when the campaign does
	ran  func(plan string, took time.Duration)

	mu           sync.Mutex     // guards what follows
	numbers      map[string]int // of runs, by plan
	saidNotReset bool           // it was said why a cluster could not be reset
}

// PartialSuffix marks the record of a run that has not ended.
const PartialSuffix = ".partial"

// New returns the lab of a campaign, which has a directory. The runners are used side by side. ran is called with the
// duration of each run.
func New(runners []run.Runner, dir string, v Voice, ran func(plan string, took time.Duration)) *Lab {
	return &Lab{Voice: v, pool: newPool(runners, v), dir: dir, ran: ran, numbers: map[string]int{}}
}

// Begin begins a campaign, which lasts as long as its context. No run may begin before.
func (l *Lab) Begin(life context.Context) { l.life = life }

// Life is the context of the campaign.
func (l *Lab) Life() context.Context { return l.life }

// Wait waits, after the end of the campaign, for runners that are getting ready.
func (l *Lab) Wait() { l.pool.wait() }

// Acquire waits for a free runner. The caller releases it. The error is that of ctx.
func (l *Lab) Acquire(ctx context.Context) (run.Runner, error) { return l.pool.acquire(ctx, l.life) }

// Release gives a runner back.
func (l *Lab) Release(r run.Runner) { l.pool.release(r) }

// Records is the directory of the records of a plan's runs.
func (l *Lab) Records(plan string) string { return filepath.Join(l.dir, "runs", plan) }

// Number returns how many runs of a plan there were.
func (l *Lab) Number(plan string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.numbers[plan]
}

// SetNumber sets how many runs of a plan there were.
func (l *Lab) SetNumber(plan string, runs int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.numbers[plan] = runs
}

// Once runs a plan on a free runner, and reads its record. It waits for the runner. The record is whole, or absent.
func (l *Lab) Once(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, *record.Meta, error) {
	runner, err := l.pool.acquire(ctx, l.life)
	if err != nil {
		return nil, nil, err
	}
	defer l.pool.release(runner)
	l.mu.Lock()
	l.numbers[p.TestName]++
	dir := filepath.Join(l.Records(p.TestName), fmt.Sprint(l.numbers[p.TestName]))
	l.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(dir), record.DirMode); err != nil {
		return nil, nil, err
	}
	partial := dir + PartialSuffix
	for _, old := range []string{dir, partial} { // of a campaign that was interrupted
		if err := os.RemoveAll(old); err != nil {
			return nil, nil, err
		}
	}
	began := time.Now()
	meta, err := runner.RunWith(ctx, p, partial, o)
	l.ran(p.TestName, time.Since(began))
	if meta != nil && meta.NotReset != "" {
		l.notReset(meta.NotReset)
	}
	if ctx.Err() != nil {
		return nil, nil, errors.Join(context.Cause(ctx), os.RemoveAll(partial))
	}
	if _, missing := os.Stat(partial); missing == nil {
		err = errors.Join(err, os.Rename(partial, dir))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.TestName, err)
	}
	r, err := record.Open(dir)
	return r, meta, err
}

// notReset says once why a cluster could not be reset.
func (l *Lab) notReset(why string) {
	l.mu.Lock()
	said := l.saidNotReset
	l.saidNotReset = true
	l.mu.Unlock()
	if !said {
		l.Say("runs take longer, because each starts a cluster of its own: %s", why)
	}
}
