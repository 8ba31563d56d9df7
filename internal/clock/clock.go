// Package clock gives the time of a run, which need not be this machine's: while nothing happens in any process of a
// run, its clock may move ahead; and while its processes lack processors, it may go slower than this machine's.
//
// A context says by which clock its users wait. Code that belongs to a run therefore uses this package instead of
// time.Now, time.After, context.WithTimeout and their like; without a clock in its context it waits in real time.
package clock

import (
	"container/heap"
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Clock is ahead of this machine's clock by an offset, see [Line]. The nil *Clock is this machine's own. Its methods
// may be called concurrently.
type Clock struct {
	line   atomic.Pointer[Line]
	drawn  func(Line) // is called with each new line; may be nil
	draw   sync.Mutex // while the line changes
	holds  atomic.Int64
	freed  chan struct{} // capacity 1: nothing holds the clock any more
	paced  atomic.Bool
	moving sync.Mutex // while the keeper moves the clock
	orders atomic.Pointer[func() bool]

	mu     sync.Mutex
	timers timerHeap
	alarm  *time.Timer // for the first of them

	kept account
}

// account counts for how long the clock was kept from moving, by reason.
type account struct {
	mu   sync.Mutex
	now  map[*time.Time]string // what keeps it, by when it began
	past map[string]time.Duration
}

// New returns a clock that agrees with this machine's until it is advanced.
func New() *Clock { return Drawn(nil) }

// Drawn is New with a function that is called with each new line, before any reader sees the later time. The calls are
// one after the other.
func Drawn(f func(Line)) *Clock {
	c := &Clock{freed: make(chan struct{}, 1), drawn: f}
	c.line.Store(&Line{})
	return c
}

type key struct{}

// With returns a context whose users wait by the clock.
func With(ctx context.Context, c *Clock) context.Context { return context.WithValue(ctx, key{}, c) }

// Of returns the clock of a context, or nil, which is the machine's.
func Of(ctx context.Context) *Clock {
	c, _ := ctx.Value(key{}).(*Clock)
	return c
}

// Offset is how far the clock is ahead.
func (c *Clock) Offset() time.Duration {
	if c == nil {
		return 0
	}
	return c.line.Load().aheadAt(time.Now())
}

// At is how far the clock is ahead at a time of [Monotonic].
func (c *Clock) At(mono int64) time.Duration { return time.Duration(c.line.Load().At(mono)) }

// Now is the clock's time.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Now()
	}
	for {
		l := c.line.Load()
		now := time.Now()
		if c.line.Load() == l { // otherwise another reader may have read a later time
			return now.Add(l.aheadAt(now))
		}
	}
}

