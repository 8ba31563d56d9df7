package coordinator

import (
	"context"
)

// sessions tracks an identity's sessions. Several may be live at once: the end of a killed process's session can be
// noticed after its successor has connected.
type sessions struct {
	total int             // ever
	live  map[uint64]int  // by session: its ordinal, from 1
	gone  map[uint64]bool // sessions that have ended
}

// of returns the sessions of an identity.
func (c *Coordinator) of(identity string) *sessions {
	s := c.sessions[identity]
	if s == nil {
		s = &sessions{live: map[uint64]int{}, gone: map[uint64]bool{}}
		c.sessions[identity] = s
	}
	return s
}

func (s *sessions) begin(id uint64) {
	s.total++
	s.live[id] = s.total
}

func (s *sessions) end(id uint64) {
	delete(s.live, id)
	s.gone[id] = true
}

// hasEnded reports whether a session is known to have ended. Sessions that began before the coordinator are not in
// live.
func (s *sessions) hasEnded(id uint64) bool { return s.gone[id] }

func (s *sessions) connected() bool { return len(s.live) > 0 }

// since is how many sessions are live that are not among the first `after` ones.
func (s *sessions) since(after int) int {
	count := 0
	for _, n := range s.live {
		if n > after {
			count++
		}
	}
	return count
}

// Connections returns how many sessions the identity has had so far, and how many of them are live.
func (c *Coordinator) Connections(ctx context.Context, identity string) (total, live int, err error) {
	err = c.do(ctx, func(context.Context) { total, live = c.of(identity).total, len(c.of(identity).live) })
	return total, live, err
}

// WaitConnected blocks until the identity has n live sessions that are not among its first `after` ones and that report
// by the current rules, or until ctx ends.
func (c *Coordinator) WaitConnected(ctx context.Context, identity string, after, n int) error {
	if err := c.until(ctx, func() bool { return c.of(identity).since(after) >= n }); err != nil {
		return err
	}
	// A session starts before its process has received the rules; push returns when the process has acknowledged them.
	return c.do(ctx, c.push)
}

// TypesChanged says that Config.Resolve knows more than before. It returns when the processes report by it.
func (c *Coordinator) TypesChanged(ctx context.Context) error { return c.do(ctx, c.push) }

// until blocks until the condition is true. It evaluates the condition in the owner's goroutine at each change.
func (c *Coordinator) until(ctx context.Context, condition func() bool) error {
	for {
		changed, err := c.Changed(ctx)
		if err != nil {
			return err
		}
		var is bool
		if err := c.do(ctx, func(context.Context) { is = condition() }); err != nil || is {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
