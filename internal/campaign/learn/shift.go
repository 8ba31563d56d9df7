package learn

import "time"

const (
	// shiftSpan is how far the beginnings of a workload's runs without faults are apart at most. Loops of controllers
	// are hardly longer, and schedules look at the second of the minute.
	shiftSpan = time.Minute
	// shiftStep is from one run to the next. Of all steps it spreads three runs in a row best over loops of 1 to 60
	// seconds: in a loop of 5, 10, 15, 20, 30 or 60 seconds, one of them begins in each part of 70 % or more.
	shiftStep = 23200 * time.Millisecond
)

// Shift is for how long the controllers run before the workload of the n-th run without faults begins; 0 for n = 0. So
// runs without faults show what depends on the phase of a loop, and on the second of the minute. A fault changes the
// phase too: a controller begins its loops when it is started.
func Shift(n int) time.Duration { return time.Duration(n) * shiftStep % shiftSpan }
