package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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

	done      chan completion
	lapsed    chan int // lasting actions whose effect has ended
	fires     map[int]*record.Action
	switching map[int]chan struct{} // by action: closed when its pause or resume is in force
	underway  int                   // actions that have fired and whose completion has not been judged
	completed int                   // carried out, including waitBefore and waitAfter
	jumping   int                   // actions under way that let the clock jump
	begun     []int                 // actions that have begun and are not undone, in order

	running sync.WaitGroup
}

func newWork() work {
	return work{
		done: make(chan completion), lapsed: make(chan int),
		fires: map[int]*record.Action{}, switching: map[int]chan struct{}{},
	}
}

func (w *work) open(ctx context.Context) {
	w.waits, w.cancelWaits = context.WithCancel(ctx)
	w.does, w.cancelDoes = context.WithCancel(ctx)
}

// jumps reports whether an action that lets the clock jump is under way: how long something was quiet is known again
// only when it is complete.
func (w *work) jumps() bool { return w.jumping > 0 }

// note adds a remark about an action that is not an error, such as that it changed nothing. The action has fired and is
// not complete.
func (w *work) note(action int, text string) {
	r := w.fires[action]
	if r.Note != "" {
		text = r.Note + "; " + text
	}
	r.Note = text
}

// fire records that an action has fired.
func (w *work) fire(r *record.Action) {
	w.fires[r.Index] = r
	w.underway++
}

// begin records that an action is being carried out. The channel is closed when its pause or resume is in force.
// Nil: it has none.
func (w *work) begin(index int, a *plan.Action) <-chan struct{} {
	w.begun = append(w.begun, index)
	if plan.Has[*plan.Advance](a) {
		w.jumping++
	}
	if !a.Switches() {
		return nil
	}
	ready := make(chan struct{})
	w.switching[index] = ready
	return ready
}

// inForce records that the pause or resume of an action is in force.
func (w *work) inForce(action int) {
	if ready := w.switching[action]; ready != nil {
		close(ready)
		delete(w.switching, action)
	}
}

// undone records that an action is undone.
func (w *work) undone(action int) {
	w.begun = slices.DeleteFunc(w.begun, func(b int) bool { return b == action })
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
	r := &record.Action{
		Index: f.Action, Type: string(a.Type), Target: a.Object(), FiredBy: f.FiredBy, Cause: cause,
		Fired: c.clock.Now(),
	}
	if u := plan.EffectOf[*plan.Upgrading](a); u != nil {
		r.Upgrade = u.Name()
	}
	if pointed, ok := c.actions[f.Action].(actions.Pointed); ok {
		if object := pointed.PointTo(f.About); object != "" {
			r.Target = object
		}
	}
	c.work.fire(r)
	if e, held := c.holds.event(f.FiredBy); held && e.Session.Identity == freezes(a) {
		c.freezer.ask(f.Action, e.Session)
	}
	c.config.Watcher.Fired(f.Action, a, cause)
	c.loop.changed()
	x := &execution{
		c: c, index: f.Action, plan: a, action: c.actions[f.Action], waits: c.work.waits, does: c.work.does,
	}
	c.work.running.Go(func() {
		done := x.carryOut()
		select {
		case c.work.done <- done:
		case <-ctx.Done():
		}
	})
}

// complete handles that an action is complete.
func (c *Coordinator) complete(ctx context.Context, done completion) {
	a := &c.config.Plan.Actions[done.index]
	r := c.work.fires[done.index]
	r.Began, r.Done = done.began, c.clock.Now()
	c.work.underway--
	if plan.Has[*plan.Advance](a) && !done.began.IsZero() {
		c.work.jumping--
		c.settling.stir(c.clock.Now()) // what was due in that time happens now
	}
	if done.note != "" {
		c.work.note(done.index, done.note)
	}
	err := done.err
	switch {
	case errors.Is(err, errEnded):
		text := "was cut short by the end of the plan"
		if done.began.IsZero() {
			text = "did not begin before the plan ended"
		}
		c.work.note(done.index, text)
		err = nil
	case err != nil:
		r.Error = err.Error()
		c.findings.add(record.Finding{
			Severity: record.SeverityInconclusive, Judge: record.JudgeAction, Subject: r.Target, Time: r.Done,
			Title: fmt.Sprintf("%s failed: %v", r, err),
		})
		fallthrough
	default:
		c.work.completed++
	}
	c.recording.action(*r)
	if r.Note != "" {
		c.config.Watcher.Info(fmt.Sprintf("note: %s %s", r, r.Note))
	}
	if !errors.Is(done.err, errEnded) {
		c.config.Watcher.Completed(done.index, a, err)
		c.step(ctx, record.Event{Completed: &done.index})
	}
	c.loop.changed()
	if lasting, ok := c.actions[done.index].(actions.Lasting); ok && done.err == nil {
		c.work.running.Go(func() {
			select {
			case <-lasting.Ended():
			case <-ctx.Done():
				return
			}
			select {
			case c.work.lapsed <- done.index:
			case <-ctx.Done():
			}
		})
	}
}

// lapse handles that an action's lasting effect has ended before it was undone.
func (c *Coordinator) lapse(ctx context.Context, i int) {
	c.config.Watcher.Info(fmt.Sprintf("%s: its effect has ended", c.machine.Name(i)))
	c.step(ctx, record.Event{Lapsed: &i})
	c.loop.changed()
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
	if err := c.loop.do(context.WithoutCancel(ctx), func(ctx context.Context) {
		if c.machine.Holding() {
			c.settling.stir(c.clock.Now()) // checked before the end, which releases everything
		}
		if c.began && !c.machine.Ended() {
			c.ordering.end()
			c.step(ctx, record.Event{End: true})
		}
		c.work.cancelWaits()
		c.push(ctx)
		c.loop.changed()
	}); err != nil {
		return err
	}
	idle := func() bool { return c.work.underway == 0 }
	err := c.loop.until(ctx, idle)
	if ctx.Err() == nil {
		return err
	}
	if err := c.loop.do(context.WithoutCancel(ctx), func(context.Context) { c.work.cancelDoes() }); err != nil {
		return err
	}
	return c.loop.until(context.WithoutCancel(ctx), idle)
}

// Undo undoes, in reverse order, all actions that have begun, including those that were cut short or failed. The plan
// must have ended. After an error it goes on with the others; Undo may be called again to retry those that failed.
func (c *Coordinator) Undo(ctx context.Context) error {
	release := clock.Hold(ctx) // as while they are carried out
	defer release()
	var begun []int
	if err := c.loop.do(ctx, func(context.Context) { begun = slices.Clone(c.work.begun) }); err != nil {
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
		if err := c.loop.do(context.WithoutCancel(ctx), func(context.Context) { c.work.undone(i) }); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
