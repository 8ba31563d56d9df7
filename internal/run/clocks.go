package run

import (
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/internal/cluster"
)

// clocks implements actions.Clocks.
type clocks struct{ cluster cluster.Cluster }

func (c clocks) keeper() (cluster.Timekeeper, error) {
	if t, ok := c.cluster.(cluster.Timekeeper); ok {
		return t, nil
	}
	return nil, fmt.Errorf("clock of cluster %q: %w", c.cluster.Name(), cluster.ErrNotSupported)
}

// Advance moves the cluster's clock at once.
func (c clocks) Advance(by time.Duration) error {
	t, err := c.keeper()
	if err != nil {
		return err
	}
	return t.Advance(by)
}

// Skew puts the wall clock of a controller's processes ahead, or behind.
func (c clocks) Skew(controller string, by time.Duration) (before time.Duration, err error) {
	t, err := c.keeper()
	if err != nil {
		return 0, err
	}
	return t.Skew(controller, by)
}
