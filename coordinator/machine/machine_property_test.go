package machine

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// world sends a machine events in a random order that a coordinator could produce, and checks the effects.
type world struct {
	t       *testing.T
	random  *rand.Rand
	machine *Machine
	plan    *plan.Plan

	events   []record.Event
	effects  [][]Effect
	timers   []record.Timeout
	fired    []int // fired, not begun
	begun    []int // begun, not complete
	waiting  []int // begun, not in force yet
	resuming []int // begun, let one observation after the other go on
	held     map[int]*record.Observation
	released map[int]bool
	calls    uint64
	open     []*record.Observation // "before" observations without their "after"
	ended    bool
}

func randomPlan(t *testing.T, random *rand.Rand) *plan.Plan {
	expressions := []string{"a", "b", "a;b", "a|b", "a&b", "a;b|c", "now", "soon", "now;a", "a|soon", "r;a"}
	p := &plan.Plan{}
	for range 1 + random.IntN(6) {
		e := expressions[random.IntN(len(expressions))]
		var names []string
		for name, definition := range map[string]string{"a": "a", "b": "b*2", "c": "c", "r": "r", "now": "now@none",
			"soon": "soon@timeout"} {
			if slices.Contains(split(e), name) {
				names = append(names, definition)
			}
		}
		tr := trigger(t, e, names...)
		scope := []string{"", "*", "pod/default/a", "pod/default/*"}[random.IntN(4)]
		var a plan.Action
		switch random.IntN(10) {
		case 0:
			a = restart(tr)
		case 1:
			a = plan.Action{Type: plan.KillController, Target: "db", Trigger: tr}
		case 2:
			a = pauseReads(tr, scope, random.IntN(2) == 0)
		case 3:
			a = resumeReads(tr)
		case 4:
			a = plan.Action{Type: plan.PauseAPIServer, Target: "apiserver-1",
				Pausing: plan.Pausing{PauseScope: plan.MustScope(scope)}, Trigger: tr}
		case 5:
			a = plan.Action{Type: plan.ResumeAPIServer, Target: "apiserver-1",
				Pausing: plan.Pausing{PauseScope: plan.MustScope(scope), OneByOne: random.IntN(2) == 0}, Trigger: tr}
		case 6:
			a = plan.Action{Type: plan.ReconnectController, Target: "db",
				Reconnecting: plan.Reconnecting{ReconnectAPIServer: "apiserver-2"},
				Trigger:      tr}
		case 7:
			a = plan.Action{Type: plan.FreezeController, Target: "db", Trigger: tr}
		case 8:
			a = plan.Action{Type: plan.ThawController, Target: "db", Trigger: tr}
		default:
			a = plan.Action{Type: plan.DeleteObject, Trigger: tr}
		}
		a.Async = random.IntN(4) == 0
		if random.IntN(4) == 0 {
			a.WaitBefore = time.Second
		}
		if random.IntN(4) == 0 {
			a.WaitAfter = time.Second
		}
		p.Actions = append(p.Actions, a)
	}
	return p
}

// split returns the names in an expression.
func split(expression string) []string {
	return strings.FieldsFunc(expression, func(r rune) bool { return strings.ContainsRune(";|&", r) })
}

func controllersOf(*plan.Plan) []record.Controller {
	return []record.Controller{{Name: "db", Hooks: true, APIServer: "apiserver-1"}}
}

func (w *world) take(effects []Effect) {
	w.effects = append(w.effects, effects)
	for _, e := range effects {
		switch e := e.(type) {
		case StartTimer:
			w.timers = append(w.timers, record.Timeout{Action: e.Action, Node: e.Node})
		case Fire:
			if w.ended {
				w.t.Errorf("action %d fired after the end", e.Action)
			}
			w.fired = append(w.fired, e.Action)
		case Hold:
			if w.ended || w.released[e.Seq] {
				w.t.Errorf("event %d is held after the end, or after its release", e.Seq)
			}
		case Release:
			if w.released[e.Seq] || w.held[e.Seq] == nil {
				w.t.Errorf("event %d is released twice, or was never held", e.Seq)
			}
			w.released[e.Seq] = true
			delete(w.held, e.Seq)
		case Pausing:
			i := slices.Index(w.waiting, e.Action)
			if i < 0 {
				w.t.Errorf("action %d is in force but had not begun", e.Action)
				continue
			}
			w.waiting = slices.Delete(w.waiting, i, i+1)
			w.begun = append(w.begun, e.Action)
		}
	}
}

func (w *world) step(e record.Event) {
	e.Seq = len(w.events) + 1
	w.events = append(w.events, e)
	if e.Observation != nil {
		w.held[e.Seq] = e.Observation
	}
	if e.End {
		w.ended = true
	}
	w.take(w.machine.Step(e))
}

