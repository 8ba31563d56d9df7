package campaign

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

// lab carries out runs, and keeps their records.
type lab struct {
	voice
	*pool
	dir  string          // of the campaign
	life context.Context // ends when the campaign does
	ran  func(plan string, took time.Duration)

	mu           sync.Mutex     // guards what follows
	numbers      map[string]int // of runs, by plan
	saidNotReset bool           // it was said why a cluster could not be reset
}

// partialSuffix marks the record of a run that has not ended.
const partialSuffix = ".partial"

// records is the directory of the records of a plan's runs.
func (l *lab) records(plan string) string { return filepath.Join(l.dir, "runs", plan) }

// number returns how many runs of a plan there were, and setNumber sets that.
func (l *lab) number(plan string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.numbers[plan]
}

func (l *lab) setNumber(plan string, runs int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.numbers[plan] = runs
}

// once runs a plan on a free runner, and reads its record. It waits for the runner. The record is whole, or absent.
func (l *lab) once(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, *record.Meta, error) {
	runner, err := l.pool.acquire(ctx, l.life)
	if err != nil {
		return nil, nil, err
	}
	defer l.pool.release(runner)
	l.mu.Lock()
	l.numbers[p.TestName]++
	dir := filepath.Join(l.records(p.TestName), fmt.Sprint(l.numbers[p.TestName]))
	l.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(dir), record.DirMode); err != nil {
		return nil, nil, err
	}
	partial := dir + partialSuffix
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
func (l *lab) notReset(why string) {
	l.mu.Lock()
	said := l.saidNotReset
	l.saidNotReset = true
	l.mu.Unlock()
	if !said {
		l.say("runs take longer, because each starts a cluster of its own: %s", why)
	}
}
