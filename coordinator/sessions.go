package coordinator

import (
	"context"
)

// sessions are those of all identities. The goroutine of Run owns them.
type sessions map[string]*identitySessions

// identitySessions tracks an identity's sessions. Several may be live at once: the end of a killed process's session
// can be noticed after its successor has connected.
type identitySessions struct {
	total int             // ever
	live  map[uint64]int  // by session: its ordinal, from 1
	gone  map[uint64]bool // sessions that have ended
}

// of returns the sessions of an identity.
func (s sessions) of(identity string) *identitySessions {
	if s[identity] == nil {
		s[identity] = &identitySessions{live: map[uint64]int{}, gone: map[uint64]bool{}}
	}
	return s[identity]
}

// connected reports whether an identity has a live session.
func (s sessions) connected(identity string) bool { return s.of(identity).connected() }

func (s *identitySessions) begin(id uint64) {
	s.total++
	s.live[id] = s.total
}

func (s *identitySessions) end(id uint64) {
	delete(s.live, id)
	s.gone[id] = true
}

// hasEnded reports whether a session is known to have ended. Sessions that began before the coordinator are not in
// live.
func (s *identitySessions) hasEnded(id uint64) bool { return s.gone[id] }

func (s *identitySessions) connected() bool { return len(s.live) > 0 }

// since is how many sessions are live that are not among the first `after` ones.
func (s *identitySessions) since(after int) int {
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
	err = c.loop.do(ctx, func(context.Context) {
		sessions := c.sessions.of(identity)
		total, live = sessions.total, len(sessions.live)
	})
	return total, live, err
}

// WaitConnected blocks until the identity has n live sessions that are not among its first `after` ones and that report
// by the current rules, or until ctx ends.
func (c *Coordinator) WaitConnected(ctx context.Context, identity string, after, n int) error {
	if err := c.loop.until(ctx, func() bool { return c.sessions.of(identity).since(after) >= n }); err != nil {
		return err
	}
	// A session starts before its process has received the rules; push returns when the process has acknowledged them.
	return c.loop.do(ctx, c.push)
}

// TypesChanged says that Config.Resolve knows more than before. It returns when the processes report by it.
func (c *Coordinator) TypesChanged(ctx context.Context) error { return c.loop.do(ctx, c.push) }
