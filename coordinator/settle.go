package coordinator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/record"
)

// settling tracks the controllers' activity while the coordinator waits for them to become idle. The goroutine of Run
// owns it.
type settling struct {
	controllers []record.Controller
	on          bool
	active      map[string]time.Time // by controller: when it was last active
}

// stir marks every controller as active now: when settling starts, and when held observations are released.
func (s *settling) stir(now time.Time) {
	for _, controller := range s.controllers {
		s.active[controller.Name] = now
	}
}

// note records that a controller is active, leader election aside.
func (s *settling) note(identity string, election bool, now time.Time) {
	if s.on && !election {
		s.active[identity] = now
	}
}

// settleRules select what a controller reports while it settles: deliveries, reconciles and writes. Reads are left out
// because some controllers poll.
var settleRules = []wire.Rule{
	{Point: wire.ControllerRecv, Phase: wire.After, AnyGroup: true},
	{Point: wire.Reconcile, Phase: wire.Before, AnyGroup: true},
	{Point: wire.Reconcile, Phase: wire.After, AnyGroup: true},
	{Point: wire.ControllerWrite, Phase: wire.Before, AnyGroup: true}, // its beginning shows what it has done
	{Point: wire.ControllerWrite, Phase: wire.After, AnyGroup: true},
}

// Settle waits until every controller with hooks is idle: it is connected, unless the plan has killed it; it has
// written its leader election lock, if it has written one before; and for the duration of quiet it has received,
// reconciled and written nothing. If ctx ends first, restless says which controllers are not idle; otherwise it is
// empty. Leader election does not count as activity.
//
// A plan is judged only then: a controller that was restarted a moment ago has done nothing yet, neither right nor
// wrong.
func (c *Coordinator) Settle(ctx context.Context, quiet time.Duration) (restless string, err error) {
	err = c.loop.do(context.WithoutCancel(ctx), func(run context.Context) {
		if !c.settling.on {
			c.settling.stir(c.clock.Now())
			c.settling.on = true
		}
		c.push(run)
	})
	if err != nil {
		return "", err
	}
	for {
		var next time.Duration
		err := c.loop.do(context.WithoutCancel(ctx), func(context.Context) {
			restless, next = c.restless(c.clock.Now(), quiet)
		})
		if err != nil || restless == "" {
			return "", err
		}
		changed, err := c.loop.nextChange(context.WithoutCancel(ctx))
		if err != nil {
			return "", err
		}
		timer := clock.NewTimer(ctx, next)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return restless, nil
		}
		timer.Stop()
	}
}

// Stir makes [Coordinator.Settle] take all controllers for active now: something was done that they have not heard of
// yet.
func (c *Coordinator) Stir(ctx context.Context) error {
	return c.loop.do(ctx, func(context.Context) { c.settling.stir(c.clock.Now()) })
}

// restless says which controllers are not idle yet, and after what time to check again.
func (c *Coordinator) restless(now time.Time, quiet time.Duration) (who string, next time.Duration) {
	var all []string
	next = quiet
	if c.work.jumps() {
		return "the plan lets the clock jump", quiet
	}
	for _, controller := range c.config.Controllers {
		name := controller.Name
		if !controller.Hooks || c.machine.Down(name) {
			continue
		}
		electing := c.electing(name)
		switch rest := now.Sub(c.settling.active[name]); {
		case !c.sessions.connected(name):
			all = append(all, name+" is not connected")
			next = min(next, quiet/10)
		case electing != "":
			all = append(all, electing)
			next = min(next, quiet/10)
		case rest < quiet:
			all = append(all, fmt.Sprintf("%s was active %s ago", name, rest.Round(time.Millisecond)))
			next = min(next, quiet-rest)
		}
	}
	return strings.Join(all, "; "), next
}

// idleLook is how long to wait before another look at controllers that are not idle.
const idleLook = 100 * time.Millisecond

// awaitIdle blocks until the controllers are idle, as far as connections, elections and queues show, but not longer
// than most. It must not be called by the owner.
func (c *Coordinator) awaitIdle(ctx context.Context, most time.Duration) {
	if most <= 0 {
		return
	}
	ctx, cancel := clock.WithTimeout(ctx, most)
	defer cancel()
	for {
		var restless string
		err := c.loop.do(ctx, func(context.Context) { restless, _ = c.restless(c.clock.Now(), 0) })
		if err != nil || restless == "" && (c.config.Busy == nil || !c.config.Busy(ctx)) {
			return
		}
		if clock.Sleep(ctx, idleLook) != nil {
			return
		}
	}
}

// untilQuiet blocks until the controllers have done nothing for the duration of quiet and nothing is in their queues,
// but not longer than most. It must not be called by the owner.
func (c *Coordinator) untilQuiet(ctx context.Context, quiet, most time.Duration) {
	ctx, cancel := clock.WithTimeout(ctx, most)
	defer cancel()
	for {
		restless, err := c.Settle(ctx, quiet)
		if err != nil || restless != "" || c.config.Busy == nil || !c.config.Busy(ctx) ||
			clock.Sleep(ctx, idleLook) != nil {
			return
		}
	}
}
