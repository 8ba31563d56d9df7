package cluster

import (
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
)

// Timekeeper is a cluster that may have a clock of its own (Config.OwnTime).
type Timekeeper interface {
	// Clock is the clock by which the cluster's processes run; nil is this machine's.
	Clock() *clock.Clock
	// Hurry lets the clock move ahead whenever nothing happens in the cluster and nobody holds the clock, or else go as
	// the machine's does. A cluster's clock hurries from its start.
	Hurry(on bool)
	// Advance moves the clock at once; timers that are then due fire. It fails if the cluster has no own clock.
	Advance(by time.Duration) error
	// Skew puts the wall clock of one process ahead of the others', or behind if by is negative; 0 ends that. Its timers
	// are not concerned. It fails if the process does not run by the cluster's clock.
	Skew(pid int, by time.Duration) error
}
