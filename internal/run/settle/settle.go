// Package settle finds out whether the controllers under test, and the simulated pods of a run, have settled, and what
// they still have to do.
package settle

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/plan"
)

// Controllers waits until the controllers under test have settled.
type Controllers struct {
	Plan interface {
		Settle(ctx context.Context, quiet time.Duration) (restless string, err error)
		Stir(ctx context.Context) error
	}
	Node interface {
		Status(ctx context.Context, controller string) ([]cluster.Process, error)
	}
	Names    []string
	Timeouts plan.Timeouts
	Since    time.Time // the workload began
	// Away names the API server that the plan had taken away from a controller at a time; "": none.
	Away func(controller string, at time.Time) string
	// Busy reports whether something is in a controller's work queues, or will be within the time.
	Busy   func(ctx context.Context, within time.Duration) bool
	Pods   Pods
	Note   func(text string)
	Logger *slog.Logger
}

// Await waits until the controllers have settled, at most for Timeouts.Settle. It does not wait for one that is in a
// crash loop. It reports whether they have settled. They settle once more after simulated pods that take time.
func (s *Controllers) Await(ctx context.Context) (settled bool, err error) {
	pods := s.Pods.wait(ctx, s.Timeouts.Step)
	for {
		if settled, err = s.awaitOnce(ctx); !settled || err != nil || !pods.await(ctx) {
			return settled, err
		}
	}
}

func (s *Controllers) awaitOnce(ctx context.Context) (settled bool, err error) {
	bounded, cancel := clock.WithTimeout(ctx, s.Timeouts.Settle)
	defer cancel()
	crashes := make(chan string, 1)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if name := s.crashLoop(bounded); name != "" {
			crashes <- name
			cancel()
		}
	}()
	restless, err := s.Plan.Settle(bounded, s.Timeouts.Quiet)
	cancel()
	<-watched
	switch {
	case err != nil || restless == "":
		return err == nil, err
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	select {
	case name := <-crashes:
		s.Note(fmt.Sprintf("%s keeps exiting; not waiting any longer for the controllers to settle", name))
	default:
		s.Note(fmt.Sprintf("the controllers did not settle within %s (timeouts.settle): %s", s.Timeouts.Settle,
			restless))
	}
	return false, nil
}

// restQuiet is how long controllers must do nothing in a paced workload to count as at rest.
const restQuiet = 500 * time.Millisecond

// Pause is what a paced workload does between its steps: it waits until the controllers are at rest, at most for
// Timeouts.Settle, and again after simulated pods that take time. They may not have heard yet of what the step has just
// done.
func (s *Controllers) Pause(ctx context.Context) {
	if err := s.Plan.Stir(ctx); err != nil {
		return // the run ends
	}
	pods := s.Pods.wait(ctx, s.Timeouts.Step)
	for s.pauseOnce(ctx) && pods.await(ctx) {
	}
}

// pauseOnce reports whether the controllers are at rest.
func (s *Controllers) pauseOnce(ctx context.Context) bool {
	ctx, cancel := clock.WithTimeout(ctx, s.Timeouts.Settle)
	defer cancel()
	for {
		if restless, err := s.Plan.Settle(ctx, restQuiet); err != nil || restless != "" {
			s.Logger.Debug("the next step of the workload does not wait any longer", "restless", restless, "error", err)
			return false
		}
		if !s.Busy(ctx, 2*restQuiet) {
			return true
		}
		if clock.Sleep(ctx, restQuiet) != nil {
			return false
		}
	}
}

// startQuiet is for how long controllers must do nothing after their start to count as started, in the run's own time.
// Some wait for seconds for their definitions, without a word, before they begin to watch.
const startQuiet = 5 * time.Second

// Start waits until the controllers have done what they do at their start, at most for Timeouts.Settle: to one that
// does not watch yet, all that the workload does is long past. It returns how long they took. Usual is how long they
// take without faults; zero: unknown. Then they must do nothing for longer to count as started.
func (s *Controllers) Start(ctx context.Context, usual time.Duration) time.Duration {
	began := clock.Now(ctx)
	ctx, cancel := clock.WithTimeout(ctx, s.Timeouts.Settle)
	defer cancel()
	if usual > 0 {
		_ = clock.Sleep(ctx, usual)
		s.Pause(ctx)
		return usual
	}
	quiet := s.Timeouts.Quiet
	if clock.Of(ctx) != nil {
		quiet = startQuiet
	}
	if restless, err := s.Plan.Settle(ctx, quiet); err != nil || restless != "" {
		s.Logger.Debug("the workload does not wait any longer for the controllers to start", "restless", restless,
			"error", err)
		return 0
	}
	return max(time.Millisecond, clock.Now(ctx).Sub(began)-quiet)
}

// endsByItself counts how often a controller's processes have exited since the workload began, except exits that the
// plan caused.
func (s *Controllers) endsByItself(processes []cluster.Process) int {
	ends := 0
	for _, p := range processes {
		if !p.Running() && !p.Planned && p.Ended.After(s.Since) && s.Away(p.Controller, p.Ended) == "" {
			ends++
		}
	}
	return ends
}

// crashLoop returns the name of the first controller that has exited twice since the workload began without being
// stopped by the plan, or "" when ctx ends.
func (s *Controllers) crashLoop(ctx context.Context) string {
	tick := clock.NewTicker(ctx, 200*time.Millisecond)
	defer tick.Stop()
	for {
		for _, name := range s.Names {
			processes, err := s.Node.Status(ctx, name)
			if err != nil {
				continue // a later check reports the error
			}
			if s.endsByItself(processes) > 1 {
				return name
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ""
		}
	}
}
