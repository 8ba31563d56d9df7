// Package machine decides what happens in a run of a plan: from events it makes effects, which the coordinator carries
// out.
//
// It promises that the same plan and the same events always give the same effects, so that a recorded run is replayed
// offline. It has no goroutine, clock or I/O.
package machine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/expr"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Machine is the state machine of one plan. One goroutine owns it.
type Machine struct {
	plan     *plan.Plan
	watches  [][]watch // by action and graph node
	next     int       // the action whose trigger is awaited; len(plan.Actions) when all have fired
	blocked  int       // the synchronous action that must complete first; -1: none
	trigger  *awaited
	held     Holds
	pauses   pauses
	failures failures
	reading  reads
	pending  []int  // actions whose pauses wait for running reads to end
	finished []bool // by action: completed
	lasting  lasting
	ended    bool
	ordered  bool // what the plan's schedule orders is held
	wants    int  // changes whenever what the plan waits for does

	controllers []record.Controller
	stale       *staleness
	reconciles  reconciles
	since       []time.Time // by action: when it fired
	witness     *witness    // nil: no account is needed
}

// call identifies one call of a process.
type call struct{ session, id uint64 }

// Holds are the observations that are held, in order.
type Holds []heldObservation

type heldObservation struct {
	seq     int
	session uint64
	action  int  // held until this action completes; -1: none
	pause   int  // held by the pause of this action; -1: none
	order   bool // held until the schedule lets it go on
	origin  *record.Observation
	since   time.Time
}

// Effect is something that the coordinator must do.
type Effect interface{ effect() }

// The effects.
type (
	// StartTimer asks for a record.Timeout event for that action and node after the definition's timeout.
	StartTimer struct{ Action, Node int }
	// Fire asks for the action to be carried out; FiredBy is the event that satisfied its trigger. About is the object
	// of the last observation that satisfied a part of it; zero: there was none.
	Fire struct {
		Action, FiredBy int
		About           plan.ResourceKey
	}
	// Release releases an observation: its caller goes on, or its call fails.
	Release struct {
		Seq  int
		Fail *plan.CallFailure // nil: it does not
	}
	// Hold says that the observation is held; Why is for the user.
	Hold struct {
		Seq int
		Why string
	}
	// Pausing says that the pauses have changed: processes must have their new interests before the action completes.
	Pausing struct{ Action int }
	// Stale says that a controller was shown a past state, for the first time.
	Stale struct{ Read record.StaleRead }
	// Note is a remark about an action that is not an error.
	Note struct {
		Action int
		Text   string
	}
)

func (StartTimer) effect() {}
func (Fire) effect()       {}
func (Release) effect()    {}
func (Hold) effect()       {}
func (Pausing) effect()    {}
func (Stale) effect()      {}
func (Note) effect()       {}

// New prepares a complete, valid plan for the controllers under test. It returns an error if a trigger has no
// graph (see [plan.Plan.Complete]) or a condition does not compile.
func New(p *plan.Plan, controllers []record.Controller) (*Machine, error) {
	m := &Machine{
		plan: p, blocked: -1, reading: reads{}, finished: make([]bool, len(p.Actions)),
		failures:    failures{made: make([]int, len(p.Actions))},
		lasting:     lasting{},
		controllers: controllers, stale: newStaleness(p, controllers), reconciles: reconciles{},
		since: make([]time.Time, len(p.Actions)),
	}
	for i := range p.Actions {
		a := &p.Actions[i]
		if a.Trigger.Graph == nil {
			return nil, fmt.Errorf("action %d: the plan is not complete: its trigger has no graph", i+1)
		}
		byName := map[string]watch{}
		for j := range a.Trigger.Definitions {
			d := &a.Trigger.Definitions[j]
			w := watch{definition: d}
			switch d.Condition.Type {
			case plan.OnTimeout, plan.OnNone:
			default:
				w.point, w.phase = wirePoint(d.Observe.Timing)
				if w.point == "" {
					return nil, fmt.Errorf("action %d, trigger %q: unknown timing %q", i+1, d.Name, d.Observe.Timing)
				}
				if w.point != wire.Reconcile && w.point != wire.AnnotatedCall {
					var err error
					if w.matcher, err = plan.NewMatcher(&d.Condition); err != nil {
						return nil, fmt.Errorf("action %d, trigger %q: %w", i+1, d.Name, err)
					}
				}
			}
			byName[d.Name] = w
		}
		var nodes []watch
		for n := range a.Trigger.Graph.Len() {
			nodes = append(nodes, byName[a.Trigger.Graph.Name(n)])
		}
		m.watches = append(m.watches, nodes)
	}
	return m, nil
}

