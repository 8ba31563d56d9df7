package coordinator

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/actions"
	"github.com/trommel-dev/trommel/coordinator/machine"
	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/plan"
)

// freezer knows the processes that the plan has frozen, by their sessions. Nobody waits for an answer of theirs. The
// goroutine of Run owns it.
type freezer struct {
	asked    map[int]*monitor.Session // by action: whose observation has fired it
	sessions map[uint64]*freeze
}

type freeze struct {
	action  int
	session *monitor.Session
	since   time.Time
	until   time.Time // zero: it is frozen; by the machine's clock, as is how long a process is silent
}

func newFreezer() freezer {
	return freezer{asked: map[int]*monitor.Session{}, sessions: map[uint64]*freeze{}}
}

// now lists the sessions whose processes are frozen.
func (f *freezer) now() []uint64 {
	var all []uint64
	for id, s := range f.sessions {
		if s.until.IsZero() {
			all = append(all, id)
		}
	}
	return all
}

// explains reports whether the plan is why a process has not answered: it was frozen in that time.
func (f *freezer) explains(e monitor.Event, now time.Time) bool {
	s := f.sessions[e.Session.ID]
	return s != nil && (s.until.IsZero() || now.Sub(s.until) < e.Silent)
}

// aim tells an action on one of several processes which one it is. The process counts as frozen before it is stopped,
// so that nobody begins to wait for it.
func (c *Coordinator) aim(ctx context.Context, i int) error {
	aimed, ok := c.actions[i].(actions.Aimed)
	if !ok {
		return nil
	}
	return c.do(ctx, func(context.Context) {
		pid := 0
		if s := c.aimedAt(i); s != nil {
			pid = s.PID
			c.freezer.sessions[s.ID] = &freeze{action: i, session: s, since: c.clock.Now()}
		}
		aimed.Aim(pid)
	})
}

// freezes names the controller of which an action freezes a process; empty: none.
func (c *Coordinator) freezes(action int) string {
	if f := plan.EffectOf[*plan.Freeze](&c.config.Plan.Actions[action]); f != nil {
		return f.Controller
	}
	return ""
}

// aimedAt is the process whose observation has fired the action, or else its controller's only process, or the only one
// that has been elected leader. Nil: it is not known.
func (c *Coordinator) aimedAt(i int) *monitor.Session {
	if s := c.freezer.asked[i]; s != nil {
		return s
	}
	name := c.freezes(i)
	all := slices.DeleteFunc(c.config.Monitor.Sessions(), func(s *monitor.Session) bool { return s.Identity != name })
	if len(all) > 1 {
		all = slices.DeleteFunc(all, func(s *monitor.Session) bool { return !c.elections.leads[s.ID] })
	}
	if len(all) != 1 {
		return nil
	}
	return all[0]
}

// asks keeps whose observation has fired an action that freezes a process of the same controller.
func (c *Coordinator) asks(f machine.Fire) {
	name := c.freezes(f.Action)
	if h := c.holds[f.FiredBy]; name != "" && h != nil && h.event.Session.Identity == name {
		c.freezer.asked[f.Action] = h.event.Session
	}
}

// melt handles that an action was carried out, or undone: processes that it has thawed, or failed to freeze, get the
// rules that are in force now. It blocks until they have acknowledged them.
func (c *Coordinator) melt(ctx context.Context, i int, failed, undone bool) error {
	var thawed func(f *freeze) bool
	thaw, freezes := plan.EffectOf[*plan.Thaw](&c.config.Plan.Actions[i]), c.freezes(i)
	switch {
	case thaw != nil && !undone:
		thawed = func(f *freeze) bool { return f.session.Identity == thaw.Controller }
	case freezes != "" && undone:
		thawed = func(f *freeze) bool { return f.session.Identity == freezes }
	case freezes != "" && failed:
		thawed = func(f *freeze) bool { return f.action == i }
	default:
		return nil
	}
	return c.do(ctx, func(run context.Context) {
		for _, f := range c.freezer.sessions {
			if !f.until.IsZero() || !thawed(f) {
				continue
			}
			f.until = time.Now()
			// Lookups from before it was frozen are too old for what its writes do now.
			maps.DeleteFunc(c.before, func(id call, _ Foresight) bool { return id.session == f.session.ID })
		}
		c.stir()
		c.push(run)
	})
}

// iced handles the end of a session: a process that was frozen has been killed.
func (c *Coordinator) iced(ctx context.Context, s *monitor.Session) {
	f := c.freezer.sessions[s.ID]
	delete(c.freezer.sessions, s.ID)
	if f != nil && f.until.IsZero() && !c.machine.Ended() {
		c.lapse(ctx, f.action)
	}
}

// takingOver reports whether a leader is frozen and another process may still become the leader: its lease has expired
// or will expire, and not as long ago as it lasts.
func (c *Coordinator) takingOver(now time.Time) bool {
	for _, f := range c.freezer.sessions {
		name := f.session.Identity
		if f.until.IsZero() && c.elections.leads[f.session.ID] && now.Sub(f.since) < 2*c.elections.lease(name) &&
			!slices.ContainsFunc(c.config.Monitor.Sessions(), func(s *monitor.Session) bool {
				return s.Identity == name && s.ID != f.session.ID && c.elections.leads[s.ID]
			}) {
			return true
		}
	}
	return false
}