// observation returns one of a few observations that the plans wait for; an "after" follows its "before".
func (w *world) observation() *record.Observation {
	name := []string{"a", "b", "c", "r", "x"}[w.random.IntN(5)]
	if len(w.open) > 0 && w.random.IntN(2) == 0 {
		i := w.random.IntN(len(w.open))
		before := w.open[i]
		if !slices.ContainsFunc(values(w.held), func(o *record.Observation) bool { return o == before }) {
			w.open = slices.Delete(w.open, i, i+1)
			after := *before
			after.Phase = wire.After
			return &after
		}
	}
	w.calls++
	if w.random.IntN(2) == 0 {
		o := created(name).Observation
		o.Call = w.calls
		if w.random.IntN(2) == 0 {
			o.Phase = wire.Before
			w.open = append(w.open, o)
		}
		return o
	}
	o := read(name, wire.Before, w.calls).Observation
	w.open = append(w.open, o)
	return o
}

func values(m map[int]*record.Observation) []*record.Observation {
	var all []*record.Observation
	for _, o := range m {
		all = append(all, o)
	}
	return all
}

// pick removes a random element from a list and returns it.
func pick[T any](w *world, list *[]T) (T, bool) {
	var none T
	if len(*list) == 0 {
		return none, false
	}
	i := w.random.IntN(len(*list))
	v := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return v, true
}

func (w *world) anyHeld() (int, bool) {
	if len(w.held) == 0 {
		return 0, false
	}
	var seqs []int
	for seq := range w.held {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	return seqs[w.random.IntN(len(seqs))], true
}

// one sends one random event.
func (w *world) one() {
	switch w.random.IntN(13) {
	case 0:
		if t, ok := pick(w, &w.timers); ok {
			w.step(record.Event{Timeout: &t})
		}
	case 1, 2, 3:
		if i, ok := pick(w, &w.fired); ok {
			switch a := &w.plan.Actions[i]; {
			case a.Switches():
				w.waiting = append(w.waiting, i)
			case a.OneByOne:
				w.resuming = append(w.resuming, i)
			default:
				w.begun = append(w.begun, i)
			}
			w.step(record.Event{Began: &i})
		}
	case 4, 5, 6:
		if i, ok := pick(w, &w.begun); ok {
			w.step(record.Event{Completed: &i})
		}
	case 7:
		if seq, ok := w.anyHeld(); ok && w.random.IntN(4) == 0 {
			w.step(record.Event{Expired: &seq})
		}
	case 8:
		if seq, ok := w.anyHeld(); ok && w.random.IntN(4) == 0 {
			w.step(record.Event{Abandoned: &seq})
		}
	case 9:
		if i, ok := pick(w, &w.resuming); ok {
			all := w.random.IntN(8) == 0
			w.waiting = append(w.waiting, i)
			w.step(record.Event{Resumed: &record.Resumed{Action: i, All: all}})
			if at := slices.Index(w.waiting, i); at >= 0 {
				w.waiting = slices.Delete(w.waiting, at, at+1)
				w.resuming = append(w.resuming, i)
			}
		}
	case 10:
		if w.random.IntN(6) == 0 {
			w.endSession([]string{"apiserver-1", "db"}[w.random.IntN(2)])
		}
	default:
		w.step(record.Event{Observation: w.observation()})
	}
}

// endSession ends the session of an identity, and with it its holds.
func (w *world) endSession(by string) {
	session := uint64(1)
	if by == "db" {
		session = 2
	}
	of := func(o *record.Observation) bool { return o.By == by }
	for seq, o := range w.held {
		if of(o) {
			delete(w.held, seq)
			w.released[seq] = true
		}
	}
	w.open = slices.DeleteFunc(w.open, of)
	w.step(record.Event{SessionEnd: &record.SessionEnd{By: by, Session: session}})
}

// For any events in any order: nothing is released twice, nothing is held or fired after the end, the end releases
// everything, and the recorded events lead to the same effects again.
func TestMachineUnderRandomEvents(t *testing.T) {
	for seed := range uint64(3000) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			p := randomPlan(t, random)
			m, err := New(p, controllersOf(p))
			if err != nil {
				t.Fatal(err)
			}
			w := &world{t: t, random: random, machine: m, plan: p, held: map[int]*record.Observation{},
				released: map[int]bool{}}
			w.take(m.Start())
			for range random.IntN(120) {
				w.one()
			}
			w.step(record.Event{End: true})
			if len(w.held) > 0 || m.Holding() || len(m.AllDown()) > 0 {
				t.Errorf("after the end: held %v, down %v", w.held, m.AllDown())
			}
			for range random.IntN(20) {
				w.one()
			}
			if len(w.held) > 0 {
				t.Errorf("held after the end: %v", w.held)
			}
			if t.Failed() {
				t.Logf("plan: %+v", p.Actions)
			}

			again, err := New(p, controllersOf(p))
			if err != nil {
				t.Fatal(err)
			}
			effects := [][]Effect{again.Start()}
			for _, e := range w.events {
				effects = append(effects, again.Step(e))
			}
			if !reflect.DeepEqual(effects, w.effects) {
				t.Error("the recorded events lead to different effects")
			}
		})
	}
}