// Start enables the first action's trigger.
func (m *Machine) Start() []Effect { return m.enable(0) }

// Done reports whether every action has completed.
func (m *Machine) Done() bool { return !slices.Contains(m.finished, false) }

// Ended reports whether the plan has ended.
func (m *Machine) Ended() bool { return m.ended }

// Fired is the number of actions whose triggers were satisfied.
func (m *Machine) Fired() int { return m.next }

// AtOnce reports whether a synchronous action without waitBefore is being carried out.
func (m *Machine) AtOnce() bool {
	return m.blocked >= 0 && m.plan.Actions[m.blocked].WaitBefore == 0
}

// WaitsForTimer reports whether the plan can go on without any observation: the awaited trigger waits for a timeout, or
// an action is being carried out.
func (m *Machine) WaitsForTimer() bool {
	for i := range m.next {
		if !m.finished[i] {
			return true
		}
	}
	if m.trigger == nil {
		return false
	}
	for _, n := range m.trigger.Enabled() {
		if m.watches[m.next][n].definition.Condition.Type == plan.OnTimeout {
			return true
		}
	}
	return false
}

// Step judges one event. The event's Seq identifies its observation in later effects.
func (m *Machine) Step(e record.Event) []Effect {
	m.reconciles.track(e)
	effects := m.judge(e)
	for _, effect := range effects {
		if f, ok := effect.(Fire); ok {
			m.since[f.Action] = e.Time
		}
	}
	if read := m.stale.step(e, m.held); read != nil {
		effects = append(effects, Stale{Read: *read})
	}
	return effects
}

// StaleReads lists each controller's first stale read.
func (m *Machine) StaleReads() []record.StaleRead { return slices.Clone(m.stale.reads) }

// NoneStale says why no controller was shown a past state, one line for each cause; nil if one was or if the plan
// pauses no API server.
func (m *Machine) NoneStale() []string { return m.stale.none() }

func (m *Machine) judge(e record.Event) []Effect {
	switch {
	case e.Observation != nil:
		return m.observe(e)
	case e.Timeout != nil:
		if m.ended || e.Timeout.Action != m.next || m.trigger == nil {
			return nil // the trigger was satisfied another way
		}
		return m.satisfy(e.Seq, []int{e.Timeout.Node})
	case e.Began != nil:
		return m.began(*e.Began)
	case e.Resumed != nil:
		return m.goOn(e.Resumed)
	case e.Completed != nil:
		return m.completed(*e.Completed)
	case e.SessionEnd != nil:
		return m.sessionEnd(e.SessionEnd.Session)
	case e.Expired != nil:
		return m.letGo(*e.Expired)
	case e.Abandoned != nil:
		return m.letGo(*e.Abandoned)
	case e.Lapsed != nil:
		delete(m.lasting, *e.Lapsed)
	case e.Ordered:
		m.ordered = true
	case e.Choice != nil:
		if m.held.chosen(e.Choice.Event) {
			return m.repause()
		}
	case e.End:
		return m.end()
	}
	return nil
}

// enable makes the next action's trigger the awaited one. Triggers of type none are satisfied at once, by the event
// that enabled them (0 if none).
func (m *Machine) enable(firedBy int) []Effect {
	m.wants++
	m.trigger = nil
	if m.ended || m.blocked >= 0 || m.next >= len(m.plan.Actions) {
		return nil
	}
	graph := m.plan.Actions[m.next].Trigger.Graph
	m.trigger = &awaited{
		Progress: expr.NewProgress(graph), action: m.next, watches: m.watches[m.next], counts: make([]int, graph.Len()),
		misses: make([]miss, graph.Len()), witness: m.witness,
	}
	return m.nodesEnabled(firedBy, m.trigger.Enabled())
}

