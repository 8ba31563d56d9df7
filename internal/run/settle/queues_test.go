package settle

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/record"
)

// tables are the queues of one controller.
type tables []wire.Queue

func (q tables) Queues(context.Context, string) ([]wire.Queue, bool, error) { return q, true, nil }

// What comes back without faults, too, is not waited for; what the same queue has put off for another time is.
func TestLook(t *testing.T) {
	const s = time.Second
	now := time.Now()
	q := tables{{Name: "q", Delayed: 5, Classes: []wire.DelayClass{
		{Shortest: 2 * s, Longest: 2 * s, Latest: now.Add(s)},
		{Shortest: 10 * s, Longest: 11 * s, Latest: now.Add(5 * s)},
		{Shortest: 300 * s, Longest: 301 * s, Latest: now.Add(290 * s)},
		{Shortest: 400 * s, Longest: 2000 * s, Latest: now.Add(90 * s)},
		{Shortest: 700 * s, Longest: 700 * s, Latest: now.Add(90 * s)},
	}}, {Name: "other"}}
	w := &Queues{Reader: q, Controllers: []string{"c"}, Rest: 10 * time.Minute, Logger: slog.New(slog.DiscardHandler),
		Polls: []record.Poll{
			{Controller: "c", Queue: "q", Delay: 10 * s}, {Controller: "c", Queue: "q", Delay: 400 * s},
			{Controller: "c", Queue: "other", Delay: 300 * s},
			{Controller: "c", Queue: "q", Delay: s, Longest: s + s/2},
		}}
	ctx := clock.With(t.Context(), clock.New())
	var got []time.Duration
	for _, l := range w.Look(ctx).Later {
		got = append(got, l.Shortest)
	}
	want := []time.Duration{2 * s, 300 * s, 400 * s}
	if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("waits for what was put off for %s, want %s", got, want)
	}
	if !w.Busy(ctx, 2*s) || w.Busy(ctx, s) {
		t.Error("what is due in 2 s is not told from what is due in 1 s")
	}
	if polls := w.Polled(ctx); len(polls) != 5 || polls[1].Delay != 10*s || polls[1].Longest != 11*s {
		t.Errorf("polls: %+v", polls)
	}
	const late = "the run did not wait for those that look again by themselves, which may put right what differs: " +
		"c (work queue q) 10s later, c (work queue q) 11m40s later"
	if got := w.NotAwaited(w.Polled(ctx)); got != late {
		t.Errorf("not waited for:\ngot  %s\nwant %s", got, late)
	}
	if got := w.NotAwaited([]record.Poll{{Controller: "c", Queue: "q", Delay: 300 * s}}); got != "" {
		t.Errorf("what was waited for: %s", got)
	}
}
