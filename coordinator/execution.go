package coordinator

import (
	"context"
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/actions"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// execution carries one action out, in a goroutine of its own. It reads and changes the coordinator's state only in the
// goroutine of Run, see loop.do.
type execution struct {
	c      *Coordinator
	index  int
	plan   *plan.Action
	action actions.Action

	waits context.Context // ends with the plan
	does  context.Context // ends when the end of the plan no longer waits for the action
}

// carryOut blocks until the action is complete.
func (x *execution) carryOut() completion {
	done := completion{index: x.index}
	if !sleep(x.waits, x.plan.WaitBefore) {
		done.err = errEnded
		return done
	}
	// What is carried out, such as a kill, takes real time, which the run's processes do not show.
	release := clock.Hold(x.does)
	defer release()
	began := clock.Now(x.waits)
	if done.err = x.begin(); done.err != nil {
		return done
	}
	done.began = began
	if done.err = x.aim(); done.err == nil {
		done.note, done.err = x.action.Do(x.does)
	}
	if err := x.c.melt(x.does, x.index, done.err != nil, false); done.err == nil {
		done.err = err
	}
	release()
	if resume := plan.EffectOf[*plan.Resume](x.plan); resume != nil && resume.OneByOne && done.err == nil {
		done.note, done.err = x.resumeOneByOne()
	}
	if done.err != nil {
		if x.does.Err() != nil {
			done.err = errEnded
		}
		return done
	}
	if !sleep(x.waits, x.plan.WaitAfter) {
		done.err = errEnded
	}
	return done
}

// begin sends the machine the event that the action has begun, and returns when its pause or resume is in force. After
// the plan's end it returns errEnded.
func (x *execution) begin() error {
	var inForce <-chan struct{}
	ended := false
	if err := x.c.loop.do(x.waits, func(ctx context.Context) {
		if ended = x.c.machine.Ended(); !ended {
			inForce = x.c.work.begin(x.index, x.plan)
			x.c.step(ctx, record.Event{Began: &x.index})
		}
	}); err != nil || ended {
		return errEnded
	}
	if inForce == nil {
		return nil
	}
	select {
	case <-inForce:
		return nil
	case <-x.waits.Done():
		return errEnded
	}
}

// aim says to an action on one of several processes which one it is. The process counts as frozen before it is stopped,
// so that the coordinator does not begin to wait for it.
func (x *execution) aim() error {
	aimed, ok := x.action.(actions.Aimed)
	if !ok {
		return nil
	}
	return x.c.loop.do(x.does, func(context.Context) {
		pid := 0
		live := x.c.config.Monitor.Sessions()
		if s := x.c.freezer.aimedAt(x.index, freezes(x.plan), &x.c.elections, live); s != nil {
			pid = s.PID
			x.c.freezer.freeze(x.index, s, x.c.clock.Now())
		}
		aimed.Aim(pid)
	})
}

// How long the controllers must do nothing until the next held observation goes on, how long that is waited for, and
// how long all of them may take.
const (
	stepQuiet = 200 * time.Millisecond
	stepMost  = 5 * time.Second
	stepsMost = time.Minute
)

// resumeOneByOne ends the action's pauses, see plan.Resume: one observation after the other goes on, the next
// when the controllers are idle. A note says that it took too long. After the plan's end it returns errEnded.
func (x *execution) resumeOneByOne() (note string, err error) {
	began := clock.Now(x.waits)
	for n := 0; ; n++ {
		late := clock.Now(x.waits).Sub(began) > stepsMost
		ended, more := false, false
		if err := x.c.loop.do(x.waits, func(ctx context.Context) {
			if ended = x.c.machine.Ended(); ended {
				return
			}
			x.c.settling.stir(x.c.clock.Now()) // the controllers have not received it yet
			x.c.step(ctx, record.Event{Resumed: &record.Resumed{Action: x.index, All: late}})
			more = x.c.machine.Resuming(x.index)
		}); err != nil || ended {
			return "", errEnded
		}
		switch {
		case late:
			return fmt.Sprintf("let %d go one by one, and after %s all that were left", n, stepsMost), nil
		case !more:
			return "", nil
		}
		x.c.untilQuiet(x.waits, stepQuiet, stepMost)
	}
}

// sleep waits for d and returns true, or false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true // begin checks whether the plan has ended
	}
	return clock.Sleep(ctx, d) == nil
}
