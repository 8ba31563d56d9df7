package run

import (
	"context"
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/internal/cluster"
)

// settle waits until the controllers have settled, at most for Timeouts.Settle. It does not wait for one that is in a
// crash loop. It reports whether they have settled.
func (r *runner) settle(ctx context.Context) (settled bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, r.Suite.Timeouts.Settle)
	defer cancel()
	crashes := make(chan string, 1)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if name := r.crashLoop(bounded); name != "" {
			crashes <- name
			cancel()
		}
	}()
	restless, err := r.coordinator.Settle(bounded, r.Suite.Timeouts.Quiet)
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
		r.note(fmt.Sprintf("%s keeps exiting; not waiting any longer for the controllers to settle", name))
	default:
		r.note(fmt.Sprintf("the controllers did not settle within %s (timeouts.settle): %s",
			r.Suite.Timeouts.Settle, restless))
	}
	return false, nil
}

// restQuiet is how long controllers must do nothing in a paced workload to count as at rest.
const restQuiet = 500 * time.Millisecond

// pause returns what a paced workload does between its steps: it waits until the controllers are at rest, at most for
// Timeouts.Settle. Nil: the workload is not paced.
func (r *runner) pause() func(context.Context) {
	if !r.Paced {
		return nil
	}
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, r.Suite.Timeouts.Settle)
		defer cancel()
		if restless, err := r.coordinator.Settle(ctx, restQuiet); err != nil || restless != "" {
			r.Logger.Debug("the next step of the workload does not wait any longer", "restless", restless, "error", err)
		}
	}
}

// endsByItself counts how often a controller's processes have exited since the workload began, except exits that the
// plan caused.
func (r *runner) endsByItself(processes []cluster.Process) int {
	ends := 0
	for _, p := range processes {
		if !p.Running() && !p.Planned && p.Ended.After(r.meta.WorkloadStart) &&
			r.serverAway(p.Controller, p.Ended) == "" {
			ends++
		}
	}
	return ends
}

// crashLoop returns the name of the first controller that has exited twice since the workload began without being
// stopped by the plan, or "" when ctx ends.
func (r *runner) crashLoop(ctx context.Context) string {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, c := range r.Suite.Controllers {
			processes, err := r.node().Status(ctx, c.Name)
			if err != nil {
				continue // a later check reports the error
			}
			if r.endsByItself(processes) > 1 {
				return c.Name
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ""
		}
	}
}