// nodesEnabled starts timers and satisfies nodes that need no event.
func (m *Machine) nodesEnabled(seq int, nodes []int) []Effect {
	if m.witness != nil {
		m.witness.enabled(m.next, nodes)
	}
	var effects []Effect
	var atOnce []int
	for _, n := range nodes {
		switch m.watches[m.next][n].definition.Condition.Type {
		case plan.OnTimeout:
			effects = append(effects, StartTimer{Action: m.next, Node: n})
		case plan.OnNone:
			atOnce = append(atOnce, n)
		}
	}
	if len(atOnce) > 0 {
		effects = append(effects, m.satisfy(seq, atOnce)...)
	}
	return effects
}

// satisfy satisfies nodes of the awaited trigger and fires the action if the trigger is then satisfied.
func (m *Machine) satisfy(seq int, nodes []int) []Effect {
	m.wants++
	enabled, _ := m.trigger.Satisfy(nodes...)
	if m.witness != nil {
		m.witness.satisfied(m.next, seq, nodes, m.trigger.Done())
	}
	if !m.trigger.Done() {
		return m.nodesEnabled(seq, enabled)
	}
	i := m.next
	m.next++
	effects := []Effect{Fire{Action: i, FiredBy: seq, About: m.trigger.about}}
	if a := &m.plan.Actions[i]; !a.Async || a.WaitBefore > 0 {
		m.blocked = i // until it completes; an asynchronous action until it begins
	}
	return append(effects, m.enable(seq)...)
}

func (m *Machine) observe(e record.Event) []Effect {
	seq, o := e.Seq, e.Observation
	if o.Point == wire.ControllerRead && o.Phase == wire.After {
		delete(m.reading, call{o.Session, o.Call})
	}
	var effects []Effect
	heldBy := -1
	if m.trigger != nil && !m.ended && !o.Aside {
		var hits []int
		l := newLook(o)
		for _, n := range m.trigger.Enabled() {
			if m.trigger.matches(n, l) {
				m.trigger.counts[n]++
				if m.trigger.counts[n] >= max(1, m.trigger.watches[n].definition.Condition.Repeat) {
					hits = append(hits, n)
				}
			}
		}
		if len(hits) > 0 {
			if o.Name != "" {
				m.trigger.about = plan.ResourceKey{Type: o.Kind, Group: o.Group, Namespace: o.Namespace, Name: o.Name}
			}
			effects = append(effects, m.satisfy(seq, hits)...)
			// An action whose trigger is of type none counts as fired by the event that enabled it.
			heldBy = m.blocking()
		}
	}
	h := heldObservation{seq: seq, session: o.Session, action: heldBy, pause: m.pauses.by(o),
		order: m.ordered && orders(m.controllers, o), origin: o, since: e.Time}
	if m.ended || h.free() {
		effects = append(effects, m.release(h))
	} else {
		m.held = append(m.held, h)
		effects = append(effects, Hold{Seq: seq, Why: h.why(m.Name)})
	}
	return append(effects, m.readsEnded()...)
}

// release releases an observation. A read is running from the release of its "before" on.
func (m *Machine) release(h heldObservation) Effect {
	if h.origin.Point == wire.ControllerRead && h.origin.Phase == wire.Before && !m.ended {
		m.reading[call{h.origin.Session, h.origin.Call}] = h.origin.By
	}
	return Release{Seq: h.seq, Fail: m.failures.fail(h.origin)}
}

// blocking returns the synchronous action that must complete before the plan goes on; -1: none.
func (m *Machine) blocking() int {
	if m.blocked < 0 || m.plan.Actions[m.blocked].Async {
		return -1
	}
	return m.blocked
}

