package machine

import (
	"maps"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// toldMisses is how many misses of a trigger an account keeps.
const toldMisses = 3

// Account replays recorded events like [Replay] and returns what was held and how far each trigger came.
func Account(p *plan.Plan, controllers []record.Controller, events []record.Event) (*record.Account, error) {
	m, err := New(p, controllers)
	if err != nil {
		return nil, err
	}
	w := &witness{machine: m, open: map[int]int{}, lasts: map[int]int{}, misses: map[[2]int][]seenMiss{}}
	m.witness = w
	w.take(record.Event{}, m.Start())
	for i, e := range events {
		if e.Seq != i+1 {
			return nil, missing(i, e)
		}
		w.event = e
		w.take(e, m.Step(e))
		w.gone(e)
		w.lasting()
	}
	for i := range w.account.Triggers {
		w.finish(i)
	}
	for _, at := range w.open {
		w.account.Holds[at].End = record.HoldOver
	}
	return &w.account, nil
}

// witness writes down what a machine does.
type witness struct {
	machine *Machine
	account record.Account
	event   record.Event
	open    map[int]int // by Seq of the held observation: the index of its hold
	lasts   map[int]int // by action: the index of its effect that lasts
	misses  map[[2]int][]seenMiss
}

// seenMiss is a miss with the observation that it is about.
type seenMiss struct {
	miss
	event int
}

// enabled says that nodes of an action's trigger are enabled now.
func (w *witness) enabled(action int, nodes []int) {
	for len(w.account.Triggers) <= action {
		next := record.Trigger{Enabled: w.event.Time}
		for _, n := range w.machine.watches[len(w.account.Triggers)] {
			next.Nodes = append(next.Nodes, record.TriggerNode{Name: n.definition.Name,
				Waits: describeDefinition(n.definition), State: record.TriggerAsleep})
		}
		w.account.Triggers = append(w.account.Triggers, next)
	}
	for _, n := range nodes {
		w.account.Triggers[action].Nodes[n].State = record.TriggerWaiting
	}
}

// satisfied says that the current event satisfies nodes of an action's trigger, and whether that is all it waits for.
func (w *witness) satisfied(action, seq int, nodes []int, done bool) {
	t := &w.account.Triggers[action]
	for _, n := range nodes {
		t.Nodes[n].State, t.Nodes[n].By = record.TriggerSatisfied, seq
	}
	if done {
		t.Satisfied = w.event.Time
		for n := range t.Nodes {
			if t.Nodes[n].State == record.TriggerWaiting {
				t.Nodes[n].State = record.TriggerDropped
			}
		}
	}
}

// missed says that the current event does not match a node that it could have matched.
func (w *witness) missed(action, node int, this miss) {
	w.account.Triggers[action].Nodes[node].Missed++
	at := [2]int{action, node}
	all := w.misses[at]
	i := slices.IndexFunc(all, func(s seenMiss) bool { return this.nearer(s.miss) })
	if i < 0 {
		i = len(all)
	}
	all = slices.Insert(all, i, seenMiss{this, w.event.Seq})
	w.misses[at] = all[:min(len(all), toldMisses)]
}

func (w *witness) finish(action int) {
	for n := range w.account.Triggers[action].Nodes {
		node := &w.account.Triggers[action].Nodes[n]
		for _, s := range w.misses[[2]int{action, n}] {
			node.Misses = append(node.Misses, record.Miss{Event: s.event, Text: s.text})
		}
	}
}

// take notes which holds begin and end with an event.
func (w *witness) take(e record.Event, effects []Effect) {
	for _, effect := range effects {
		switch effect := effect.(type) {
		case Hold:
			w.held(effect.Seq, e)
		case Release:
			end := record.HoldReleased
			switch {
			case e.End:
				end = record.HoldOver
			case e.Expired != nil && *e.Expired == effect.Seq:
				end = record.HoldExpired
			case e.Abandoned != nil && *e.Abandoned == effect.Seq:
				end = record.HoldAbandoned
			}
			w.end(effect.Seq, e.Time, end)
		}
	}
}

func (w *witness) held(seq int, e record.Event) {
	for _, h := range w.machine.held {
		if h.seq != seq {
			continue
		}
		if h.onlyOrdered() {
			continue // the choices say for how long
		}
		at, known := w.open[seq]
		if !known {
			at = len(w.account.Holds)
			w.open[seq] = at
			by := h.action
			if by < 0 {
				by = h.pause
			}
			w.account.Holds = append(w.account.Holds, record.Hold{Event: seq, Action: by, From: e.Time})
		}
		if h.action < 0 {
			w.account.Holds[at].Paused = true
		}
	}
}

func (w *witness) end(seq int, at time.Time, how record.HoldEnd) {
	if i, held := w.open[seq]; held {
		w.account.Holds[i].To, w.account.Holds[i].End = at, how
		delete(w.open, seq)
	}
}

// gone ends the holds of a process that has ended, which the machine does not release.
func (w *witness) gone(e record.Event) {
	if e.SessionEnd == nil {
		return
	}
	for seq := range w.open {
		if !slices.ContainsFunc(w.machine.held, func(h heldObservation) bool { return h.seq == seq }) {
			w.end(seq, e.Time, record.HoldKilled)
		}
	}
}

// lasting notes which pauses, failures of calls and other lasting effects begin and end with the current event.
func (w *witness) lasting() {
	now := map[int]string{}
	for _, p := range w.machine.pauses {
		now[p.action] = p.what.By
	}
	for _, f := range w.machine.failures.active {
		now[f.action] = f.failure.By
	}
	for action, e := range w.machine.lasting {
		now[action] = e.Of()
	}
	for action, i := range w.lasts {
		if _, lasts := now[action]; !lasts {
			w.account.Effects[i].To = w.event.Time
			delete(w.lasts, action)
		}
	}
	for _, action := range slices.Sorted(maps.Keys(now)) {
		if _, known := w.lasts[action]; !known {
			w.lasts[action] = len(w.account.Effects)
			w.account.Effects = append(w.account.Effects, record.LastingEffect{Action: action, By: now[action],
				From: w.event.Time})
		}
	}
}
