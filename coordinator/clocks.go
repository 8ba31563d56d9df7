package coordinator

import (
	"context"
	"errors"
)

// Jump calls a function that lets the clock jump ahead. Nobody takes the time that is skipped for one in which the
// controllers were quiet.
func (c *Coordinator) Jump(ctx context.Context, jump func() error) error {
	var failed error
	err := c.do(ctx, func(context.Context) {
		failed = jump()
		c.last = c.clock.Now()
		c.stir()
	})
	return errors.Join(err, failed)
}

// jumps reports whether an action that lets the clock jump is under way: how long something was quiet is known again
// only when it is complete.
func (w *work) jumps() bool { return w.jumping > 0 }
