package coordinator

import (
	"context"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/plan"
)

// freezer knows the processes that the plan has frozen, by their sessions. The coordinator does not wait for
// their answers. The goroutine of Run owns it.
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

// freezes names the controller of which an action freezes a process; empty: none.
func freezes(a *plan.Action) string {
	if f := plan.EffectOf[*plan.Freeze](a); f != nil {
		return f.Controller
	}
	return ""
}

// ask keeps the session whose observation has fired an action that freezes a process of the same controller.
func (f *freezer) ask(action int, s *monitor.Session) { f.asked[action] = s }

// aimedAt returns the process that an action freezes: the one whose observation has fired the action, or else its
// controller's only process, or the only one that has been elected leader. Nil: it is not known.
func (f *freezer) aimedAt(action int, name string, e *elections, live []*monitor.Session) *monitor.Session {
	if s := f.asked[action]; s != nil {
		return s
	}
	all := slices.DeleteFunc(live, func(s *monitor.Session) bool { return s.Identity != name })
	if len(all) > 1 {
		all = e.elected(all, name)
	}
	if len(all) != 1 {
		return nil
	}
	return all[0]
}

// freeze records that an action freezes a process from now on.
func (f *freezer) freeze(action int, s *monitor.Session, now time.Time) {
	f.sessions[s.ID] = &freeze{action: action, session: s, since: now}
}

// thaw records that processes have been thawed, and returns their sessions.
func (f *freezer) thaw(thawed func(*freeze) bool) []uint64 {
	var all []uint64
	for id, s := range f.sessions {
		if s.until.IsZero() && thawed(s) {
			s.until = time.Now()
			all = append(all, id)
		}
	}
	return all
}

// end drops a session that has ended. It reports whether its process was frozen, and by which action.
func (f *freezer) end(session uint64) (action int, frozen bool) {
	s := f.sessions[session]
	delete(f.sessions, session)
	if s == nil || !s.until.IsZero() {
		return 0, false
	}
	return s.action, true
}

// takingOver reports whether a leader is frozen and another process may still become the leader: its lease has expired
// or will expire, and not as long ago as it lasts.
func (f *freezer) takingOver(now time.Time, e *elections, live []*monitor.Session) bool {
	for id, s := range f.sessions {
		name := s.session.Identity
		if s.until.IsZero() && e.leads[id] && now.Sub(s.since) < 2*e.lease(name) &&
			!slices.ContainsFunc(e.elected(live, name), func(s *monitor.Session) bool { return s.ID != id }) {
			return true
		}
	}
	return false
}

// melt handles that an action was carried out, or undone: processes that it has thawed, or failed to freeze, get the
// rules that are in force now. It blocks until they have acknowledged them.
func (c *Coordinator) melt(ctx context.Context, i int, failed, undone bool) error {
	var thawed func(f *freeze) bool
	a := &c.config.Plan.Actions[i]
	thaw, freezes := plan.EffectOf[*plan.Thaw](a), freezes(a)
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
	return c.loop.do(ctx, func(run context.Context) {
		for _, session := range c.freezer.thaw(thawed) {
			// Lookups from before it was frozen are too old for what its writes do now.
			c.lookups.forget(session)
		}
		c.settling.stir(c.clock.Now())
		c.push(run)
	})
}
