package coordinator

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/actions"
	"github.com/trommel-dev/trommel/coordinator/machine/plantest"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
)

// scripted is an action whose behavior a test defines.
type scripted struct {
	do    func(context.Context) error
	undo  func(context.Context) error
	ended chan struct{} // for lasting actions: closed by the test
}

func (s *scripted) Do(ctx context.Context) (string, error) { return "", s.do(ctx) }
func (s *scripted) Undo(ctx context.Context) error         { return s.undo(ctx) }
func (s *scripted) Status() string                         { return "under way" }
func (s *scripted) Ended() <-chan struct{}                 { return s.ended }

const scriptedType plan.ActionType = "scripted"

type scriptedFields struct {
	Script string `yaml:"script"`
}

// prepareScripted creates the scripted action of the running test.
var prepareScripted atomic.Pointer[func() actions.Action]

// An action type that no other package knows.
func init() {
	plan.RegisterKind(plan.ActionKind{
		Type: scriptedType, Own: func() any { return &scriptedFields{} },
		Explain: func(a *plan.Action) string { return "do as " + a.Own.(*scriptedFields).Script + " says" },
		Object:  func(a *plan.Action) string { return a.Own.(*scriptedFields).Script },
	})
	actions.Register(scriptedType, func(*plan.Action, actions.Tools) actions.Action {
		return (*prepareScripted.Load())()
	})
}

func scriptedPlan(t *testing.T, a *scripted, change func(*plan.Action)) *plan.Plan {
	prepare := func() actions.Action { return a }
	prepareScripted.Store(&prepare)
	action := plan.Action{Type: scriptedType, Own: &scriptedFields{}, Trigger: plantest.Trigger(t, "now", "now@none"),
		Async: true}
	if change != nil {
		change(&action)
	}
	return &plan.Plan{Actions: []plan.Action{action}}
}

// count counts calls and fails the first `fail` times.
func count(n *atomic.Int32, fail int32) func(context.Context) error {
	return func(context.Context) error {
		if n.Add(1) <= fail {
			return errors.New("told to fail")
		}
		return nil
	}
}

// A new action type needs only its declaration: it is read, explained, carried out, recorded and undone without further
// changes.
func TestANewTypeOfActionIsItsDeclaration(t *testing.T) {
	text := `
testName: new
actions:
- actionType: scripted
  script: hamlet
  trigger: {definitions: [{triggerName: now, condition: {triggerType: none}}]}
`
	p, err := plan.Parse([]byte(text), "new.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if text := plan.Explain(p); !strings.Contains(text, "do as hamlet says.") {
		t.Error(text)
	}
	var done, undone atomic.Int32
	prepare := func() actions.Action {
		return &scripted{do: count(&done, 0), undo: count(&undone, 0), ended: make(chan struct{})}
	}
	prepareScripted.Store(&prepare)
	r := newRig(t, p, time.Minute)
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	endAndUndo(t, r)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if a := r.journal.actions; done.Load() != 1 || undone.Load() != 1 || len(a) != 1 ||
		a[0].String() != "action 1 (scripted hamlet)" {
		t.Errorf("done %d times, undone %d times, recorded %+v", done.Load(), undone.Load(), a)
	}
}

