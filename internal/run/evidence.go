package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// evidence gathers what the judges look at when a run is over, and writes it into the record. What it cannot gather
// becomes a finding; the judges judge the rest.
type evidence struct {
	needed    func(ctx context.Context, all []record.HistoryEntry) ([]record.HistoryEntry, error) // part of a history
	processes func(ctx context.Context) ([]record.Process, error)                                 // of the controllers
	// locks are those of a controller's leader election; lasts is for how long its Lease is held without being renewed.
	locks  func(ctx context.Context, controller string) (all []plan.ResourceKey, lasts time.Duration, err error)
	record interface {
		History(h record.HistoryEntry) error
		Processes(all []record.Process) error
	}
	trouble func(err error)
}

// history ends the recording of objects' states.
func (e *evidence) history(ctx context.Context, recorder interface {
	Stop(ctx context.Context) ([]record.HistoryEntry, error)
	History() []record.HistoryEntry
}) []record.HistoryEntry {
	states, err := recorder.Stop(ctx)
	if err != nil {
		e.trouble(fmt.Errorf("record history: %w", err))
		states = recorder.History()
	}
	if states, err = e.needed(ctx, states); err != nil {
		e.trouble(err)
	}
	for _, h := range states {
		if err := e.record.History(h); err != nil {
			e.trouble(err)
			break
		}
	}
	return states
}

// ofProcesses records the controllers' processes with their logs so far.
func (e *evidence) ofProcesses(ctx context.Context) []record.Process {
	all, err := e.processes(ctx)
	if err := errors.Join(err, e.record.Processes(all)); err != nil {
		e.trouble(err)
	}
	return all
}

// fillInLocks adds to the controllers the locks of their leader elections.
func (e *evidence) fillInLocks(ctx context.Context, controllers []record.Controller) {
	for i := range controllers {
		c := &controllers[i]
		locks, lasts, err := e.locks(ctx, c.Name)
		if err != nil {
			e.trouble(fmt.Errorf("locks of controller %q: %w", c.Name, err))
		}
		c.Locks, c.LeaseLasts = nil, lasts
		for _, l := range locks {
			c.Locks = append(c.Locks, l.String())
		}
	}
}
