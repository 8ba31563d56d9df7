package coordinator

import (
	"context"
	"errors"

	"github.com/trommel-dev/trommel/coordinator/machine"
	"github.com/trommel-dev/trommel/record"
)

// timeouts are those of the plan's triggers. The goroutine of Run owns them.
type timeouts struct {
	elapsed chan record.Timeout
	early   bool // the plan has begun before its workload: timeouts do not run yet
	waiting []machine.StartTimer
}

// begin returns the timeouts that run from now on, when the workload begins.
func (t *timeouts) begin() []machine.StartTimer {
	waiting := t.waiting
	t.early, t.waiting = false, nil
	return waiting
}

func (c *Coordinator) startTimer(ctx context.Context, t machine.StartTimer) {
	if c.timeouts.early {
		c.timeouts.waiting = append(c.timeouts.waiting, t)
		return
	}
	condition := c.machine.Condition(t.Action, t.Node)
	c.clock.AfterFunc(condition.Timeout, func() {
		c.awaitIdle(ctx, condition.Extend)
		select {
		case c.timeouts.elapsed <- record.Timeout{Action: t.Action, Node: t.Node}:
		case <-ctx.Done():
		}
	})
}

// Jump calls a function that lets the clock jump ahead. The time that is skipped does not count as one in which the
// controllers were quiet.
func (c *Coordinator) Jump(ctx context.Context, jump func() error) error {
	var failed error
	err := c.loop.do(ctx, func(context.Context) {
		failed = jump()
		c.progress.last = c.clock.Now()
		c.settling.stir(c.clock.Now())
	})
	return errors.Join(err, failed)
}
