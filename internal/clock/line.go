package clock

import "time"

// Line says by how much a run's clock is ahead of the machine's monotonic clock (CLOCK_MONOTONIC on Linux), in
// nanoseconds: at the machine's time Base by Ahead. Each nanosecond after that it is ahead by Slow 65536ths less, and
// each nanosecond before by Before 65536ths more; both are fewer than all. The processes of a run compute the same
// (instrumentation/points/standard_clock.go.tmpl).
type Line struct{ Base, Ahead, Before, Slow int64 }

// Whole is what Slow is a part of.
const Whole = 1 << wholeBits

const wholeBits = 16

// At is by how much the clock is ahead at a moment of the machine's monotonic clock.
func (l Line) At(mono int64) int64 {
	since, slow := mono-l.Base, l.Slow
	if since < 0 {
		slow = l.Before
	}
	return l.Ahead - since*slow>>wholeBits
}

// epoch is a moment by both clocks.
var epoch, epochMono = time.Now(), Monotonic()

func (l Line) aheadAt(now time.Time) time.Duration {
	if l.Slow == 0 && l.Before == 0 { // also where the machine's time is not real, in tests
		return time.Duration(l.Ahead)
	}
	return time.Duration(l.At(epochMono + int64(now.Sub(epoch))))
}

// wait is how long a waiter sleeps by the machine's clock until the run's has gone by d, and then looks again: not too
// long, because that clock may get faster.
func (l Line) wait(d time.Duration) time.Duration {
	const late = 10 * time.Millisecond
	if l.Slow == 0 || d > time.Minute {
		return d
	}
	return min(d*Whole/time.Duration(Whole-l.Slow), d+late)
}

func (l Line) moved(by time.Duration) Line {
	l.Ahead += int64(by)
	return l
}

// lead is when a line begins to go at another pace than the one before. Until then every process must have seen it: a
// process must not read an earlier time than another process before.
const lead = 5 * time.Millisecond

// Slow makes the clock slower than the machine's by so many parts of [Whole], which must be fewer than all of them;
// with 0 it goes as the machine's. It does so within some milliseconds, for which Slow waits if it is called again
// before. It must not be called concurrently.
func (c *Clock) Slow(parts int64) {
	l := *c.line.Load()
	if l.Slow == parts {
		return
	}
	time.Sleep(time.Duration(l.Base - Monotonic()))
	c.change(func(l Line) Line {
		base := Monotonic() + int64(lead)
		return Line{Base: base, Ahead: l.At(base), Before: l.Slow, Slow: parts}
	})
}

// change draws another line, unless it is the same.
func (c *Clock) change(f func(Line) Line) {
	c.draw.Lock()
	defer c.draw.Unlock()
	before := *c.line.Load()
	after := f(before)
	if after == before {
		return
	}
	c.line.Store(&after)
	if c.drawn != nil {
		c.drawn(after)
	}
}
