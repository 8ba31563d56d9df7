package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/actions"
	"github.com/trommel-dev/trommel/coordinator/machine"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// work tracks the actions that have fired. The goroutine of Run owns it.
type work struct {
	waits, does             context.Context // for waiting before and after an action; for carrying it out
	cancelWaits, cancelDoes context.CancelFunc

	underway  int   // actions that have fired and whose completion has not been judged
	completed int   // carried out, including waitBefore and waitAfter
	jumping   int   // actions under way that let the clock jump
	begun     []int // actions that have begun and are not undone, in order
}

func (w *work) open(ctx context.Context) {
	w.waits, w.cancelWaits = context.WithCancel(ctx)
	w.does, w.cancelDoes = context.WithCancel(ctx)
}

// completion is the result of an action.
type completion struct {
	index int
	began time.Time // zero: it did not begin
	note  string    // see actions.Action
	err   error
}

// errEnded is the result of an action that the end of the plan has interrupted.
var errEnded = errors.New("the plan has ended")

// fire carries an action out in its own goroutine.
func (c *Coordinator) fire(ctx context.Context, f machine.Fire, cause string) {
	a := &c.config.Plan.Actions[f.Action]
	c.fires[f.Action] = &record.Action{
		Index: f.Action, Type: string(a.Type), Target: a.Object(), FiredBy: f.FiredBy, Cause: cause,
		Fired: c.clock.Now(),
	}
	if u := plan.EffectOf[*plan.Upgrading](a); u != nil {
		c.fires[f.Action].Upgrade = u.Name()
	}
	if pointed, ok := c.actions[f.Action].(actions.Pointed); ok {
		if object := pointed.PointTo(f.About); object != "" {
			c.fires[f.Action].Target = object
		}
	}
	c.work.underway++
	c.asks(f)
	c.config.Watcher.Fired(f.Action, a, cause)
	c.changed()
	waits, does := c.work.waits, c.work.does
	c.running.Go(func() {
		done := c.carry(waits, does, f.Action)
		select {
		case c.completed <- done:
		case <-ctx.Done():
		}
	})
}

// carry carries an action out and blocks until it is done. Waits ends with the plan; does ends when the end of the plan
// no longer waits for the action.
func (c *Coordinator) carry(waits, does context.Context, i int) completion {
	a := &c.config.Plan.Actions[i]
	done := completion{index: i}
	if !sleep(waits, a.WaitBefore) {
		done.err = errEnded
		return done
	}
	// What is carried out, such as a kill, takes real time, which the run's processes do not show.
	release := clock.Hold(does)
	defer release()
	began := clock.Now(waits)
	if done.err = c.begin(waits, i); done.err != nil {
		return done
	}
	done.began = began
	if done.err = c.aim(does, i); done.err == nil {
		done.note, done.err = c.actions[i].Do(does)
	}
	if err := c.melt(does, i, done.err != nil, false); done.err == nil {
		done.err = err
	}
	release()
	if resume := plan.EffectOf[*plan.Resume](a); resume != nil && resume.OneByOne && done.err == nil {
		done.note, done.err = c.resumeOneByOne(waits, i)
	}
	if done.err != nil {
		if does.Err() != nil {
			done.err = errEnded
		}
		return done
	}
	if !sleep(waits, a.WaitAfter) {
		done.err = errEnded
	}
	return done
}

// begin sends the machine the event that the action has begun, and returns when its pause or resume is in force. After
// the plan's end it returns errEnded.
func (c *Coordinator) begin(ctx context.Context, i int) error {
	var inForce chan struct{}
	ended := false
	if err := c.do(ctx, func(ctx context.Context) {
		if ended = c.machine.Ended(); ended {
			return
		}
		if c.config.Plan.Actions[i].Switches() {
			inForce = make(chan struct{})
			c.switching[i] = inForce
		}
		c.work.begun = append(c.work.begun, i)
		if plan.Has[*plan.Advance](&c.config.Plan.Actions[i]) {
			c.work.jumping++
		}
		c.step(ctx, record.Event{Began: &i})
	}); err != nil || ended {
		return errEnded
	}
	if inForce == nil {
		return nil
	}
	select {
	case <-inForce:
		return nil
	case <-ctx.Done():
		return errEnded
	}
}

// How long the controllers must do nothing until the next held observation goes on, how long that is waited for, and
// how long all of them may take.
const (
	stepQuiet = 200 * time.Millisecond
	stepMost  = 5 * time.Second
	stepsMost = time.Minute
)

// resumeOneByOne ends an action's pauses, see plan.Resume: one observation after the other goes on, the next
// when the controllers are idle. A note says that it took too long. After the plan's end it returns errEnded.
func (c *Coordinator) resumeOneByOne(ctx context.Context, i int) (note string, err error) {
	began := clock.Now(ctx)
	for n := 0; ; n++ {
		late := clock.Now(ctx).Sub(began) > stepsMost
		ended, more := false, false
		if err := c.do(ctx, func(ctx context.Context) {
			if ended = c.machine.Ended(); ended {
				return
			}
			c.stir() // the controllers have not heard of it yet
			c.step(ctx, record.Event{Resumed: &record.Resumed{Action: i, All: late}})
			more = c.machine.Resuming(i)
		}); err != nil || ended {
			return "", errEnded
		}
		switch {
		case late:
			return fmt.Sprintf("let %d go one by one, and after %s all that were left", n, stepsMost), nil
		case !more:
			return "", nil
		}
		c.untilQuiet(ctx, stepQuiet, stepMost)
	}
}

