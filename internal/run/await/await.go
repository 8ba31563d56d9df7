// Package await waits until the history of a run that is still going on has what its judges need: controllers get the
// time that they need, and no more. It knows the growing history only, not the cluster.
package await

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/judge/invariant"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Growing is a history that is still being recorded.
type Growing interface {
	// Since returns the entries from index n on, and a channel that is closed when there are more.
	Since(n int) ([]record.HistoryEntry, <-chan struct{})
	// Sync blocks until everything is recorded that was written before the call.
	Sync(ctx context.Context) error
}

// Invariants blocks until the history has what [invariant.Set.Eventually] needs: every eventually was true at some
// moment since from, or its within, which counts from the call, is over. It returns the time of the call. The error is
// that of ctx.
func Invariants(
	ctx context.Context, invariants *invariant.Set, g Growing, from time.Time,
) (givenBack time.Time, err error) {
	givenBack = clock.Now(ctx)
	hopes := invariants.Hopes(from, givenBack)
	read := 0
	synced := false
	for {
		entries, changed := g.Since(read)
		hopes.Take(entries...)
		read += len(entries)
		next, pending := hopes.Next()
		if !pending || ctx.Err() != nil {
			return givenBack, ctx.Err()
		}
		if wait := clock.Until(ctx, next); wait > 0 {
			timer := clock.NewTimer(ctx, wait)
			select {
			case <-changed:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		// Events that happened in time may not have arrived yet.
		if !synced {
			synced = true
			_ = g.Sync(ctx) // on an error, a finding may be wrong because the API server was slow
			continue
		}
		synced = false
		hopes.GiveUp(next)
	}
}

// Late says that a run came right only after a time of waiting: no plan lasted any more, and the controllers had
// settled.
type Late struct {
	After    time.Duration         // from when everything was given back; 0: it was right then, or never came right
	Reported bool                  // the nodes have reported their status again meanwhile
	Last     []baseline.Difference // which were the last to end
}

// worthNote is from when on it is worth a note that a run came right late.
const worthNote = 5 * time.Second

// String says it in one line; empty: it is not worth a note.
func (l Late) String() string {
	if l.After < worthNote {
		return ""
	}
	text := fmt.Sprintf("came right only after %s of waiting", l.After.Round(100*time.Millisecond))
	if l.Reported {
		text = "came right only after the nodes had reported their status again, as kubelets do every 5 minutes"
	}
	text += ": " + l.Last[0].String()
	if more := len(l.Last) - 1; more > 0 {
		text += fmt.Sprintf(" (and %s)", wording.Count(more, "other difference"))
	}
	return text
}

// Baseline returns when the history is as the baseline says. It also returns when the history is not, and nothing is to
// come that could make it so: all work that look returns has come back, see [Rest], and nothing has changed for the
// time of quiet, at the earliest after the patience of controllers that try again; that counts from givenBack, see
// [Invariants]. Began is [facts.Began]. Something else may change for ever, such as a count of failed attempts: if it
// is unknown what is to come, it also returns when the same fields have differed for a step's time, and at the latest
// after that of a plan. Before it gives up, it calls report, unless that is nil: the nodes report their status again,
// and the controllers get the time to react. The error is that of ctx, or of a history that cannot be read. Late says
// whether the run came right meanwhile.
func Baseline(
	ctx context.Context, ref *baseline.Baseline, p *plan.Plan, g Growing, began, givenBack time.Time,
	look func(ctx context.Context) Work, report func(ctx context.Context), limits plan.Timeouts,
) (late Late, err error) {
	// The patience is for what no queue of a controller under test shows, even if nothing is in them: what Kubernetes'
	// own controllers have put off (a Job's next pod, objects of a type that the garbage collector has just found, a
	// namespace that is not empty yet); a watch that waits before it connects again, after an API server was away or
	// has refused it; and controllers that look again by a timer of their own, without a queue. A difference that
	// these would end must not become a bug. In the run's own time there is patience for informers that hand on
	// everything they hold again, too. It costs half a CPU second.
	patience := 10 * time.Second
	if clock.Of(ctx) != nil {
		patience = facts.Patience
	}
	read, last := 0, givenBack
	var same []baseline.Difference
	since := clock.Now(ctx) // the same fields differ
	history := newOrdered(p.Upgrades(), began)
	differences := judge.Comparison(ref, p)
	work := &rest{look: look, limits: limits}
	var reported time.Time // zero: not yet
	for {
		entries, changed := g.Since(read)
		last = lastOf(entries, last)
		read += len(entries)
		if err := history.add(entries); err != nil {
			return Late{}, err
		}
		differ := differences(history.follower)
		if len(differ) == 0 {
			if len(same) > 0 {
				late = Late{last.Sub(givenBack), !reported.IsZero(), same}
			}
			return late, nil
		}
		if !slices.EqualFunc(differ, same, sameField) {
			same, since = differ, clock.Now(ctx)
		}
		wait := max(clock.Until(ctx, last.Add(limits.Quiet)), clock.Until(ctx, givenBack.Add(patience)))
		work.entries = read
		over, still := work.check(ctx, givenBack, last)
		switch {
		case work.known && !over:
			wait = max(wait, still)
		case work.known:
			wait = min(wait, clock.Until(ctx, givenBack.Add(max(limits.Rest, patience))))
		default:
			wait = min(wait, clock.Until(ctx, since.Add(max(limits.Step, patience))),
				clock.Until(ctx, givenBack.Add(max(limits.Plan, patience))))
		}
		if !reported.IsZero() {
			wait = max(wait, clock.Until(ctx, reported.Add(limits.Quiet)))
		}
		if wait <= 0 {
			if report == nil || !reported.IsZero() {
				return Late{}, nil
			}
			report(ctx)
			reported = clock.Now(ctx)
			continue
		}
		if err := sleepUnless(ctx, changed, wait); err != nil {
			return Late{}, err
		}
	}
}

func sameField(a, b baseline.Difference) bool { return a.Key == b.Key && a.Field == b.Field }
