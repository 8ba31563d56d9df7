package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// reconcile is a reconcile that is running.
type reconcile struct {
	by, id, request string
	since           time.Time
	last            *record.Observation // its newest read or write; nil: none observed
	lastTime        time.Time
}

// reconciles are the running reconciles of the controllers that the plan pauses.
type reconciles map[call]*reconcile

// track takes in an event.
func (all reconciles) track(e record.Event) {
	if e.SessionEnd != nil {
		maps.DeleteFunc(all, func(c call, _ *reconcile) bool { return c.session == e.SessionEnd.Session })
	}
	o := e.Observation
	switch {
	case o == nil:
	case o.Point == wire.Reconcile && o.Phase == wire.Before:
		all[call{o.Session, o.Call}] = &reconcile{by: o.By, id: o.ReconcileID, request: o.Request,
			since: e.Time}
	case o.Point == wire.Reconcile:
		delete(all, call{o.Session, o.Call})
	case o.ReconcileID != "":
		for c, r := range all {
			if c.session == o.Session && r.id == o.ReconcileID {
				r.last, r.lastTime = o, e.Time
			}
		}
	}
}

// situation is a machine at one time, for which it explains who waits for whom.
type situation struct {
	*Machine
	now  time.Time                  // zero: durations are left out
	live func(identity string) bool // whether it is connected
}

// Stuck says in one line who waits for whom: what is held, by which pause, what would end the pause, and what the
// processes that should bring this about are doing; also which calls fail until they are restored, and which processes
// are frozen. It is empty if nothing is held, paused or frozen and no calls fail. If now is zero, it leaves out
// durations. Live reports whether an identity is connected.
func (m *Machine) Stuck(now time.Time, live func(identity string) bool) string {
	s := situation{m, now, live}
	last := append(s.denied(), s.lasts()...)
	if m.ended || !m.Holding() && len(last) == 0 {
		return ""
	}
	clauses := append(s.holds(), last...)
	if len(clauses) == 0 {
		for _, p := range m.pauses {
			clauses = append(clauses, fmt.Sprintf("%s has nothing to hold yet, %s", m.Name(p.action),
				s.endOfPause(p)))
		}
	}
	for _, by := range s.expected() {
		clauses = append(clauses, s.doing(by)...)
	}
	if d := s.deadlock(); d != "" {
		clauses = append(clauses, d)
	}
	return strings.Join(clauses, "; ")
}

// since formats the time that has passed, or returns "" if either time is zero.
func since(format string, now, then time.Time) string {
	if now.IsZero() || then.IsZero() {
		return ""
	}
	return fmt.Sprintf(format, now.Sub(then).Round(time.Second))
}

// Name returns an action's name for messages.
func (m *Machine) Name(i int) string {
	a := &m.plan.Actions[i]
	what := a.String()
	if a.PauseAt != "" {
		what += " at " + string(a.PauseAt)
	}
	return record.ActionName(i, what)
}

// holds describes what is held, in one clause for each pause or action that holds something.
func (m situation) holds() []string {
	var clauses []string
	var told [][2]int
	for _, h := range m.held {
		by := [2]int{h.action, h.pause}
		if slices.Contains(told, by) || h.onlyOrdered() {
			continue
		}
		told = append(told, by)
		more := -1
		for _, k := range m.held {
			if k.action == h.action && k.pause == h.pause {
				more++
			}
		}
		what := DescribeHeld(h.origin)
		if more > 0 {
			what += fmt.Sprintf(" (and %d more)", more)
		}
		what += " has been held" + since(" for %s", m.now, h.since)
		if h.action >= 0 {
			clauses = append(clauses, fmt.Sprintf("%s until %s is complete, which is running", what,
				m.Name(h.action)))
			continue
		}
		what += " by " + m.Name(h.pause)
		for _, p := range m.pauses {
			if p.action == h.pause {
				what += ", " + m.endOfPause(p)
			}
		}
		clauses = append(clauses, what)
	}
	return clauses
}

// What ends an effect for which the plan has no action.
const (
	onlyTheEnd      = "which only the end of the plan ends"
	onlyTheDeadline = "which only the hold's deadline or the end of the plan ends"
)

// endOfPause describes what ends a pause: an action that resumes it or kills the process.
func (m situation) endOfPause(p pause) string {
	return m.endOf(func(i int) bool {
		a := &m.plan.Actions[i]
		resume := plan.EffectOf[*plan.Resume](a)
		return resume != nil && resume.Ends(p.what) || a.Stops(p.what.By) && i > p.action
	}, onlyTheDeadline)
}

// endOf describes which action ends an effect, and when. If there is none, it returns otherwise.
func (m situation) endOf(ends func(action int) bool, otherwise string) string {
	for i := range m.plan.Actions {
		if i < m.next && m.finished[i] || !ends(i) {
			continue
		}
		switch {
		case i < m.next:
			return fmt.Sprintf("which %s ends, which is running", m.Name(i))
		case i == m.next && m.trigger != nil:
			return fmt.Sprintf("which %s ends when: %s", m.Name(i), m.trigger.waits())
		case m.trigger == nil:
			return fmt.Sprintf("which %s ends, after %s, which is running", m.Name(i), m.Name(m.blocked))
		}
		return fmt.Sprintf("which %s ends, after %s, which comes when: %s",
			m.Name(i), m.Name(m.next), m.trigger.waits())
	}
	return otherwise
}

