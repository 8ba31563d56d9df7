package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/objects/history"
	"github.com/trommel-dev/trommel/record"
)

// evidence gathers what the judges look at, and writes it into the record. What cannot be gathered becomes a finding;
// the judges judge the rest.
func (r *runner) evidence(
	ctx context.Context, recorder *history.Recorder, invariants *judge.Invariants,
) judge.Evidence {
	states, err := recorder.Stop(ctx)
	if err != nil {
		r.trouble(fmt.Errorf("record history: %w", err))
		states = recorder.History()
	}
	if r.FindTypes {
		if states, err = r.needed(ctx, states); err != nil {
			r.trouble(err)
		}
	}
	for _, h := range states {
		if err := r.writer.History(h); err != nil {
			r.trouble(err)
			break
		}
	}
	processes, err := r.keepProcesses(ctx)
	if err != nil {
		r.trouble(err)
	}
	for i := range r.meta.Controllers {
		c := &r.meta.Controllers[i]
		locks, err := r.coordinator.Locks(ctx, c.Name)
		if err != nil {
			r.trouble(fmt.Errorf("locks of controller %q: %w", c.Name, err))
		}
		c.Locks = nil
		for _, l := range locks {
			c.Locks = append(c.Locks, l.String())
		}
	}
	r.meta.Observed = time.Now()
	r.eventsMu.Lock()
	events := slices.Clone(r.events)
	r.eventsMu.Unlock()
	return judge.Evidence{
		Plan: r.Plan, Invariants: invariants, Timeouts: r.Suite.Timeouts, Dir: r.RecordDir, Meta: r.meta,
		Actions: r.carriedOut(), Events: events,
		History: states, Gaps: recorder.Gaps(), Processes: processes, Reference: r.Reference,
	}
}

// keepProcesses records the controllers' processes with their logs so far.
func (r *runner) keepProcesses(ctx context.Context) ([]record.Process, error) {
	all, err := r.processes(ctx)
	return all, errors.Join(err, r.writer.Processes(all))
}

// carriedOut lists the plan's actions that are complete so far.
func (r *runner) carriedOut() []record.Action {
	r.completedMu.Lock()
	defer r.completedMu.Unlock()
	return slices.Clone(r.completed)
}

// trouble records as a finding that a part of the run itself failed after there was something to judge.
func (r *runner) trouble(err error) { r.add(judge.Trouble(err.Error())) }
