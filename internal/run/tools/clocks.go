package tools

import (
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/internal/cluster"
)

// Clocks implements actions.Clocks.
type Clocks struct{ Cluster cluster.Cluster }

func (c Clocks) keeper() (cluster.Timekeeper, error) {
	if t := cluster.CapabilitiesOf(c.Cluster).Timekeeper; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("clock of cluster %q: %w", c.Cluster.Name(), cluster.ErrNotSupported)
}

// Advance moves the cluster's clock at a moment at which nothing happens, if there is one soon.
func (c Clocks) Advance(by time.Duration) error {
	return c.AdvanceAt(by, func(jump func() error) error { return jump() })
}

// AdvanceAt moves the clock by a jump that is carried out when a calm moment has come.
func (c Clocks) AdvanceAt(by time.Duration, carryOut func(jump func() error) error) error {
	t, err := c.keeper()
	if err != nil {
		return err
	}
	t.Lull()
	return carryOut(func() error { return t.Advance(by) })
}

// Skew puts the wall clock of a controller's processes ahead, or behind.
func (c Clocks) Skew(controller string, by time.Duration) (before time.Duration, err error) {
	t, err := c.keeper()
	if err != nil {
		return 0, err
	}
	return t.Skew(controller, by)
}
