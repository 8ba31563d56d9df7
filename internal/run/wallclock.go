package run

import "time"

// shortestStep is how much a clock may differ from what has passed before it counts as set. A clock that is only slowed
// down or sped up to be right again differs by less than a thousandth.
const shortestStep = time.Second

// wallClock finds out whether this machine's clock is set while a run is under way.
type wallClock struct {
	began time.Time
}

// step is by how much the clock was set so far, negative: back; zero: it was not.
func (w wallClock) step() time.Duration {
	now := time.Now()
	return stepOf(now.Round(0).Sub(w.began.Round(0)), now.Sub(w.began))
}

func stepOf(shown, passed time.Duration) time.Duration {
	if step := shown - passed; step.Abs() >= shortestStep+passed/1000 {
		return step
	}
	return 0
}