// why describes what holds an observation. Name returns the name of an action.
func (h heldObservation) why(name func(action int) string) string {
	switch {
	case h.action >= 0:
		return fmt.Sprintf("until %s is complete", name(h.action))
	case h.pause < 0:
		return "until the schedule lets it go on"
	}
	return "paused by " + name(h.pause)
}

// Awaited explains what the plan still waits for and what came nearest. It is nil if all actions have fired.
func (m *Machine) Awaited() *record.Awaited {
	if m.next >= len(m.plan.Actions) {
		return nil
	}
	all := &record.Awaited{Action: m.next}
	if m.trigger == nil {
		all.Triggers = []string{"its trigger was not enabled, because the action before it did not complete"}
		return all
	}
	for _, n := range m.trigger.Enabled() {
		d := m.watches[m.next][n].definition
		text := fmt.Sprintf("trigger %q still waits for %s", d.Name, describeDefinition(d))
		if miss := m.trigger.misses[n]; miss.rank > 0 {
			text += fmt.Sprintf("; nearest miss of %d: %s", miss.count, miss.text)
		} else if d.Condition.Type != plan.OnTimeout {
			text += "; nothing like it was observed"
		}
		all.Triggers = append(all.Triggers, text)
	}
	return all
}

// Waiting is Awaited in lines, one for each trigger.
func (m *Machine) Waiting() []string {
	awaited := m.Awaited()
	if awaited == nil {
		return nil
	}
	return awaited.Lines(m.plan.Actions[awaited.Action].String())
}

// Next returns the action whose trigger the plan waits for, and what is still missing; -1 if all have fired.
func (m *Machine) Next() (index int, text string) {
	switch {
	case m.ended || m.next >= len(m.plan.Actions):
		return -1, ""
	case m.blocked >= 0:
		return m.next, "after " + m.Name(m.blocked)
	case m.trigger == nil:
		return m.next, ""
	}
	return m.next, "when: " + m.trigger.waits()
}

// readsEnded puts pauses into force that waited for running reads to end.
func (m *Machine) readsEnded() []Effect {
	var effects []Effect
	var kept []int
	for _, i := range m.pending {
		p := plan.EffectOf[*plan.Pause](&m.plan.Actions[i])
		if m.reading.by(p.By) {
			kept = append(kept, i)
			continue
		}
		effects = append(effects, m.pauses.begin(i, p))
	}
	m.pending = kept
	return effects
}

// reads are the running reads, and the controllers that they are of.
type reads map[call]string

// by reports whether a read of the controller is running.
func (all reads) by(controller string) bool {
	return slices.Contains(slices.Collect(maps.Values(all)), controller)
}

func (m *Machine) began(i int) []Effect {
	a := &m.plan.Actions[i]
	var effects []Effect
	if a.Async && m.blocked == i {
		m.blocked = -1
		effects = m.enable(0)
	}
	for _, e := range a.Effects() {
		switch e := e.(type) {
		case *plan.Pause:
			if e.AvoidOngoingRead && m.reading.by(e.By) {
				m.pending = append(m.pending, i)
				continue
			}
			effects = append(effects, m.pauses.begin(i, e))
		case *plan.Resume:
			if !e.OneByOne {
				effects = append(effects, m.resume(i, e)...)
			}
		case *plan.CallFailure:
			m.failures.active = append(m.failures.active, failingOf(i, e))
		case *plan.Restore:
			if !m.failures.restore(e) {
				effects = append(effects, Note{Action: i, Text: "ended nothing: no call was made to fail any longer"})
			}
		}
		m.lasting.began(i, e)
	}
	return effects
}

// resume ends the pauses that match what the action names.
func (m *Machine) resume(i int, what *plan.Resume) []Effect {
	var kept pauses
	for _, p := range m.pauses {
		if !what.Ends(p.what) {
			kept = append(kept, p)
		}
	}
	var effects []Effect
	if len(kept) == len(m.pauses) {
		effects = append(effects, Note{Action: i, Text: "ended no pause: no matching pause was in force"})
	}
	m.pauses = kept
	if m.plan.Actions[i].WaitAfter > 0 {
		effects = append(effects, m.repause()...)
	}
	// Otherwise held observations are released when the action completes: the next action's trigger must be enabled
	// first.
	return append(effects, Pausing{Action: i})
}

