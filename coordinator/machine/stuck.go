package machine

import (
	"fmt"
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

// trackReconcile tracks the running reconciles of the controllers that the plan pauses.
func (m *Machine) trackReconcile(e record.Event) {
	if e.SessionEnd != nil {
		for c := range m.reconciles {
			if c.session == e.SessionEnd.Session {
				delete(m.reconciles, c)
			}
		}
	}
	o := e.Observation
	switch {
	case o == nil:
	case o.Point == wire.Reconcile && o.Phase == wire.Before:
		m.reconciles[call{o.Session, o.Call}] = &reconcile{by: o.By, id: o.ReconcileID, request: o.Request,
			since: e.Time}
	case o.Point == wire.Reconcile:
		delete(m.reconciles, call{o.Session, o.Call})
	case o.ReconcileID != "":
		for c, r := range m.reconciles {
			if c.session == o.Session && r.id == o.ReconcileID {
				r.last, r.lastTime = o, e.Time
			}
		}
	}
}

// Stuck says in one line who waits for whom: what is held, by which pause, what would end the pause, and what the
// processes that should bring this about are doing; also which calls fail until they are restored, and which processes
// are frozen. It is empty if nothing is held, paused or frozen and no calls fail. If now is zero, it leaves out
// durations. Live reports whether an identity is connected.
func (m *Machine) Stuck(now time.Time, live func(identity string) bool) string {
	last := append(m.denied(), m.clauses(now)...)
	if m.ended || !m.Holding() && len(last) == 0 {
		return ""
	}
	clauses := append(m.holds(now), last...)
	if len(clauses) == 0 {
		for _, p := range m.pauses {
			clauses = append(clauses, fmt.Sprintf("%s has nothing to hold yet, %s", m.Name(p.action),
				m.endOfPause(p)))
		}
	}
	for _, by := range m.expected() {
		clauses = append(clauses, m.doing(by, now, live)...)
	}
	if d := m.deadlock(); d != "" {
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
func (m *Machine) holds(now time.Time) []string {
	var clauses []string
	var told [][2]int
	for _, h := range m.held {
		by := [2]int{h.action, h.pause}
		if slices.Contains(told, by) {
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
		what += " has been held" + since(" for %s", now, h.since)
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
func (m *Machine) endOfPause(p pause) string {
	return m.endOf(func(i int) bool {
		a := &m.plan.Actions[i]
		resume := plan.EffectOf[*plan.Resume](a)
		return resume != nil && resume.Ends(p.what) || a.Stops(p.what.By) && i > p.action
	}, onlyTheDeadline)
}

// endOf describes which action ends an effect, and when. If there is none, it returns otherwise.
func (m *Machine) endOf(ends func(action int) bool, otherwise string) string {
	for i := range m.plan.Actions {
		if i < m.next && m.finished[i] || !ends(i) {
			continue
		}
		switch {
		case i < m.next:
			return fmt.Sprintf("which %s ends, which is running", m.Name(i))
		case i == m.next && m.trigger != nil:
			return fmt.Sprintf("which %s ends when: %s", m.Name(i), m.awaited())
		case m.trigger == nil:
			return fmt.Sprintf("which %s ends, after %s, which is running", m.Name(i), m.Name(m.blocked))
		}
		return fmt.Sprintf("which %s ends, after %s, which comes when: %s", m.Name(i), m.Name(m.next), m.awaited())
	}
	return otherwise
}

// awaited describes what the awaited trigger waits for now.
func (m *Machine) awaited() string {
	var all []string
	for _, n := range m.trigger.Enabled() {
		if d := describeDefinition(m.watches[m.next][n].definition); !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	return strings.Join(all, "; or: ")
}

// expected lists the identities whose observations the awaited trigger waits for now.
func (m *Machine) expected() []string {
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
func (m *Machine) doing(by string, now time.Time, live func(string) bool) []string {
	if !live(by) {
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
	for _, c := range m.reconcilesOf(by) {
		r := m.reconciles[c]
		if m.isHeld(c.session, r.id) {
			continue
		}
		s := fmt.Sprintf("%s's reconcile of %s%s", by, r.request, since(", begun %s ago,", now, r.since))
		if r.last != nil {
			s += fmt.Sprintf(" since its %s", callName(r.last)) + since(", %s ago,", now, r.lastTime)
		}
		s += " neither reads nor writes"
		if delivery && m.readsOwnWrites(by) {
			s += ": it may be waiting for that delivery (controller-runtime ≥ 0.25 can make reads wait for the " +
				"controller's own writes), which would be a deadlock"
		}
		clauses = append(clauses, s)
	}
	if len(clauses) == 0 && delivery && len(m.heldCalls(by)) == 0 {
		clauses = append(clauses, by+" has no observed reconcile running: it may be waiting for what is held")
	}
	return clauses
}

// reconcilesOf lists a controller's reconciles, oldest first.
func (m *Machine) reconcilesOf(by string) []call {
	var list []call
	for c, r := range m.reconciles {
		if r.by == by {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b call) int {
		if d := m.reconciles[a].since.Compare(m.reconciles[b].since); d != 0 {
			return d
		}
		return int(a.id) - int(b.id)
	})
	return list
}

func (m *Machine) isHeld(session uint64, reconcile string) bool {
	return slices.ContainsFunc(m.held, func(h heldObservation) bool {
		return h.session == session && h.origin.ReconcileID == reconcile && reconcile != ""
	})
}

// heldCalls lists the held calls of a controller. Deliveries are left out: they hold only an informer.
func (m *Machine) heldCalls(by string) []heldObservation {
	var list []heldObservation
	for _, h := range m.held {
		if h.origin.By == by && h.action < 0 && h.origin.Point != wire.ControllerRecv {
			list = append(list, h)
		}
	}
	return list
}

func (m *Machine) readsOwnWrites(by string) bool {
	return slices.ContainsFunc(m.controllers, func(c record.Controller) bool {
		return c.Name == by && c.ControllerRuntime != "" && semver.Compare(c.ControllerRuntime, "v0.25.0-0") >= 0
	})
}

// deadlock describes a cycle: every process that could end the holds is held itself.
func (m *Machine) deadlock() string {
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
		held := m.heldCalls(by)
		if plan.IsAPIServer(by) {
			// It receives the events of a resource one after the other.
			held = slices.DeleteFunc(held, func(h heldObservation) bool {
				return h.origin.Kind != w.definition.Condition.ResourceKey.Type
			})
		} else {
			if slices.ContainsFunc(m.reconcilesOf(by), func(c call) bool {
				return !m.isHeld(c.session, m.reconciles[c].id)
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
	kind := o.Kind
	if kind == "" {
		kind = o.Resource
	}
	return fmt.Sprintf("%s of %s/%s/%s", o.Op, kind, o.Namespace, o.Name)
}
