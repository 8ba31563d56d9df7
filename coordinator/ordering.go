package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/trommel-dev/trommel/coordinator/machine"
	"github.com/trommel-dev/trommel/coordinator/order"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Ordering orders the steps of a run whose plan has a schedule. Without a schedule its methods do nothing. They may be
// called concurrently.
type Ordering struct {
	run *Coordinator

	// Owned by the goroutine of Run; the clock's keeper only uses rests and offers.
	chooser  *order.Chooser // nil: the plan has no schedule
	on       bool
	began    time.Time
	draining bool
	diverged string         // why the run could not follow the schedule; empty: it did
	made     int            // choices
	came     map[string]int // by stream: how many steps have come
	held     map[int]step   // by Seq: what the machine holds for the schedule
	turns    []turn         // steps that are not observations, oldest first
	sessions map[uint64]string
	passing  *clock.Timer // while a choice lets time pass; nil: none does

	rests  chan struct{} // the keeper says that the run is at rest; capacity 1
	offers *atomic.Bool  // something waits for a choice
	// postponed is until when a choice last let time pass, in nanoseconds of Unix time; 0: none did.
	postponed *atomic.Int64
}

// step is one that waits for its choice.
type step struct {
	order.Step
	since time.Time
}

// turn is a step that waits for [Ordering.AwaitTurn] to return.
type turn struct {
	step
	goes chan struct{}
}

// Ordering returns what orders the run.
func (c *Coordinator) Ordering() *Ordering { return &c.ordering }

// use takes the schedule of the plan; nil: it has none.
func (o *Ordering) use(c *Coordinator, s *plan.Schedule) (err error) {
	o.run = c
	if s == nil {
		return nil
	}
	o.chooser, err = order.New(s)
	o.came, o.held, o.sessions = map[string]int{}, map[int]step{}, map[uint64]string{}
	o.rests, o.offers, o.postponed = make(chan struct{}, 1), new(atomic.Bool), new(atomic.Int64)
	return err
}

// passed returns a channel that receives when time has passed for long enough; nil: no choice lets it pass.
func (o *Ordering) passed() <-chan time.Time {
	if o.passing == nil {
		return nil
	}
	return o.passing.C
}

// stopTime ends that time passes, and notes what waits.
func (o *Ordering) stopTime() {
	o.stop(o.run.clock.Now())
	o.look()
}

// stop ends that time passes.
func (o *Ordering) stop(now time.Time) {
	if o.passing != nil {
		o.passing.Stop()
		o.passing = nil
		o.postponed.Store(now.UnixNano())
	}
}

// Postponed is until when the schedule last let time pass while something was held; zero: it never did. What waits for
// a controller cannot count the time before.
func (o *Ordering) Postponed() time.Time {
	if p := o.postponed; p != nil && p.Load() != 0 {
		return time.Unix(0, p.Load())
	}
	return time.Time{}
}

// atRest is called by the clock's keeper. It reports whether a step goes on.
func (o *Ordering) atRest() bool {
	if !o.offers.Load() {
		return false
	}
	select {
	case o.rests <- struct{}{}:
	default:
	}
	return true
}

// new returns a step that has come just now. It is the next one of its stream.
func (o *Ordering) new(stream, what string, now time.Time) step {
	o.came[stream]++
	return step{order.Step{Stream: stream, Number: o.came[stream], Since: o.made + 1, What: what}, now}
}

// Begin begins to order the run. It returns when the controllers report what they are about to do.
func (o *Ordering) Begin(ctx context.Context) error {
	if o.chooser == nil {
		return nil
	}
	c := o.run
	return c.loop.do(ctx, func(ctx context.Context) {
		if c.machine.Ended() {
			return
		}
		o.on, o.began = true, c.clock.Now()
		c.step(ctx, record.Event{Ordered: true})
		c.push(ctx)
		c.clock.Order(o.atRest)
	})
}

// Drain lets no time pass any more while something waits for a choice: what waits for rest then waits for all steps.
func (o *Ordering) Drain(ctx context.Context) error {
	if o.chooser == nil {
		return nil
	}
	return o.run.loop.do(ctx, func(context.Context) {
		o.draining = true
		o.stopTime()
	})
}

// AwaitTurn waits until a step that is not an observation goes on, or ctx ends. What is the step in words. If the run
// is not ordered, it returns at once.
func (o *Ordering) AwaitTurn(ctx context.Context, stream, what string) {
	goes := make(chan struct{})
	if o.run.loop.do(ctx, func(context.Context) {
		if !o.on {
			close(goes)
			return
		}
		o.turns = append(o.turns, turn{o.new(stream, what, o.run.clock.Now()), goes})
		o.stopTime()
	}) != nil {
		return
	}
	select {
	case <-goes:
	case <-ctx.Done():
	}
}

