package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Evidence gathers what the judges look at when a run is over, and writes it into the record. What it cannot gather
// becomes a finding; the judges judge the rest.
type Evidence struct {
	// Needed returns the part of a history that the record keeps.
	Needed        func(ctx context.Context, all []record.HistoryEntry) ([]record.HistoryEntry, error)
	ListProcesses func(ctx context.Context) ([]record.Process, error) // of the controllers
	// Locks are those of a controller's leader election; lasts is for how long its Lease is held without being renewed.
	Locks  func(ctx context.Context, controller string) (all []plan.ResourceKey, lasts time.Duration, err error)
	Record interface {
		History(h record.HistoryEntry) error
		Processes(all []record.Process) error
	}
	Trouble func(err error)
}

// History ends the recording of objects' states.
func (e *Evidence) History(ctx context.Context, recorder interface {
	Stop(ctx context.Context) ([]record.HistoryEntry, error)
	History() []record.HistoryEntry
}) []record.HistoryEntry {
	states, err := recorder.Stop(ctx)
	if err != nil {
		e.Trouble(fmt.Errorf("record history: %w", err))
		states = recorder.History()
	}
	if states, err = e.Needed(ctx, states); err != nil {
		e.Trouble(err)
	}
	for _, h := range states {
		if err := e.Record.History(h); err != nil {
			e.Trouble(err)
			break
		}
	}
	return states
}

// Processes records the controllers' processes with their logs so far.
func (e *Evidence) Processes(ctx context.Context) []record.Process {
	all, err := e.ListProcesses(ctx)
	if err := errors.Join(err, e.Record.Processes(all)); err != nil {
		e.Trouble(err)
	}
	return all
}

// FillInLocks adds to the controllers the locks of their leader elections.
func (e *Evidence) FillInLocks(ctx context.Context, controllers []record.Controller) {
	for i := range controllers {
		c := &controllers[i]
		locks, lasts, err := e.Locks(ctx, c.Name)
		if err != nil {
			e.Trouble(fmt.Errorf("locks of controller %q: %w", c.Name, err))
		}
		c.Locks, c.LeaseLasts = nil, lasts
		for _, l := range locks {
			c.Locks = append(c.Locks, l.String())
		}
	}
}
