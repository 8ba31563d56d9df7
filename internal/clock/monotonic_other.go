//go:build !linux

package clock

import "time"

var began = time.Now()

// Monotonic is the machine's monotonic clock, in nanoseconds.
func Monotonic() int64 { return int64(time.Since(began)) }
