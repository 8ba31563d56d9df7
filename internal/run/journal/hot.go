package journal

import (
	"context"
	"errors"
)

// errTooHot ends the waiting in a run without faults; see UntilTooHot.
var errTooHot = errors.New("a controller changes one object without end")

// UntilTooHot returns a context that also ends when a controller changes one object so often that nothing else can be
// expected of it. That is only so in runs from which a workload is learned: what others wait for may be a bug of the
// plan, or excuse one. The caller calls end when it waits no longer.
func (e *Events) UntilTooHot(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	end = func() { cancel(nil) }
	if e.Overheated == nil {
		return ctx, end
	}
	go func() {
		select {
		case <-e.Overheated:
			cancel(errTooHot)
		case <-ctx.Done():
		}
	}()
	return ctx, end
}

// Cooled reports whether an error only says that a context of UntilTooHot has ended early.
func Cooled(ctx context.Context, err error) bool {
	return errors.Is(context.Cause(ctx), errTooHot) && (errors.Is(err, errTooHot) || errors.Is(err, ctx.Err()))
}
