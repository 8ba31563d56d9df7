package order

import "time"

// A controller may be busy for ever without waiting for anything: what it writes makes it write again. Then time would
// never pass, and the run would never end. So after busyAfter choices, in which less than busyLess has passed, time
// passes at every busyEvery-th one, also at the end.
const (
	busyAfter = 500
	busyEvery = 10
	busyLess  = 100 * time.Millisecond
)

// busy finds out whether time must pass for that reason.
type busy struct {
	choices int           // since time last passed for another reason
	calm    time.Duration // when that was, and how much passed for this one since
	last    time.Duration // when the last choice was made
	forced  bool          // it let time pass for this reason
}

// passes reports whether time must pass at the next choice. Elapsed is the time since the run is ordered.
func (b *busy) passes(elapsed time.Duration) bool {
	if b.forced {
		b.calm += elapsed - b.last
	}
	b.last, b.forced = elapsed, false
	if elapsed-b.calm >= busyLess {
		b.calm, b.choices = elapsed, 0
	}
	if b.choices++; b.choices > busyAfter {
		b.choices, b.forced = busyAfter-busyEvery, true
	}
	return b.forced
}