// Since is the time that has passed since t by this clock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Until is the time that will pass until t by this clock.
func (c *Clock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// Advance moves the clock, and fires the timers that are then due. It does not move back.
func (c *Clock) Advance(by time.Duration) {
	if by <= 0 {
		return
	}
	c.change(func(l Line) Line { return l.moved(by) })
	c.fire()
}

// Jump moves the clock at once, but waits by it last as long as before: their timers and deadlines move along, so that
// no wait times out because of a jump. Only tickers tick, which drop ticks anyway, and timers of contexts made by [Due]
// fire if they are due.
func (c *Clock) Jump(by time.Duration) {
	if by <= 0 {
		return
	}
	c.mu.Lock()
	c.change(func(l Line) Line { return l.moved(by) })
	for _, e := range c.timers {
		if e.period == 0 && !e.fixed {
			e.due = e.due.Add(by)
		}
	}
	heap.Init(&c.timers)
	c.mu.Unlock()
	c.fire()
}

// Hold keeps the clock's keeper from advancing it, because something happens that is not seen in the run's processes.
// The clock then goes as this machine's. It ends with release; further calls of release do nothing.
func (c *Clock) Hold() (release func()) {
	if c == nil {
		return func() {}
	}
	c.moving.Lock() // a move that has begun is complete when Hold returns
	c.holds.Add(1)
	c.moving.Unlock()
	return sync.OnceFunc(func() {
		if c.holds.Add(-1) > 0 {
			return
		}
		select {
		case c.freed <- struct{}{}:
		default:
		}
	})
}

// HoldFor is Hold for a reason that [Clock.Kept] returns, a clause such as "a command ran". If release is called with
// false, the reason does not count after all.
func (c *Clock) HoldFor(why string) (release func(counts bool)) {
	if c == nil {
		return func(bool) {}
	}
	free, began := c.Hold(), time.Now()
	c.kept.mu.Lock()
	defer c.kept.mu.Unlock()
	if c.kept.now == nil {
		c.kept.now, c.kept.past = map[*time.Time]string{}, map[string]time.Duration{}
	}
	c.kept.now[&began] = why
	return func(counts bool) {
		c.kept.mu.Lock()
		if _, held := c.kept.now[&began]; held && counts {
			c.kept.past[why] += time.Since(began)
		}
		delete(c.kept.now, &began)
		c.kept.mu.Unlock()
		free()
	}
}

// Kept is for how long the reasons of [Clock.HoldFor] have kept the clock so far, by the machine's clock. Several at
// once count each.
func (c *Clock) Kept() map[string]time.Duration {
	if c == nil {
		return nil
	}
	c.kept.mu.Lock()
	defer c.kept.mu.Unlock()
	all := maps.Clone(c.kept.past)
	for began, why := range c.kept.now {
		all[why] += time.Since(*began)
	}
	return all
}

// Pace says whether the clock's keeper may make it slower than the machine's, which it does while the processes that
// have the clock lack processors. It is for the time of a run: between runs nothing is measured by the clock.
func (c *Clock) Pace(on bool) {
	if c != nil {
		c.paced.Store(on)
	}
}

// Paced reports whether the keeper may make the clock slower.
func (c *Clock) Paced() bool { return c.paced.Load() }

// Real reports whether something is under way for which HoldFor was called.
func (c *Clock) Real() bool {
	c.kept.mu.Lock()
	defer c.kept.mu.Unlock()
	return len(c.kept.now) > 0
}

// Freed returns a channel that receives when nothing holds the clock any more. It is for one receiver, the keeper.
func (c *Clock) Freed() <-chan struct{} { return c.freed }

// Unheld calls f, which moves the clock, unless something holds it.
func (c *Clock) Unheld(f func()) {
	c.moving.Lock()
	defer c.moving.Unlock()
	if !c.Held() {
		f()
	}
}

// Order has the keeper ask, each time the run is at rest, whether something goes on that was waiting for that; only if
// it does not, the clock moves. It is also asked now and then while something holds the clock. While a run is ordered,
// its clock hardly goes on while its processes work: what they wait for is due in the same order on each machine. The
// function must not block, nor use the clock. Nil ends it.
func (c *Clock) Order(goesOn func() bool) {
	if c == nil {
		return
	}
	if goesOn == nil {
		c.orders.Store(nil)
		return
	}
	c.orders.Store(&goesOn)
}

// Ordered reports whether the run is ordered.
func (c *Clock) Ordered() bool { return c.orders.Load() != nil }

// GoesOn reports whether something goes on now that the run is at rest, see [Clock.Order].
func (c *Clock) GoesOn() bool {
	f := c.orders.Load()
	return f != nil && (*f)()
}

// Held reports whether something holds the clock.
func (c *Clock) Held() bool { return c.holds.Load() > 0 }

// Next returns when the clock's first timer is due; false without any.
func (c *Clock) Next() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.timers) == 0 {
		return time.Time{}, false
	}
	return c.timers[0].due, true
}

// entry is a timer in the heap.
type entry struct {
	due    time.Time
	fire   func(now time.Time) // must not block; the clock is locked
	period time.Duration       // 0: once
	fixed  bool                // a jump does not move it
	index  int                 // -1: not in the heap
}

// fire fires what is due, and sets the alarm for what is first then.
func (c *Clock) fire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Now()
	for len(c.timers) > 0 && !c.timers[0].due.After(now) {
		e := c.timers[0]
		if e.period > 0 {
			// Like a time.Ticker it drops ticks that were not received in time.
			e.due = e.due.Add(e.period * (1 + now.Sub(e.due)/e.period))
			heap.Fix(&c.timers, 0)
		} else {
			heap.Pop(&c.timers)
		}
		e.fire(now)
	}
	c.setAlarm(now)
}

