package settle

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/run/await"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Queues knows what the controllers under test have still to do, from their work queues.
type Queues struct {
	Reader      cluster.QueueReader // nil: the work is unknown
	Controllers []string
	Polls       []record.Poll // without faults
	Rest        time.Duration // what is put off for longer is not waited for
	Pods        Pods          // what the controllers may react to
	Logger      *slog.Logger
}

// Look is await.Work now. In real time work that is put off is not waited for.
func (w *Queues) Look(ctx context.Context) await.Work {
	if w.Reader == nil || clock.Of(ctx) == nil {
		return await.Work{}
	}
	all := await.Work{Known: true}
	for _, name := range w.Controllers {
		queues, known, err := w.Reader.Queues(ctx, name)
		if err != nil {
			w.Logger.Debug("read the work queues", "controller", name, "error", err)
		}
		if !known {
			return await.Work{}
		}
		for _, q := range queues {
			all.Busy = all.Busy || q.Busy()
			all.Queues = append(all.Queues, await.Queue{
				Name: await.QueueName{Controller: name, Queue: q.Name}, Busy: q.Busy(), Taken: q.Gets,
			})
			for _, c := range q.Classes {
				if !w.awaits(name, q.Name, c) {
					continue
				}
				all.Later = append(all.Later, await.Later{
					Queue: await.QueueName{Controller: name, Queue: q.Name}, Shortest: c.Shortest, Longest: c.Longest,
					Latest: c.Latest,
				})
			}
		}
	}
	if len(w.Pods.underWay(ctx)) > 0 {
		all.Later = append(all.Later, await.Later{
			Queue: podsQueue, Shortest: w.Pods.longest, Longest: w.Pods.longest,
		})
	}
	return all
}

// Busy reports whether something is in work, waits to be taken, or is due within the time.
func (w *Queues) Busy(ctx context.Context, within time.Duration) bool {
	now := w.Look(ctx)
	return now.Busy || slices.ContainsFunc(now.Later, func(l await.Later) bool { return l.Shortest <= within })
}

// Coming returns when the last of the work that was put off is due, and the longest of its delays; zero: there is none,
// or it is unknown. Work that comes back within a second is not a retry that a step of the workload could have missed.
func (w *Queues) Coming(ctx context.Context) (due time.Time, delay time.Duration) {
	for _, l := range w.Look(ctx).Later {
		if l.Longest < time.Second || l.Queue == podsQueue {
			continue
		}
		delay = max(delay, l.Longest)
		if l.Latest.After(due) {
			due = l.Latest
		}
	}
	return due, delay
}

// awaits reports whether a run waits for what a queue has put off for that long.
func (w *Queues) awaits(controller, queue string, c wire.DelayClass) bool {
	return c.Shortest <= w.Rest && !w.isPoll(controller, queue, c)
}

// isPoll reports whether the queue puts items off for that long without faults, too, after it has come to rest.
func (w *Queues) isPoll(controller, queue string, c wire.DelayClass) bool {
	return slices.ContainsFunc(w.Polls, func(p record.Poll) bool {
		longest := max(p.Longest, p.Delay)
		return p.Controller == controller && p.Queue == queue && c.Shortest >= p.Delay-p.Delay/10 &&
			c.Longest <= longest+longest/10
	})
}

// NotAwaited says which of the polls a run did not wait for, except retries; empty: none. They may put right what
// differs.
func (w *Queues) NotAwaited(polls []record.Poll) string {
	const least = 5 * time.Second
	var all []string
	for _, p := range polls {
		if p.Delay >= least && !w.awaits(p.Controller, p.Queue, wire.DelayClass{
			Shortest: p.Delay, Longest: max(p.Delay, p.Longest),
		}) {
			all = append(all, fmt.Sprintf("%s (work queue %s) %s later", p.Controller, p.Queue,
				plan.FormatDuration(p.Delay.Round(time.Second))))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "the run did not wait for those that look again by themselves, which may put right what differs: " +
		strings.Join(all, ", ")
}

// Polled lists what the controllers look at again and again, now that they are at rest.
func (w *Queues) Polled(ctx context.Context) (all []record.Poll) {
	if w.Reader == nil {
		return nil
	}
	for _, name := range w.Controllers {
		queues, known, err := w.Reader.Queues(ctx, name)
		if err != nil || !known {
			continue
		}
		for _, q := range queues {
			for _, c := range q.Classes {
				all = append(all, record.Poll{Controller: name, Queue: q.Name, Delay: c.Shortest, Longest: c.Longest})
			}
		}
	}
	return all
}