// sleep waits for d and returns true, or false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true // begin checks whether the plan has ended
	}
	return clock.Sleep(ctx, d) == nil
}

func (c *Coordinator) complete(ctx context.Context, done completion) {
	a := &c.config.Plan.Actions[done.index]
	r := c.fires[done.index]
	r.Began, r.Done = done.began, c.clock.Now()
	c.work.underway--
	if plan.Has[*plan.Advance](a) && !done.began.IsZero() {
		c.work.jumping--
		c.stir() // what was due in that time happens now
	}
	if done.note != "" {
		c.note(done.index, done.note)
	}
	err := done.err
	switch {
	case errors.Is(err, errEnded):
		text := "was cut short by the end of the plan"
		if done.began.IsZero() {
			text = "did not begin before the plan ended"
		}
		c.note(done.index, text)
		err = nil
	case err != nil:
		r.Error = err.Error()
		c.findings = append(c.findings, record.Finding{
			Severity: record.SeverityInconclusive, Judge: record.JudgeAction, Subject: r.Target, Time: r.Done,
			Title: fmt.Sprintf("%s failed: %v", r, err),
		})
		fallthrough
	default:
		c.work.completed++
	}
	if recordErr := c.config.Recorder.Action(*r); recordErr != nil && c.err == nil {
		c.err = recordErr
	}
	if r.Note != "" {
		c.config.Watcher.Info(fmt.Sprintf("note: %s %s", r, r.Note))
	}
	if !errors.Is(done.err, errEnded) {
		c.config.Watcher.Completed(done.index, a, err)
		c.step(ctx, record.Event{Completed: &done.index})
	}
	c.changed()
	if lasting, ok := c.actions[done.index].(actions.Lasting); ok && done.err == nil {
		c.running.Go(func() {
			select {
			case <-lasting.Ended():
			case <-ctx.Done():
				return
			}
			select {
			case c.lapsed <- done.index:
			case <-ctx.Done():
			}
		})
	}
}

// lapse handles that an action's lasting effect has ended before it was undone.
func (c *Coordinator) lapse(ctx context.Context, i int) {
	c.config.Watcher.Info(fmt.Sprintf("%s: its effect has ended", c.machine.Name(i)))
	c.step(ctx, record.Event{Lapsed: &i})
	c.changed()
}

// lasting returns the status of each action whose effect still lasts.
func (c *Coordinator) lasting() []string {
	var all []string
	for _, i := range c.work.begun {
		lasting, ok := c.actions[i].(actions.Lasting)
		if !ok {
			continue
		}
		select {
		case <-lasting.Ended():
		default:
			all = append(all, c.machine.Name(i)+": "+lasting.Status())
		}
	}
	return all
}

// End ends the plan: every pause ends, everything is released, no further action is fired or begun. Processes report
// nothing more. An action in its waitBefore or waitAfter is cut short. End waits for actions that are being carried
// out, and cancels them when ctx ends. It may be called again.
func (c *Coordinator) End(ctx context.Context) error {
	// The plan must end even if ctx has already ended.
	if err := c.do(context.WithoutCancel(ctx), func(ctx context.Context) {
		if c.machine.Holding() {
			c.stir() // checked before the end, which releases everything
		}
		if c.began && !c.machine.Ended() {
			c.step(ctx, record.Event{End: true})
		}
		c.work.cancelWaits()
		c.push(ctx)
		c.changed()
	}); err != nil {
		return err
	}
	idle := func() bool { return c.work.underway == 0 }
	err := c.until(ctx, idle)
	if ctx.Err() == nil {
		return err
	}
	if err := c.do(context.WithoutCancel(ctx), func(context.Context) { c.work.cancelDoes() }); err != nil {
		return err
	}
	return c.until(context.WithoutCancel(ctx), idle)
}

// Undo undoes, in reverse order, all actions that have begun, including those that were cut short or failed. The plan
// must have ended. After an error it goes on with the others; Undo may be called again to retry those that failed.
func (c *Coordinator) Undo(ctx context.Context) error {
	release := clock.Hold(ctx) // as while they are carried out
	defer release()
	var begun []int
	if err := c.do(ctx, func(context.Context) { begun = slices.Clone(c.work.begun) }); err != nil {
		return err
	}
	var errs []error
	for _, i := range slices.Backward(begun) {
		err := c.actions[i].Undo(ctx)
		if err == nil {
			err = c.melt(ctx, i, false, true)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", record.ActionName(i, c.config.Plan.Actions[i].String()), err))
			continue
		}
		if err := c.do(context.WithoutCancel(ctx), func(context.Context) {
			c.work.begun = slices.DeleteFunc(c.work.begun, func(b int) bool { return b == i })
		}); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
