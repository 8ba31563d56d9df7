package coordinator

import (
	"context"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/record"
)

// holds are the observations whose callers wait for the coordinator. The goroutine of Run owns them.
type holds struct {
	watcher Watcher
	most    time.Duration // the longest hold of one observation
	expired chan int      // observations that were held for that long
	bySeq   map[int]*held
}

type held struct {
	event monitor.Event
	timer *clock.Timer
	shown bool // the Watcher knows about it
}

func newHolds(watcher Watcher, most time.Duration) holds {
	return holds{watcher: watcher, most: most, expired: make(chan int), bySeq: map[int]*held{}}
}

// add holds an observation, at most until the deadline.
func (h *holds) add(ctx context.Context, seq int, e monitor.Event) {
	timer := clock.Of(ctx).AfterFunc(h.most, func() {
		select {
		case h.expired <- seq:
		case <-ctx.Done():
		}
	})
	h.bySeq[seq] = &held{event: e, timer: timer}
}

// event returns the held observation with that number.
func (h *holds) event(seq int) (monitor.Event, bool) {
	if held := h.bySeq[seq]; held != nil {
		return held.event, true
	}
	return monitor.Event{}, false
}

// find returns the number under which an observation is held.
func (h *holds) find(o *wire.Observation) (seq int, ok bool) {
	for seq, held := range h.bySeq {
		if held.event.Observation == o {
			return seq, true
		}
	}
	return 0, false
}

// show reports to the Watcher that an observation is held, and why.
func (h *holds) show(seq int, o *record.Observation, why string) {
	h.bySeq[seq].shown = true
	h.watcher.Held(seq, o, why)
}

// release lets a caller go on; with a failure, its call fails. After that, forget must be called.
func (h *holds) release(seq int, fail *wire.Failure) {
	held := h.bySeq[seq]
	held.timer.Stop()
	held.event.ReleaseToFail(fail)
}

// forget ends a hold, whose process goes on or has exited.
func (h *holds) forget(seq int) {
	if held := h.bySeq[seq]; held != nil && held.shown {
		h.watcher.Released(seq)
	}
	delete(h.bySeq, seq)
}

// drop ends the holds of a session that has ended. It returns the oldest of them, and how many there were.
func (h *holds) drop(s *monitor.Session) (oldest *wire.Observation, count int) {
	var dropped []int
	for seq, held := range h.bySeq {
		if held.event.Session == s {
			held.timer.Stop()
			dropped = append(dropped, seq)
		}
	}
	if len(dropped) == 0 {
		return nil, 0
	}
	oldest = h.bySeq[slices.Min(dropped)].event.Observation
	for _, seq := range dropped {
		h.forget(seq)
	}
	return oldest, len(dropped)
}

// releaseAll ends all holds, at the end of Run.
func (h *holds) releaseAll() {
	for seq := range h.bySeq {
		h.release(seq, nil)
		h.forget(seq)
	}
}
