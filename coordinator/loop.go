package coordinator

import (
	"context"
	"errors"
)

// loop is the way into the goroutine of Run, which owns the coordinator's state. Its methods do and until, and the
// channels, may be used by every goroutine; the rest belongs to the owner.
type loop struct {
	commands chan func(context.Context)
	stopped  chan struct{} // closed when Run returns
	wake     []chan struct{}
}

// errStopped is returned after Run has ended.
var errStopped = errors.New("the coordinator has stopped")

func newLoop() loop {
	return loop{commands: make(chan func(context.Context)), stopped: make(chan struct{})}
}

// do runs f in the owner's goroutine and waits for it. Work that f starts must use the context of Run, which f
// receives, and not the caller's.
func (l *loop) do(ctx context.Context, f func(run context.Context)) error {
	done := make(chan struct{})
	select {
	case l.commands <- func(run context.Context) { f(run); close(done) }:
		<-done
		return nil
	case <-l.stopped:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// nextChange returns a channel that is closed when changed is called next.
func (l *loop) nextChange(ctx context.Context) (<-chan struct{}, error) {
	ch := make(chan struct{})
	err := l.do(ctx, func(context.Context) { l.wake = append(l.wake, ch) })
	return ch, err
}

// changed wakes those who wait for a change. Only the owner calls it.
func (l *loop) changed() {
	for _, ch := range l.wake {
		close(ch)
	}
	l.wake = nil
}

// until blocks until the condition is true. It evaluates the condition in the owner's goroutine at each change.
func (l *loop) until(ctx context.Context, condition func() bool) error {
	for {
		changed, err := l.nextChange(ctx)
		if err != nil {
			return err
		}
		var is bool
		if err := l.do(ctx, func(context.Context) { is = condition() }); err != nil || is {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
