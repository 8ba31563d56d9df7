package run

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

// work knows what the controllers under test have still to do, from their work queues.
type work struct {
	queues      cluster.QueueReader // nil: the work is unknown
	controllers []string
	polls       []record.Poll // without faults
	rest        time.Duration // what is put off for longer is not waited for
	pods        simulatedPods // what the controllers may react to
	logger      *slog.Logger
}

// look is await.Work now. In real time work that is put off is not waited for.
func (w *work) look(ctx context.Context) await.Work {
	if w.queues == nil || clock.Of(ctx) == nil {
		return await.Work{}
	}
	all := await.Work{Known: true}
	for _, name := range w.controllers {
		queues, known, err := w.queues.Queues(ctx, name)
		if err != nil {
			w.logger.Debug("read the work queues", "controller", name, "error", err)
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
	if len(w.pods.underWay(ctx)) > 0 {
		all.Later = append(all.Later, await.Later{
			Queue: simulatedPodsQueue, Shortest: w.pods.longest, Longest: w.pods.longest,
		})
	}
	return all
}

// busy reports whether something is in work, waits to be taken, or is due within the time.
func (w *work) busy(ctx context.Context, within time.Duration) bool {
	now := w.look(ctx)
	return now.Busy || slices.ContainsFunc(now.Later, func(l await.Later) bool { return l.Shortest <= within })
}

// coming returns when the last of the work that was put off is due, and the longest of its delays; zero: there is none,
// or it is unknown. Work that comes back within a second is not a retry that a step of the workload could have missed.
func (w *work) coming(ctx context.Context) (due time.Time, delay time.Duration) {
	for _, l := range w.look(ctx).Later {
		if l.Longest < time.Second || l.Queue == simulatedPodsQueue {
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
func (w *work) awaits(controller, queue string, c wire.DelayClass) bool {
	return c.Shortest <= w.rest && !w.isPoll(controller, queue, c)
}

// isPoll reports whether the queue puts items off for that long without faults, too, after it has come to rest.
func (w *work) isPoll(controller, queue string, c wire.DelayClass) bool {
	return slices.ContainsFunc(w.polls, func(p record.Poll) bool {
		longest := max(p.Longest, p.Delay)
		return p.Controller == controller && p.Queue == queue && c.Shortest >= p.Delay-p.Delay/10 &&
			c.Longest <= longest+longest/10
	})
}

// notAwaited says which of the polls a run did not wait for, except retries; empty: none. They may put right what
// differs.
func (w *work) notAwaited(polls []record.Poll) string {
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

// polled lists what the controllers look at again and again, now that they are at rest.
func (w *work) polled(ctx context.Context) (all []record.Poll) {
	if w.queues == nil {
		return nil
	}
	for _, name := range w.controllers {
		queues, known, err := w.queues.Queues(ctx, name)
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
