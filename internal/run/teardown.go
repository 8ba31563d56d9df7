package run

import (
	"context"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
)

// teardownTimeout bounds undo and each part of the teardown; both also run when the run's context has ended. On a busy
// machine a container engine takes half a minute to remove a node.
const teardownTimeout = time.Minute

// teardown is what has to be done when a run ends.
type teardown struct{ undo []func(context.Context) error }

// later is how a part that has set something up has it torn down.
type later func(undo func(context.Context) error)

func (t *teardown) later(f func(context.Context) error) { t.undo = append(t.undo, f) }

// run tears down in reverse order, also if something fails, which it reports to failed. Each step has a timeout of its
// own.
func (t *teardown) run(ctx context.Context, failed func(error)) {
	release := clock.Hold(ctx) // processes are stopped and files removed, which takes the machine's time
	defer release()
	for _, f := range slices.Backward(t.undo) {
		if err := within(ctx, teardownTimeout, f); err != nil {
			failed(err)
		}
	}
}

func within(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	ctx, cancel := clock.WithTimeout(ctx, timeout)
	defer cancel()
	return f(ctx)
}
