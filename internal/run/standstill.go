package run

import (
	"fmt"
	"time"
)

// shortestStandstill is from when on a run notes that this process did not run.
const shortestStandstill = 5 * time.Second

// standstills finds the times in which this process did not run although the clock went on.
type standstills struct {
	last  time.Time        // of the last tick, by the machine's clock; zero before the first
	now   func() time.Time // by the run's clock
	notes []string
}

func (s *standstills) tick(now time.Time) {
	if gap := now.Sub(s.last); !s.last.IsZero() && gap >= shortestStandstill {
		s.notes = append(s.notes, fmt.Sprintf("trommel itself did not run for %s, until %s: it was stopped, or the "+
			"machine was busy with something else. A controller may have lost its leader election because of that",
			gap.Round(100*time.Millisecond), s.now().Format(time.TimeOnly)))
	}
	s.last = now
}

// watchItself watches for standstills of this process until end is called, which returns what there is to note. Now is
// the run's time.
func watchItself(now func() time.Time) (end func() []string) {
	stop, notes := make(chan struct{}), make(chan []string)
	go func() {
		s := standstills{now: now}
		s.tick(time.Now())
		ticker := time.NewTicker(shortestStandstill / 10)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				s.tick(time.Now())
			case <-stop:
				s.tick(time.Now())
				notes <- s.notes
				return
			}
		}
	}()
	return func() []string { close(stop); return <-notes }
}
