package learn

import (
	"slices"
	"testing"
	"time"
)

// Three runs in a row begin at phases of a loop that are far apart.
func TestShiftsAreSpread(t *testing.T) {
	if Shift(0) != 0 {
		t.Errorf("the first run is shifted by %s", Shift(0))
	}
	for n := range 20 {
		for _, period := range []time.Duration{5, 10, 15, 20, 30, 60} {
			period *= time.Second
			var phases []time.Duration
			for i := range 3 {
				phases = append(phases, Shift(n+i)%period)
			}
			slices.Sort(phases)
			widest := phases[0] + period - phases[2]
			for i := range 2 {
				widest = max(widest, phases[i+1]-phases[i])
			}
			if widest > period*7/10 {
				t.Errorf("from run %d on, phases of a loop of %s: %v", n, period, phases)
			}
		}
	}
}