// expected lists the identities whose observations the awaited trigger waits for now.
func (m situation) expected() []string {
	var all []string
	if m.trigger == nil {
		return nil
	}
	for _, n := range m.trigger.Enabled() {
		if by := m.watches[m.next][n].definition.Observe.ObserveBy; by != "" && !slices.Contains(all, by) {
			all = append(all, by)
		}
	}
	slices.Sort(all)
	return all
}

// doing describes what an identity is doing while the awaited trigger waits for it.
func (m situation) doing(by string) []string {
	if !m.live(by) {
		return []string{by + " is not connected"}
	}
	if plan.IsAPIServer(by) {
		return nil
	}
	var clauses []string
	delivery := false
	for _, h := range m.held {
		delivery = delivery || h.origin.By == by && h.origin.Point == wire.ControllerRecv
	}
	for _, c := range m.reconciles.of(by) {
		r := m.reconciles[c]
		if m.held.reconcile(c.session, r.id) {
			continue
		}
		s := fmt.Sprintf("%s's reconcile of %s%s", by, r.request, since(", begun %s ago,", m.now, r.since))
		if r.last != nil {
			s += fmt.Sprintf(" since its %s", callName(r.last)) + since(", %s ago,", m.now, r.lastTime)
		}
		s += " neither reads nor writes"
		if delivery && m.readsOwnWrites(by) {
			s += ": it may be waiting for that delivery (controller-runtime ≥ 0.25 can make reads wait for the " +
				"controller's own writes), which would be a deadlock"
		}
		clauses = append(clauses, s)
	}
	if len(clauses) == 0 && delivery && len(m.held.calls(by)) == 0 {
		clauses = append(clauses, by+" has no observed reconcile running: it may be waiting for what is held")
	}
	return clauses
}

// of lists a controller's reconciles, oldest first.
func (all reconciles) of(by string) []call {
	var list []call
	for c, r := range all {
		if r.by == by {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b call) int {
		if d := all[a].since.Compare(all[b].since); d != 0 {
			return d
		}
		return int(a.id) - int(b.id)
	})
	return list
}

// reconcile reports whether a call of the reconcile is held.
func (all Holds) reconcile(session uint64, reconcile string) bool {
	return slices.ContainsFunc(all, func(h heldObservation) bool {
		return h.session == session && h.origin.ReconcileID == reconcile && reconcile != ""
	})
}

// calls lists the held calls of a controller. Deliveries are left out: they hold only an informer.
func (all Holds) calls(by string) Holds {
	var list Holds
	for _, h := range all {
		if h.origin.By == by && h.action < 0 && h.origin.Point != wire.ControllerRecv {
			list = append(list, h)
		}
	}
	return list
}

func (m situation) readsOwnWrites(by string) bool {
	return slices.ContainsFunc(m.controllers, func(c record.Controller) bool {
		return c.Name == by && c.ControllerRuntime != "" && semver.Compare(c.ControllerRuntime, "v0.25.0-0") >= 0
	})
}

// deadlock describes a cycle: every process that could end the holds is held itself.
func (m situation) deadlock() string {
	if m.trigger == nil || len(m.held) == 0 {
		return ""
	}
	var cycle []string
	workers := false
	for _, n := range m.trigger.Enabled() {
		w := m.watches[m.next][n]
		by := w.definition.Observe.ObserveBy
		if by == "" {
			return "" // a timeout
		}
		held := m.held.calls(by)
		if plan.IsAPIServer(by) {
			// It receives the events of a resource one after the other.
			held = slices.DeleteFunc(held, func(h heldObservation) bool {
				return h.origin.Kind != w.definition.Condition.ResourceKey.Type
			})
		} else {
			if slices.ContainsFunc(m.reconciles.of(by), func(c call) bool {
				return !m.held.reconcile(c.session, m.reconciles[c].id)
			}) {
				return ""
			}
			workers = true
		}
		if len(held) == 0 {
			return ""
		}
		if !slices.Contains(cycle, by) {
			cycle = append(cycle, by)
		}
	}
	if len(cycle) == 0 {
		return ""
	}
	slices.Sort(cycle)
	s := "a deadlock: " + strings.Join(cycle, " and ") + " wait for each other"
	if len(cycle) == 1 {
		s = fmt.Sprintf("a deadlock: %s waits for itself", cycle[0])
	}
	if workers {
		s += ", unless another worker of the controller acts"
	}
	return s
}

// DescribeHeld says which call of which process is held.
func DescribeHeld(o *record.Observation) string {
	switch o.Point {
	case wire.ControllerRecv:
		return fmt.Sprintf("%s's delivery of the %s", o.By, objectEvent(o))
	case wire.APIServerRecv:
		return fmt.Sprintf("%s's receipt of the %s", o.By, objectEvent(o))
	}
	name := callName(o)
	if o.Phase == wire.After {
		name = "return from its " + name
	}
	return o.By + "'s " + name
}

func objectEvent(o *record.Observation) string {
	return fmt.Sprintf("%s of %s/%s/%s", record.Noun(o.Op), o.Kind, o.Namespace, o.Name)
}

// callName describes a call of a controller.
func callName(o *record.Observation) string {
	switch o.Point {
	case wire.Reconcile:
		return "reconcile of " + o.Request
	case wire.AnnotatedCall:
		return "call of " + o.CallName
	}
	kind := o.KindOrResource()
	if o.Name == "" && o.Op == wire.List {
		return fmt.Sprintf("list of %s in %s", kind, cmp.Or(o.Namespace, "all namespaces"))
	}
	return fmt.Sprintf("%s of %s/%s/%s", o.Op, kind, o.Namespace, o.Name)
}
