package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
)

// Poll calls f until it returns nil, where nothing can be watched. If ctx ends first, the error has ctx's cause and f's
// last error. It waits by the context's clock.
func Poll(ctx context.Context, interval time.Duration, f func(context.Context) error) error {
	tick := clock.NewTicker(ctx, interval)
	defer tick.Stop()
	var last error
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // what f says when its context ends has no information
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), last)
		}
	}
}
