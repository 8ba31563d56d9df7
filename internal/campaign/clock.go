package campaign

import (
	"sync"
	"time"
)

// clock says how long a campaign has taken, including the time before it was resumed.
type clock struct {
	mu    sync.Mutex
	began time.Time
	spent time.Duration // before the campaign was resumed
}

func newClock() *clock { return &clock{began: time.Now()} }

func (c *clock) elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spent + time.Since(c.began)
}

// before returns how long the campaign took before it was resumed.
func (c *clock) before() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spent
}

// resume adds the time that earlier sessions took.
func (c *clock) resume(spent time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spent += spent
}

// leaveOut takes away time that does not count.
func (c *clock) leaveOut(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began = c.began.Add(d)
}
