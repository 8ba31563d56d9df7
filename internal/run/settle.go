package run

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/plan"
)

// settling waits until the controllers under test have settled.
type settling struct {
	plan interface {
		Settle(ctx context.Context, quiet time.Duration) (restless string, err error)
		Stir(ctx context.Context) error
	}
	node interface {
		Status(ctx context.Context, controller string) ([]cluster.Process, error)
	}
	controllers []string
	timeouts    plan.Timeouts
	since       time.Time // the workload began
	// away names the API server that the plan had taken away from a controller at a time; "": none.
	away func(controller string, at time.Time) string
	// busy reports whether something is in a controller's work queues, or will be within the time.
	busy   func(ctx context.Context, within time.Duration) bool
	pods   simulatedPods
	note   func(text string)
	logger *slog.Logger
}

// await waits until the controllers have settled, at most for Timeouts.Settle. It does not wait for one that is in a
// crash loop. It reports whether they have settled. They settle once more after simulated pods that take time.
func (s *settling) await(ctx context.Context) (settled bool, err error) {
	pods := s.pods.wait(ctx, s.timeouts.Step)
	for {
		if settled, err = s.awaitOnce(ctx); !settled || err != nil || !pods.await(ctx) {
			return settled, err
		}
	}
}

func (s *settling) awaitOnce(ctx context.Context) (settled bool, err error) {
	bounded, cancel := clock.WithTimeout(ctx, s.timeouts.Settle)
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
	restless, err := s.plan.Settle(bounded, s.timeouts.Quiet)
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
		s.note(fmt.Sprintf("%s keeps exiting; not waiting any longer for the controllers to settle", name))
	default:
		s.note(fmt.Sprintf("the controllers did not settle within %s (timeouts.settle): %s", s.timeouts.Settle,
			restless))
	}
	return false, nil
}

// restQuiet is how long controllers must do nothing in a paced workload to count as at rest.
const restQuiet = 500 * time.Millisecond

// pause is what a paced workload does between its steps: it waits until the controllers are at rest, at most for
// Timeouts.Settle, and again after simulated pods that take time. They may not have heard yet of what the step has just
// done.
func (s *settling) pause(ctx context.Context) {
	if err := s.plan.Stir(ctx); err != nil {
		return // the run ends
	}
	pods := s.pods.wait(ctx, s.timeouts.Step)
	for s.pauseOnce(ctx) && pods.await(ctx) {
	}
}

// pauseOnce reports whether the controllers are at rest.
func (s *settling) pauseOnce(ctx context.Context) bool {
	ctx, cancel := clock.WithTimeout(ctx, s.timeouts.Settle)
	defer cancel()
	for {
		if restless, err := s.plan.Settle(ctx, restQuiet); err != nil || restless != "" {
			s.logger.Debug("the next step of the workload does not wait any longer", "restless", restless, "error", err)
			return false
		}
		if !s.busy(ctx, 2*restQuiet) {
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

// start waits until the controllers have done what they do at their start, at most for Timeouts.Settle: to one that
// does not watch yet, all that the workload does is long past. It returns how long they took. Usual is how long they
// take without faults; zero: unknown. Then they must do nothing for longer to count as started.
func (s *settling) start(ctx context.Context, usual time.Duration) time.Duration {
	began := clock.Now(ctx)
	ctx, cancel := clock.WithTimeout(ctx, s.timeouts.Settle)
	defer cancel()
	if usual > 0 {
		_ = clock.Sleep(ctx, usual)
		s.pause(ctx)
		return usual
	}
	quiet := s.timeouts.Quiet
	if clock.Of(ctx) != nil {
		quiet = startQuiet
	}
	if restless, err := s.plan.Settle(ctx, quiet); err != nil || restless != "" {
		s.logger.Debug("the workload does not wait any longer for the controllers to start", "restless", restless,
			"error", err)
		return 0
	}
	return max(time.Millisecond, clock.Now(ctx).Sub(began)-quiet)
}

// endsByItself counts how often a controller's processes have exited since the workload began, except exits that the
// plan caused.
func (s *settling) endsByItself(processes []cluster.Process) int {
	ends := 0
	for _, p := range processes {
		if !p.Running() && !p.Planned && p.Ended.After(s.since) && s.away(p.Controller, p.Ended) == "" {
			ends++
		}
	}
	return ends
}

// crashLoop returns the name of the first controller that has exited twice since the workload began without being
// stopped by the plan, or "" when ctx ends.
func (s *settling) crashLoop(ctx context.Context) string {
	tick := clock.NewTicker(ctx, 200*time.Millisecond)
	defer tick.Stop()
	for {
		for _, name := range s.controllers {
			processes, err := s.node.Status(ctx, name)
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
