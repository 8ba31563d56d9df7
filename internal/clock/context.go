package clock

import (
	"context"
	"sync/atomic"
	"time"
)

// Now is the time by the context's clock.
func Now(ctx context.Context) time.Time { return Of(ctx).Now() }

// Since is the time that has passed since t by the context's clock.
func Since(ctx context.Context, t time.Time) time.Duration { return Of(ctx).Since(t) }

// Until is the time that will pass until t by the context's clock.
func Until(ctx context.Context, t time.Time) time.Duration { return Of(ctx).Until(t) }

type dueKey struct{}

// Due returns a context for what is due at a time of the run, such as the renewal of a token that expires then: if the
// clock jumps past that time, it is due at once. Everything else that waits, such as a timeout, does not count the time
// that a jump skips, see [Clock.Jump].
func Due(ctx context.Context) context.Context { return context.WithValue(ctx, dueKey{}, true) }

func isDue(ctx context.Context) bool { return ctx.Value(dueKey{}) != nil }

// NewTimer is time.NewTimer by the context's clock.
func NewTimer(ctx context.Context, d time.Duration) *Timer { return Of(ctx).newTimer(d, isDue(ctx)) }

// NewTicker is time.NewTicker by the context's clock.
func NewTicker(ctx context.Context, d time.Duration) *Ticker { return Of(ctx).NewTicker(d) }

// AfterFunc is time.AfterFunc by the context's clock.
func AfterFunc(ctx context.Context, d time.Duration, f func()) *Timer {
	return Of(ctx).afterFunc(d, isDue(ctx), f)
}

// Hold keeps the context's clock from being advanced until release is called; further calls of release do nothing.
func Hold(ctx context.Context) (release func()) { return Of(ctx).Hold() }

// Sleep waits, and returns the cause if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := NewTimer(ctx, d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// WithTimeout is context.WithTimeout by the context's clock.
func WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return WithTimeoutCause(ctx, d, nil)
}

// WithTimeoutCause is context.WithTimeoutCause by the context's clock.
func WithTimeoutCause(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	if Of(ctx) == nil {
		return context.WithTimeoutCause(ctx, d, cause)
	}
	return WithDeadlineCause(ctx, Now(ctx).Add(d), cause)
}

// WithDeadlineCause is context.WithDeadlineCause by the context's clock: t is a time of that clock.
func WithDeadlineCause(ctx context.Context, t time.Time, cause error) (context.Context, context.CancelFunc) {
	c := Of(ctx)
	if c == nil {
		return context.WithDeadlineCause(ctx, t, cause)
	}
	if cause == nil {
		cause = context.DeadlineExceeded
	}
	inner, cancel := context.WithCancelCause(ctx)
	d := &deadline{Context: inner, done: make(chan struct{})}
	timer := c.AfterFunc(c.Until(t), func() {
		d.expired.Store(inner.Err() == nil)
		cancel(cause)
	})
	context.AfterFunc(inner, func() {
		timer.Stop()
		close(d.done)
	})
	return d, func() { cancel(context.Canceled) }
}

// deadline is a context that ends at a time of a clock. Its Done is closed after the inner context's, and its Err
// follows Done, so that the contexts made from it take their error from here: the inner one would say Canceled. Its
// Deadline is that of the context that it was made from: others compare it with the machine's time, as net.Dialer does,
// which would connect to nothing any more if the clock is behind that.
type deadline struct {
	context.Context
	done    chan struct{}
	expired atomic.Bool // by its own deadline
}

func (d *deadline) Done() <-chan struct{} { return d.done }

func (d *deadline) Err() error {
	select {
	case <-d.done:
	default:
		return nil
	}
	if d.expired.Load() {
		return context.DeadlineExceeded
	}
	return d.Context.Err()
}
