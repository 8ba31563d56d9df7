package clock

import "golang.org/x/sys/unix"

// Monotonic is the machine's monotonic clock, in nanoseconds.
func Monotonic() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano()
}