func endAndUndo(t *testing.T, r *rig) {
	t.Helper()
	if err := r.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Undo(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Regression: an action in its waitBefore began after the plan's end and after Undo.
func TestEndCutsShortWhatWaits(t *testing.T) {
	var done, undone atomic.Int32
	p := scriptedPlan(t, &scripted{do: count(&done, 0), undo: count(&undone, 0)}, func(a *plan.Action) {
		a.WaitBefore = time.Hour
	})
	r := newRig(t, p, time.Minute)
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	endAndUndo(t, r)
	status, err := r.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if done.Load()+undone.Load() > 0 || status.Fired != 1 || status.Completed != 0 || len(status.Findings) > 0 {
		t.Errorf("done %d times, undone %d times, status %+v", done.Load(), undone.Load(), status)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if a := r.journal.actions; len(a) != 1 || a[0].Note != "did not begin before the plan ended" ||
		!a[0].Began.IsZero() {
		t.Errorf("recorded: %+v", a)
	}
}

func TestEndWaitsForWhatIsBeingDone(t *testing.T) {
	var undone atomic.Int32
	doing, goOn := make(chan struct{}), make(chan struct{})
	p := scriptedPlan(t, &scripted{
		do:   func(context.Context) error { close(doing); <-goOn; return nil },
		undo: count(&undone, 0),
	}, nil)
	r := newRig(t, p, time.Minute)
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-doing
	ended := make(chan struct{})
	go func() { defer close(ended); endAndUndo(t, r) }()
	// The plan ends while the action is running.
	if err := r.loop.until(t.Context(), r.machine.Ended); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
		t.Error("the end did not wait")
	default:
	}
	close(goOn)
	<-ended
	if status, err := r.Status(t.Context()); err != nil || undone.Load() != 1 || status.Completed != 1 {
		t.Errorf("undone %d times, status %+v, %v", undone.Load(), status, err)
	}
}

func TestEndOutOfTimeCutsShortWhatIsBeingDone(t *testing.T) {
	var undone atomic.Int32
	doing := make(chan struct{})
	p := scriptedPlan(t, &scripted{
		do:   func(ctx context.Context) error { close(doing); <-ctx.Done(); return ctx.Err() },
		undo: count(&undone, 0),
	}, nil)
	r := newRig(t, p, time.Minute)
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-doing
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.End(ctx); err != nil {
		t.Fatal(err)
	}
	endAndUndo(t, r)
	status, err := r.Status(t.Context())
	if err != nil || undone.Load() != 1 || status.Completed != 0 || len(status.Findings) > 0 {
		t.Errorf("undone %d times, status %+v, %v", undone.Load(), status, err)
	}
}

func TestUndoMayBeRepeated(t *testing.T) {
	var done, undone atomic.Int32
	p := scriptedPlan(t, &scripted{do: count(&done, 1), undo: count(&undone, 1)}, func(a *plan.Action) {
		a.Async = false
	})
	r := newRig(t, p, time.Minute)
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Undo(t.Context()); err == nil || err.Error() != "undo action 1 (scripted): told to fail" {
		t.Errorf("first undo: %v", err)
	}
	for range 2 {
		if err := r.Undo(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if done.Load() != 1 || undone.Load() != 2 {
		t.Errorf("done %d times, undone %d times: an action that failed is undone, once", done.Load(), undone.Load())
	}
}

func TestAnEffectThatLastsEndsByItself(t *testing.T) {
	var done, undone atomic.Int32
	ended := make(chan struct{})
	p := scriptedPlan(t, &scripted{do: count(&done, 0), undo: count(&undone, 0), ended: ended}, nil)
	p.Actions[0].Async = false // complete when Begin returns
	r := newRig(t, p, time.Minute)
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	lasting := func() string {
		s, err := r.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(s.Lasting, ", ")
	}
	if got := lasting(); got != "action 1 (scripted): under way" {
		t.Errorf("lasting: %q", got)
	}
	changed, err := r.Changed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	close(ended)
	<-changed
	if got := lasting(); got != "" {
		t.Errorf("lasting after its end: %q", got)
	}
	endAndUndo(t, r)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	var lapsed []int
	for _, e := range r.journal.events {
		if e.Lapsed != nil {
			lapsed = append(lapsed, *e.Lapsed)
		}
	}
	if len(lapsed) != 1 || lapsed[0] != 0 || undone.Load() != 1 {
		t.Errorf("lapsed %v, undone %d times", lapsed, undone.Load())
	}
}

// slowCluster answers lookups only when the test lets it.
type slowCluster struct {
	oneReplica
	asked, answer chan struct{}
}

func (c *slowCluster) Foresee(ctx context.Context, controller string, o *wire.Observation) (Foresight, error) {
	close(c.asked)
	<-c.answer
	return c.oneReplica.Foresee(ctx, controller, o)
}

// Regression: when a process died while its write was looked up, the write was held until the deadline.
func TestWhatArrivesAfterItsSessionIsNotHeld(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{{
		Type: plan.PauseController, Target: "db", Pausing: plan.Pausing{PauseAt: plan.BeforeControllerWrite},
		Trigger: plantest.Trigger(t, "now", "now@none"),
	}}}
	slow := &slowCluster{asked: make(chan struct{}), answer: make(chan struct{})}
	r := newRig(t, p, time.Minute)
	r.config.Lookup = slow // not called yet
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	db := r.connect(t, "db")
	w := write("pod", "a")
	w.Phase = wire.Before
	db.Observe(w)
	<-slow.asked
	db.Close()
	if err := r.loop.until(t.Context(), func() bool { return !r.sessions.connected("db") }); err != nil {
		t.Fatal(err)
	}
	close(slow.answer)
	arrived := func() bool { return r.recording.seq >= 4 } // begun, complete, the session's end, the write
	for range 1000 {
		var there bool
		var holds, before int
		if err := r.loop.do(t.Context(), func(context.Context) {
			there, holds, before = arrived(), len(r.holds.bySeq), len(r.lookups.before)
		}); err != nil {
			t.Fatal(err)
		}
		if there {
			if holds > 0 || before > 0 || len(r.machine.Held()) > 0 {
				t.Errorf("%d are held, %d kept for the time after", holds, before)
			}
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the write never arrived")
}

// Regression: the end of a killed process's session can come late. Its successor had connected and gone again, and the
// old session was taken for the new one.
func TestConnectedIsWhoCameAfter(t *testing.T) {
	s := sessions{}.of("db")
	s.begin(7)
	if s.since(1) > 0 || s.since(0) != 1 {
		t.Error("the first session counts as a later one")
	}
	s.begin(8)
	if s.since(1) != 1 || s.since(0) != 2 {
		t.Error("the second session is not seen")
	}
	s.end(8)
	if s.since(1) > 0 || !s.connected() || s.total != 2 {
		t.Errorf("with the second gone and the first still there: since %d, connected %t, total %d", s.since(1),
			s.connected(), s.total)
	}
	s.end(7)
	if s.connected() {
		t.Error("connected after all sessions have ended")
	}
}
