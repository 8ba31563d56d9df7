package lab

import (
	"sync"
	"time"
)

// Clock says how long a campaign has taken, including the time before it was resumed.
type Clock struct {
	mu    sync.Mutex
	began time.Time
	spent time.Duration // before the campaign was resumed
}

// NewClock returns a clock that starts now.
func NewClock() *Clock { return &Clock{began: time.Now()} }

// Elapsed returns how long the campaign has taken.
func (c *Clock) Elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spent + time.Since(c.began)
}

// Before returns how long the campaign took before it was resumed.
func (c *Clock) Before() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spent
}

// Resume adds the time that earlier sessions took.
func (c *Clock) Resume(spent time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spent += spent
}

// LeaveOut takes away time that does not count.
func (c *Clock) LeaveOut(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began = c.began.Add(d)
}
