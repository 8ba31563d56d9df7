package run

import (
	"fmt"
	"sync"
	"time"
)

// shortestStandstill is from when on a run notes that this process did not run.
const shortestStandstill = 5 * time.Second

// standstills finds the times in which this process did not run although the clock went on.
type standstills struct {
	now func() time.Time // by the run's clock

	mu      sync.Mutex
	last    time.Time // of the last tick, by the machine's clock; zero before the first
	lastOwn time.Time // of the last tick, by the run's clock
	notes   []string
}

func (s *standstills) tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The run's clock may have gone slower, or have moved ahead. Neither makes a standstill.
	own := s.now()
	if gap := min(now.Sub(s.last), own.Sub(s.lastOwn)); !s.last.IsZero() && gap >= shortestStandstill {
		s.notes = append(s.notes, fmt.Sprintf("trommel itself did not run for %s, until %s: it was stopped, or the "+
			"machine was busy with something else. A controller may have lost its leader election because of that",
			gap.Round(100*time.Millisecond), own.Format(time.TimeOnly)))
	}
	s.last, s.lastOwn = now, own
}

// first is what there is to note of the first standstill so far; empty: there was none.
func (s *standstills) first() string {
	s.tick(time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.notes) == 0 {
		return ""
	}
	return s.notes[0]
}

// watch watches this process until end is called.
func (s *standstills) watch() (end func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		s.tick(time.Now())
		ticker := time.NewTicker(shortestStandstill / 10)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				s.tick(time.Now())
			case <-stop:
				s.tick(time.Now())
				return
			}
		}
	}()
	return func() { close(stop); <-ended }
}