// setAlarm is called with the clock locked.
func (c *Clock) setAlarm(now time.Time) {
	if len(c.timers) == 0 {
		if c.alarm != nil {
			c.alarm.Stop()
		}
		return
	}
	wait := c.line.Load().wait(max(c.timers[0].due.Sub(now), 0))
	if c.alarm == nil {
		c.alarm = time.AfterFunc(wait, c.fire)
	} else {
		c.alarm.Reset(wait)
	}
}

func (c *Clock) add(e *entry, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Now()
	e.due = now.Add(max(d, 0))
	heap.Push(&c.timers, e)
	if c.timers[0] == e {
		c.setAlarm(now)
	}
}

func (c *Clock) remove(e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.index < 0 {
		return false
	}
	first := e.index == 0
	heap.Remove(&c.timers, e.index)
	if first {
		c.setAlarm(c.Now())
	}
	return true
}

// Timer is like time.Timer.
type Timer struct {
	C     <-chan time.Time // nil for AfterFunc
	real  *time.Timer
	clock *Clock
	entry *entry
	drain chan time.Time
}

// NewTimer is time.NewTimer by this clock.
func (c *Clock) NewTimer(d time.Duration) *Timer { return c.newTimer(d, false) }

func (c *Clock) newTimer(d time.Duration, fixed bool) *Timer {
	if c == nil {
		t := time.NewTimer(d)
		return &Timer{C: t.C, real: t}
	}
	tick := make(chan time.Time, 1)
	t := &Timer{C: tick, clock: c, drain: tick, entry: &entry{index: -1, fixed: fixed, fire: offer(tick)}}
	c.add(t.entry, d)
	return t
}

// offer sends the time unless an earlier one was not taken yet.
func offer(tick chan<- time.Time) func(now time.Time) {
	return func(now time.Time) {
		select {
		case tick <- now:
		default:
		}
	}
}

// AfterFunc is time.AfterFunc by this clock.
func (c *Clock) AfterFunc(d time.Duration, f func()) *Timer { return c.afterFunc(d, false, f) }

func (c *Clock) afterFunc(d time.Duration, fixed bool, f func()) *Timer {
	if c == nil {
		return &Timer{real: time.AfterFunc(d, f)}
	}
	t := &Timer{clock: c, entry: &entry{index: -1, fixed: fixed, fire: func(time.Time) { go f() }}}
	c.add(t.entry, d)
	return t
}

// Stop is like time.Timer's: after it, nothing is received from C.
func (t *Timer) Stop() bool {
	if t.real != nil {
		return t.real.Stop()
	}
	stopped := t.clock.remove(t.entry)
	if !stopped && t.drain != nil {
		select {
		case <-t.drain:
			stopped = true
		default:
		}
	}
	return stopped
}

// Reset is like time.Timer's.
func (t *Timer) Reset(d time.Duration) bool {
	if t.real != nil {
		return t.real.Reset(d)
	}
	was := t.Stop()
	t.clock.add(t.entry, d)
	return was
}

// Ticker is like time.Ticker.
type Ticker struct {
	C     <-chan time.Time
	real  *time.Ticker
	clock *Clock
	entry *entry
}

// NewTicker is time.NewTicker by this clock.
func (c *Clock) NewTicker(d time.Duration) *Ticker {
	if c == nil {
		t := time.NewTicker(d)
		return &Ticker{C: t.C, real: t}
	}
	if d <= 0 {
		panic("clock: an interval that is not positive")
	}
	tick := make(chan time.Time, 1)
	t := &Ticker{C: tick, clock: c, entry: &entry{index: -1, period: d, fire: offer(tick)}}
	c.add(t.entry, d)
	return t
}

// Stop is like time.Ticker's.
func (t *Ticker) Stop() {
	if t.real != nil {
		t.real.Stop()
		return
	}
	t.clock.remove(t.entry)
}

// After is time.After by this clock.
func (c *Clock) After(d time.Duration) <-chan time.Time { return c.NewTimer(d).C }

type timerHeap []*entry

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	e.index = -1
	return e
}
