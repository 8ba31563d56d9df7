package await

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Work is what the controllers have still to do, at one moment.
type Work struct {
	// Known is false if the work is unknown.
	Known bool
	// Busy: something is in work, or waits to be taken.
	Busy   bool
	Queues []Queue
	// Later is what was put off, without what controllers without faults look at again and again.
	Later []Later
}

// QueueName names a queue. Processes of one controller may have queues of the same name.
type QueueName struct{ Controller, Queue string }

// Queue is a work queue of a process.
type Queue struct {
	Name  QueueName
	Busy  bool
	Taken uint64 // items, ever
}

// taken is how many items were ever taken.
func (w Work) taken() (all uint64) {
	for _, q := range w.Queues {
		all += q.Taken
	}
	return all
}

// Later is what a queue has put off for about the same time.
type Later struct {
	Queue             QueueName
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
	rested  bool      // whether it is over because nothing is to come
	entries int       // of the history; the caller counts

	// Since when, and after how many items, the queues have always been busy and nothing has changed; zero: not so.
	busy  time.Time
	taken uint64
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
		r.changed, r.until, r.later, r.busy = changed, time.Time{}, nil, time.Time{}
	}
	if w.Busy {
		return r.spins(now, w.taken()), min(busyLook, left)
	}
	r.busy = time.Time{}
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
	if wait := r.until.Add(r.limits.Quiet).Sub(now); !r.until.IsZero() && wait > 0 {
		return false, min(wait, left)
	}
	r.rested = true
	return true, 0
}

// spins reports whether the queues have been busy for a while, with far more items taken than there is to look at, and
// nothing has changed. What only takes its time takes few items.
func (r *rest) spins(now time.Time, taken uint64) bool {
	if r.busy.IsZero() || taken < r.taken { // less: a process has ended
		r.busy, r.taken = now, taken
		return false
	}
	return now.Sub(r.busy) >= watched && taken-r.taken >= uint64(20*(r.entries+10))
}

// growing are the queues that have put items off for longer each time.
func (r *rest) growing() (all []record.Unrest) {
	first, last, times := map[QueueName]Later{}, map[QueueName]Later{}, map[QueueName]int{}
	for _, l := range r.later {
		if times[l.Queue] == 0 {
			first[l.Queue] = l
		}
		if times[l.Queue]++; l.Shortest < last[l.Queue].Shortest {
			delete(first, l.Queue)
		}
		last[l.Queue] = l
	}
	for name, l := range first {
		if times[name] < 3 || last[name].Shortest < 2*l.Longest {
			continue
		}
		all = append(all, record.Unrest{
			Controller: name.Controller, Queue: name.Queue, Taken: times[name], Delay: last[name].Shortest,
			Growing: true,
		})
	}
	slices.SortFunc(all, byQueue)
	return all
}

// Rest returns when nothing is to come any more: what the controllers have put off has come back, and has changed
// nothing. It returns at the latest after limits.Rest, and at once if the work is unknown. Rested is false if something
// is still to come, or if that is unknown; growing are the queues that then put items off for longer each time. The
// error is that of ctx.
func Rest(
	ctx context.Context, g Growing, look func(ctx context.Context) Work, limits plan.Timeouts,
) (rested bool, growing []record.Unrest, err error) {
	from := clock.Now(ctx)
	r := &rest{look: look, limits: limits}
	read, last := 0, time.Time{}
	for {
		entries, changed := g.Since(read)
		read += len(entries)
		last = lastOf(entries, last)
		r.entries = read
		over, wait := r.check(ctx, from, last)
		switch {
		case ctx.Err() != nil || !r.known:
			return false, nil, ctx.Err()
		case over && r.rested:
			return true, nil, nil
		case over:
			growing := r.growing()
			for i := range growing {
				growing[i].Span = clock.Now(ctx).Sub(r.changed)
			}
			return false, growing, nil
		}
		if err := sleepUnless(ctx, changed, wait); err != nil {
			return false, nil, err
		}
	}
}

const (
	// watched is for how long queues must go on to count as restless.
	watched = 10 * time.Second
	// soon is for how long such a queue puts items off at most.
	soon = time.Second
)

// Watch returns the queues that take items again and again, although they have had all the time they need: at each look
// there is something to take or something that is due soon. It returns at once if there is no such queue, or if the
// work is unknown, and otherwise after ten seconds. The error is that of ctx.
func Watch(ctx context.Context, g Growing, look func(ctx context.Context) Work) ([]record.Unrest, error) {
	type seen struct {
		delay, span time.Duration
		first, last uint64
	}
	before, _ := g.Since(0)
	began := clock.Now(ctx)
	var all map[QueueName]*seen
	for {
		w := look(ctx)
		span := clock.Now(ctx).Sub(began)
		if !w.Known {
			return nil, nil
		}
		restless, taken := map[QueueName]time.Duration{}, map[QueueName]uint64{}
		for _, q := range w.Queues {
			taken[q.Name] += q.Taken
			if q.Busy {
				restless[q.Name] = 0
			}
		}
		for _, l := range w.Later {
			if l.Shortest <= soon && (restless[l.Queue] == 0 || l.Shortest < restless[l.Queue]) {
				restless[l.Queue] = l.Shortest
			}
		}
		if all == nil {
			all = map[QueueName]*seen{}
			for name, delay := range restless {
				all[name] = &seen{delay: delay, first: taken[name], last: taken[name]}
			}
		} else {
			for name, q := range all {
				if delay, still := restless[name]; !still || taken[name] <= q.last {
					delete(all, name)
				} else {
					q.delay, q.last, q.span = max(q.delay, delay), taken[name], span
				}
			}
		}
		if len(all) == 0 {
			return nil, nil
		}
		if span >= watched {
			break
		}
		if err := clock.Sleep(ctx, soon+soon/4); err != nil {
			return nil, err
		}
	}
	after, _ := g.Since(len(before))
	var unrest []record.Unrest
	for name, q := range all {
		unrest = append(unrest, record.Unrest{
			Controller: name.Controller, Queue: name.Queue, Taken: int(q.last - q.first), Span: q.span, Delay: q.delay,
			Changes: len(after) > 0,
		})
	}
	slices.SortFunc(unrest, byQueue)
	return unrest, nil
}

func byQueue(a, b record.Unrest) int {
	return cmp.Or(cmp.Compare(a.Controller, b.Controller), cmp.Compare(a.Queue, b.Queue))
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