// goOn lets one observation go on that is held only by the pauses that an action ends. If there is none, or all are to
// go on, it ends the pauses.
func (m *Machine) goOn(r *record.Resumed) []Effect {
	if m.ended {
		return nil
	}
	what := plan.EffectOf[*plan.Resume](&m.plan.Actions[r.Action])
	at := slices.IndexFunc(m.held, func(h heldObservation) bool {
		by := func(ending bool) bool {
			return slices.ContainsFunc(m.pauses, func(p pause) bool {
				return p.takes(h.origin) && what.Ends(p.what) == ending
			})
		}
		return h.action < 0 && by(true) && !by(false)
	})
	if r.All || at < 0 {
		return m.resume(r.Action, what)
	}
	h := m.held[at]
	m.held = slices.Delete(m.held, at, at+1)
	return []Effect{m.release(h)}
}

// Resuming reports whether a pause is in force that the i-th action ends.
func (m *Machine) Resuming(i int) bool {
	what := plan.EffectOf[*plan.Resume](&m.plan.Actions[i])
	return what != nil && slices.ContainsFunc(m.pauses, func(p pause) bool { return what.Ends(p.what) })
}

// repause releases held observations that no remaining pause or action holds.
func (m *Machine) repause() []Effect {
	var effects []Effect
	var kept Holds
	for _, h := range m.held {
		if h.pause >= 0 {
			h.pause = m.pauses.by(h.origin)
		}
		if h.free() {
			effects = append(effects, m.release(h))
			continue
		}
		kept = append(kept, h)
	}
	m.held = kept
	return effects
}

func (m *Machine) completed(i int) []Effect {
	m.finished[i] = true
	var effects []Effect
	next := -1
	if m.blocked == i {
		m.blocked = -1
		effects = append(effects, m.enable(0)...)
		// An action with trigger type none happens at the same moment as the action before it: the observation that
		// fired that action waits for this one too. Observations that a resume has released do not wait; between two
		// pauses a process goes on.
		next = m.blocking()
	}
	for n := range m.held {
		h := &m.held[n]
		if h.action != i {
			continue
		}
		// The pause that this action began also holds the observation that fired it, if it is in scope.
		h.action, h.pause = next, m.pauses.by(h.origin)
		if h.action >= 0 || h.pause >= 0 {
			effects = append(effects, Hold{Seq: h.seq, Why: h.why(m.Name)})
		}
	}
	return append(effects, m.repause()...)
}

func (m *Machine) sessionEnd(session uint64) []Effect {
	m.held = slices.DeleteFunc(m.held, func(h heldObservation) bool { return h.session == session })
	for c := range m.reading {
		if c.session == session {
			delete(m.reading, c)
		}
	}
	return m.readsEnded()
}

// letGo ends a hold early: its deadline has passed, or its caller has gone on.
func (m *Machine) letGo(seq int) []Effect {
	for i, h := range m.held {
		if h.seq == seq {
			m.held = slices.Delete(m.held, i, i+1)
			if h.origin.Point == wire.ControllerWrite {
				return []Effect{Release{Seq: seq}} // an answer that could make it fail is not waited for
			}
			return []Effect{m.release(h)}
		}
	}
	return nil
}

// end releases everything; nothing is held or fired afterwards.
func (m *Machine) end() []Effect {
	m.ended = true
	m.wants++
	m.pauses, m.pending, m.failures.active, m.lasting = nil, nil, nil, lasting{}
	var effects []Effect
	for _, h := range m.held {
		effects = append(effects, Release{Seq: h.seq})
	}
	m.held = nil
	return effects
}

// Condition returns what a node of an action's trigger waits for.
func (m *Machine) Condition(action, node int) *plan.Condition {
	return &m.watches[action][node].definition.Condition
}

// Wants returns a number that changes whenever what the plan waits for does.
func (m *Machine) Wants() int { return m.wants }
