package cluster

import "github.com/trommel-dev/trommel/internal/clock"

// ProcessesOf returns the process node of a cluster; nil: it has none.
func ProcessesOf(c Cluster) ProcessNode {
	if c, ok := c.(ProcessRunner); ok {
		return c.Processes()
	}
	return nil
}

// ClockOf returns the clock of a cluster's processes; nil: they have this machine's.
func ClockOf(c Cluster) *clock.Clock {
	if c, ok := c.(Timed); ok {
		return c.Clock()
	}
	return nil
}