// look notes what waits for a choice now. It is called after each event.
func (o *Ordering) look() {
	if !o.on {
		return
	}
	held := map[int]step{}
	for _, e := range o.run.machine.Held().Ordered() {
		s, known := o.held[e.Seq]
		if !known {
			s = o.new(o.streamOf(e.Observation), machine.DescribeHeld(e.Observation), e.Time)
			o.stop(e.Time)
		}
		held[e.Seq] = s
	}
	o.held = held
	o.offers.Store(o.passing == nil && len(o.held)+len(o.turns) > 0)
}

// choose lets a step go on, or time pass.
func (o *Ordering) choose(ctx context.Context) {
	c := o.run
	if !o.on || !o.offers.Load() {
		return
	}
	now := c.clock.Now()
	m := order.Moment{Number: o.made + 1, Draining: o.draining, Elapsed: now.Sub(o.began)}
	var events []int // by step: the Seq of its observation, or -1-i for a turn
	first := map[string]int{}
	add := func(s step, event int) {
		s.Waited = now.Sub(s.since)
		if i, known := first[s.Stream]; !known {
			first[s.Stream] = len(events)
			m.Steps, events = append(m.Steps, s.Step), append(events, event)
		} else if s.Number < m.Steps[i].Number {
			m.Steps[i], events[i] = s.Step, event
		}
	}
	for seq, s := range o.held {
		add(s, seq)
	}
	for i, t := range o.turns {
		add(t.step, -1-i)
	}
	i, diverged := o.chooser.Choose(m)
	o.made++
	choice := record.Choice{Number: o.made, Enabled: order.Streams(m.Steps), Diverged: diverged}
	if diverged != "" {
		o.diverged = diverged
		c.findings.add(record.Finding{
			Severity: record.SeverityInconclusive, Judge: record.JudgeOrder, Time: now,
			Title: "the run did not follow its schedule: " + diverged,
		})
	}
	if i == order.Time {
		choice.Stream = record.TimeStream
		o.passing = c.clock.NewTimer(order.Quantum)
		c.step(ctx, record.Event{Choice: &choice})
		return
	}
	choice.Stream, choice.Step, choice.What = m.Steps[i].Stream, m.Steps[i].Number, m.Steps[i].What
	if events[i] < 0 {
		n := -1 - events[i]
		goes := o.turns[n].goes
		o.turns = append(o.turns[:n:n], o.turns[n+1:]...)
		c.step(ctx, record.Event{Choice: &choice})
		close(goes)
		return
	}
	choice.Event = events[i]
	c.step(ctx, record.Event{Choice: &choice})
}

// end ends that the run is ordered; the machine then lets everything go on.
func (o *Ordering) end() {
	c := o.run
	if !o.on {
		return
	}
	o.on = false
	o.offers.Store(false)
	o.stop(c.clock.Now())
	c.clock.Order(nil)
	for _, t := range o.turns {
		close(t.goes)
	}
	o.turns = nil
	var held []order.Step
	for _, s := range o.held {
		held = append(held, s.Step)
	}
	for _, text := range o.chooser.Missing(held...) {
		title := "the run did not follow its schedule: " + text
		c.findings.addOnce(record.Finding{
			Severity: record.SeverityInconclusive, Judge: record.JudgeOrder, Time: c.clock.Now(), Title: title,
		})
	}
}

// streamOf names the stream of an observation: the deliveries of one type to one controller, the calls of one reconcile
// worker for one request, or calls outside of reconciles about one object. A second process of a controller has streams
// of its own.
func (o *Ordering) streamOf(r *record.Observation) string {
	by := o.process(r)
	if r.Point == wire.ControllerRecv || r.Point == wire.APIServerRecv {
		return fmt.Sprintf("%s receives %s", by, withGroup(r.Kind, r.Group))
	}
	if r.ReconcileID != "" {
		reconciler := cmp.Or(r.Reconciler, path.Base(r.ReconcilerType))
		return fmt.Sprintf("%s reconciles %s (%s)", by, r.Request, reconciler)
	}
	return fmt.Sprintf("%s calls %s/%s/%s", by, withGroup(r.KindOrResource(), r.Group), r.Namespace, r.Name)
}

// process names the process of an observation: its controller, and a number from its second process on.
func (o *Ordering) process(r *record.Observation) string {
	name, known := o.sessions[r.Session]
	if !known {
		n := 1
		for _, other := range o.sessions {
			if other == r.By || strings.HasPrefix(other, r.By+"#") {
				n++
			}
		}
		if name = r.By; n > 1 {
			name = fmt.Sprintf("%s#%d", r.By, n)
		}
		o.sessions[r.Session] = name
	}
	return name
}

// withGroup is a type with its group, unless that is one of Kubernetes itself.
func withGroup(kind, group string) string {
	if group == "" || !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io") {
		return kind
	}
	return kind + "." + group
}
