package cluster

import "time"

// Timekeeper is a cluster that may have a clock of its own (Config.OwnTime).
type Timekeeper interface {
	Timed
	// Hurry lets the clock move ahead whenever nothing happens in the cluster and nothing holds the clock, or else go
	// as the machine's does. A cluster's clock hurries from its start.
	Hurry(on bool)
	// Lull returns at a moment at which no process of the cluster does anything, at the latest after half a second of
	// the machine's time. So a jump of the clock that follows does not end what is under way, such as requests.
	Lull()
	// Advance moves the clock at once: the timers of the cluster's processes that are then due fire together. What
	// waits by Clock in this process does not end sooner, see [clock.Clock.Jump]. It fails if the cluster has no clock
	// of its own, or if a process of a controller does not run by it.
	Advance(by time.Duration) error
	// Skew puts the wall clock of a controller's processes ahead of the others', or behind if by is negative, also of
	// those that start later; 0 ends that. Timers are not concerned. It reports how far the clock was ahead before, and
	// fails if the cluster has no clock of its own, or if a process of the controller does not run by it.
	Skew(controller string, by time.Duration) (before time.Duration, err error)
}
