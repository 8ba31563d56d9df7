package coordinator

import (
	"time"

	"github.com/trommel-dev/trommel/coordinator/machine"
)

// progress is when the plan last had an event, and what the Watcher knows about it. The goroutine of Run owns it.
type progress struct {
	last  time.Time // of the newest event of the plan
	stuck string    // the newest message about who waits for whom, without times
	wants int       // the machine.Wants that the Watcher saw last
}

// showNext reports to the Watcher what the plan waits for, if that has changed.
func (p *progress) showNext(m *machine.Machine, w Watcher) {
	if n := m.Wants(); n != p.wants {
		p.wants = n
		w.Next(m.Next())
	}
}

// watch reports who waits for whom if nothing has happened for the watchdog's time, once for each situation. It returns
// when to check again.
func (c *Coordinator) watch(now time.Time) time.Duration {
	if quiet := now.Sub(c.progress.last); c.began && quiet < c.config.Watchdog {
		return c.config.Watchdog - quiet
	}
	if state := c.stuck(time.Time{}); c.began && state != "" && state != c.progress.stuck {
		c.progress.stuck = state
		text := c.stuck(now)
		c.config.Logger.Info("waiting", "chain", text)
		c.config.Watcher.Waiting(text)
	}
	return c.config.Watchdog
}

func (c *Coordinator) stuck(now time.Time) string {
	return c.machine.Stuck(now, c.sessions.connected)
}
