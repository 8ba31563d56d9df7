package lab

import (
	"context"
	"slices"
	"sync"

	"github.com/trommel-dev/trommel/internal/run"
)

// pool lends runners, each for one run at a time.
type pool struct {
	Voice
	starts sync.WaitGroup // of runners that get ready

	mu       sync.Mutex   // guards what follows
	changed  sync.Cond    // signalled when a runner becomes free
	cold     []run.Runner // that are not ready
	starting bool         // one is getting ready
	free     []run.Runner // that are ready, and that no run uses; the one that was used last is used first
}

func newPool(runners []run.Runner, v Voice) *pool {
	p := &pool{Voice: v, cold: slices.Clone(runners)}
	p.changed.L = &p.mu
	return p
}

// starter is a runner that can get ready before its first run, such as a session, which starts its cluster.
type starter interface {
	Start(ctx context.Context) error
}

// acquire waits for a free runner; the caller releases it. If none is free it also gets another one ready: one at a
// time, since the start of a cluster keeps all cores busy, and not more than there is work for. life ends with the
// campaign. The error is that of ctx.
func (p *pool) acquire(ctx, life context.Context) (run.Runner, error) {
	defer context.AfterFunc(ctx, p.wake)()
	p.mu.Lock()
	defer p.mu.Unlock()
	for ctx.Err() == nil {
		if last := len(p.free) - 1; last >= 0 {
			r := p.free[last]
			p.free = p.free[:last]
			return r, nil
		}
		p.getReady(life)
		p.changed.Wait()
	}
	return nil, context.Cause(ctx)
}

// getReady gets the next runner ready in the background, unless one is getting ready. The caller holds the lock.
func (p *pool) getReady(life context.Context) {
	if p.starting || len(p.cold) == 0 {
		return
	}
	r := p.cold[0]
	p.cold = p.cold[1:]
	p.starting = true
	p.starts.Go(func() {
		if s, ok := r.(starter); ok {
			// After an error its first run tries again, and says what is wrong.
			if err := s.Start(life); err != nil && life.Err() == nil {
				p.Say("%v", err)
			}
		}
		p.mu.Lock()
		p.starting = false
		p.mu.Unlock()
		p.release(r)
	})
}

func (p *pool) release(r run.Runner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, r)
	p.changed.Broadcast()
}

func (p *pool) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed.Broadcast()
}

// wait waits for runners that are getting ready.
func (p *pool) wait() { p.starts.Wait() }
