package run

import (
	"context"
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/cluster"
)

// settle waits until the controllers have come to rest, for no longer than the suite says, and not for one that crashes
// over and over: that one has shown what it does. It reports whether they have.
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
		r.note(fmt.Sprintf("%s ends again and again; it is not waited for any longer", name))
	default:
		r.note(fmt.Sprintf("not settled within %s (timeouts.settle): %s", r.Suite.Timeouts.Settle, restless))
	}
	return false, nil
}

// endsByItself counts how often a controller's processes have ended since the workload began, where the plan is not the
// reason.
func (r *runner) endsByItself(processes []cluster.Process) int {
	ends := 0
	for _, p := range processes {
		if !p.Running() && !p.Planned && p.Ended.After(r.meta.WorkloadStart) && r.serverAway(p.Controller, p.Ended) == "" {
			ends++
		}
	}
	return ends
}

// crashLoop returns the name of a controller that has ended by itself twice since the workload began, as soon as there
// is one, or nothing when ctx ends.
func (r *runner) crashLoop(ctx context.Context) string {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, c := range r.Suite.Controllers {
			processes, err := r.node().Status(ctx, c.Name)
			if err != nil {
				continue // judged later, where an error counts
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
