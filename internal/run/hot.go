package run

import (
	"context"
	"errors"
)

// errTooHot ends the waiting in a run without faults; see untilTooHot.
var errTooHot = errors.New("a controller changes one object without end")

// untilTooHot returns a context that also ends when a controller changes one object so often that nothing else can be
// expected of it. That is only so in runs from which a workload is learned: what others wait for may be a bug of the
// plan, or excuse one. The caller calls end when it waits no longer.
func (r *runner) untilTooHot(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	end = func() { cancel(nil) }
	if r.events.overheated == nil {
		return ctx, end
	}
	go func() {
		select {
		case <-r.events.overheated:
			cancel(errTooHot)
		case <-ctx.Done():
		}
	}()
	return ctx, end
}

// cooled reports whether an error only says that a context of untilTooHot has ended early.
func cooled(ctx context.Context, err error) bool {
	return errors.Is(context.Cause(ctx), errTooHot) && (errors.Is(err, errTooHot) || errors.Is(err, ctx.Err()))
}
