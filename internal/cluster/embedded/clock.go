package embedded

import (
	"errors"
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/internal/clock/keeper"
)

// startClock starts the keeper of the cluster's clock, before any of its processes, and lets the clock move.
func (c *Cluster) startClock() error {
	if other, ok := c.config.Member.Beside.(*Cluster); ok {
		c.keeper, c.clock = other.keeper, other.clock
		return nil
	}
	if !c.config.OwnTime {
		return nil
	}
	k, err := keeper.Start(c.dir.Path())
	if errors.Is(err, keeper.ErrUnsupported) {
		c.config.Logger.Info("time is real", "reason", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("start the cluster's clock: %w", err)
	}
	c.keeper, c.clock = k, k.Clock()
	k.Run()
	return nil
}

func (c *Cluster) closeClock() {
	if c.keeper != nil && c.config.Member.Beside == nil {
		c.keeper.Close()
	}
}

// Hurry lets the clock move ahead whenever nothing happens in the cluster, or go as the machine's does.
func (c *Cluster) Hurry(on bool) {
	switch {
	case c.keeper == nil:
	case on:
		c.keeper.Run()
	default:
		c.keeper.Rest()
	}
}

// Lull returns at a moment at which no process of the cluster does anything, at the latest after half a second.
func (c *Cluster) Lull() {
	if c.keeper != nil {
		c.keeper.Lull()
	}
}

// Advance moves the clock at once.
func (c *Cluster) Advance(by time.Duration) error {
	if c.keeper == nil {
		return errRealTime
	}
	if err := c.processes.CheckClock(""); err != nil {
		return err
	}
	c.keeper.Jump(by)
	return nil
}

// Skew moves the wall clock of a controller's processes; their timers are not concerned.
func (c *Cluster) Skew(controller string, by time.Duration) (before time.Duration, err error) {
	if c.keeper == nil {
		return 0, errRealTime
	}
	return c.processes.Skew(controller, by)
}

var errRealTime = errors.New("the cluster runs in real time")
