package await

import (
	"context"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Work is what the controllers have still to do, at one moment.
type Work struct {
	// Known is false if nobody can tell.
	Known bool
	// Busy: something is in work, or waits to be taken.
	Busy bool
	// Later is what was put off, without what controllers without faults look at again and again.
	Later []Later
}

// Later is what a queue has put off for about the same time.
type Later struct {
	Queue             string // any name that no other queue has
	Shortest, Longest time.Duration
	Latest            time.Time // when the last of it is due
}

// like reports whether both were put off for about the same time.
func (l Later) like(m Later) bool {
	return l.Queue == m.Queue && l.Shortest <= m.Longest+m.Longest/10 && m.Shortest <= l.Longest+l.Longest/10
}

// back is when all of it has come back. The clock of its process may be wrong.
func (l Later) back(now time.Time) time.Time {
	last := now.Add(l.Longest)
	if l.Latest.After(last) || l.Latest.Before(now.Add(-time.Second)) {
		return last
	}
	return l.Latest
}

// rest finds out when nothing is to come any more: nothing is in work, and what was put off has come back once without
// changing anything. What is then put off for another time, as retries after errors are, has to come back, too.
type rest struct {
	look    func(ctx context.Context) Work
	limits  plan.Timeouts
	changed time.Time // the last change that was looked at
	later   []Later   // what has been put off since
	until   time.Time // when all of that has come back; zero: nothing was put off
	known   bool
	began   time.Time // the first check, by the machine's clock
}

// mostReal limits how long a run waits by the machine's clock. A controller that never stops working keeps the run's
// clock from moving ahead.
const mostReal = 2 * time.Minute

// busyLook is how long to wait before another look at controllers that work.
const busyLook = 50 * time.Millisecond

// check reports whether nothing is to come after a change at that time, or else after what time to check again. It is
// over at the latest limits.Rest after from, and mostReal after the first check.
func (r *rest) check(ctx context.Context, from, changed time.Time) (over bool, wait time.Duration) {
	w := r.look(ctx)
	r.known = w.Known
	now := clock.Now(ctx)
	left := from.Add(r.limits.Rest).Sub(now)
	if r.began.IsZero() {
		r.began = time.Now()
	}
	if left <= 0 || clock.Of(ctx) != nil && time.Since(r.began) > mostReal {
		return true, 0
	}
	if changed.After(r.changed) {
		r.changed, r.until, r.later = changed, time.Time{}, nil
	}
	if w.Busy {
		return false, min(busyLook, left)
	}
	if quiet := r.changed.Add(r.limits.Quiet).Sub(now); quiet > 0 {
		return false, min(quiet, left)
	}
	for _, l := range w.Later {
		if slices.ContainsFunc(r.later, l.like) {
			continue
		}
		r.later = append(r.later, l)
		if back := l.back(now); back.After(r.until) {
			r.until = back
		}
	}
	if r.until.IsZero() {
		return true, 0
	}
	if wait := r.until.Add(r.limits.Quiet).Sub(now); wait > 0 {
		return false, min(wait, left)
	}
	return true, 0
}

// Rest returns when nothing is to come any more: what the controllers have put off has come back, and has changed
// nothing. It returns at the latest after limits.Rest, and at once if nobody can tell. The error is that of ctx.
func Rest(ctx context.Context, g Growing, look func(ctx context.Context) Work, limits plan.Timeouts) error {
	from := clock.Now(ctx)
	r := &rest{look: look, limits: limits}
	read, last := 0, time.Time{}
	for {
		entries, changed := g.Since(read)
		read += len(entries)
		last = lastOf(entries, last)
		over, wait := r.check(ctx, from, last)
		if over || !r.known {
			return ctx.Err()
		}
		if err := sleepUnless(ctx, changed, wait); err != nil {
			return err
		}
	}
}

func lastOf(entries []record.HistoryEntry, before time.Time) time.Time {
	if len(entries) == 0 {
		return before
	}
	return entries[len(entries)-1].Time
}

// sleepUnless waits, at most until changed is closed. The error is that of ctx.
func sleepUnless(ctx context.Context, changed <-chan struct{}, wait time.Duration) error {
	timer := clock.NewTimer(ctx, wait)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}
