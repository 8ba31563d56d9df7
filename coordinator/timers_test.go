package coordinator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/actions"
	"github.com/trommel-dev/trommel/coordinator/machine/plantest"
	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// processes is a monitor whose processes are the test itself: with sockets, the bubble's time would not advance.
type processes struct {
	events chan monitor.Event
	live   []*monitor.Session
	frozen []uint64 // the sessions that the newest rules were not for
}

func (p *processes) Events() <-chan monitor.Event { return p.events }
func (p *processes) SetRules(_ context.Context, _ map[string][]wire.Rule, frozen ...uint64) {
	p.frozen = frozen
}
func (p *processes) Sessions() []*monitor.Session { return slices.Clone(p.live) }
func (p *processes) connect(identity string) *monitor.Session {
	s := &monitor.Session{ID: uint64(len(p.live) + 1), Identity: identity, PID: 101 + len(p.live)}
	p.live = append(p.live, s)
	p.events <- monitor.Event{Session: s, Started: true}
	return s
}

// observe sends an observation and returns a channel that is closed when it is released.
func (p *processes) observe(s *monitor.Session, o wire.Observation) <-chan struct{} {
	e, released := monitor.NewEvent(s, &o)
	p.events <- e
	return released
}

// bubble is a coordinator in a synctest bubble: time advances when all goroutines wait.
type bubble struct {
	*Coordinator
	*journal
	*processes
	server *monitor.Session // apiserver-1
	clock  *clock.Clock     // the coordinator's, which shows the bubble's time until it is advanced
	busy   atomic.Bool      // something is in the controllers' queues
}

func inBubble(t *testing.T, p func(*testing.T) *plan.Plan, hold time.Duration, test func(*testing.T, *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{journal: &journal{}, processes: &processes{events: make(chan monitor.Event)}, clock: clock.New()}
		var err error
		b.Coordinator, err = New(Config{
			Plan: p(t), Monitor: b.processes, Tools: actions.Tools{Controllers: b.journal, Objects: b.journal},
			Controllers: []record.Controller{{Name: "db", Hooks: true, APIServer: "apiserver-1"}},
			Resolve: func(k plan.ResourceKey) wire.Rule {
				return wire.Rule{Kind: k.Type, Namespace: k.Namespace, Name: k.Name}
			},
			Lookup: oneReplica{}, Hold: hold, Recorder: b.journal, Watcher: b.journal,
			Busy: func(context.Context) bool { return b.busy.Load() },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(clock.With(t.Context(), b.clock))
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		b.server = b.connect("apiserver-1")
		test(t, b)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func begin(t *testing.T, r *bubble) time.Time {
	t.Helper()
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	return time.Now()
}

func status(t *testing.T, r *bubble) Status {
	t.Helper()
	synctest.Wait()
	s, err := r.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestATimeoutCountsFromItsTriggersEnabling(t *testing.T) {
	p := func(t *testing.T) *plan.Plan {
		return &plan.Plan{Actions: []plan.Action{
			plantest.Restart(plantest.Trigger(t, "soon", "soon@timeout")),
			plantest.Restart(plantest.Trigger(t, "soon", "soon@timeout")),
		}}
	}
	inBubble(t, p, time.Minute, func(t *testing.T, r *bubble) {
		begin(t, r)
		for second, fired := range []int{0, 1, 2, 2} {
			if s := status(t, r); s.Fired != fired {
				t.Errorf("after %d s %d actions fired, want %d", second, s.Fired, fired)
			}
			time.Sleep(time.Second)
		}
	})
}

// A timeout that may be extended waits until the controllers are connected and have nothing in their queues.
func TestATimeoutWaitsForIdleControllers(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name                      string
		extend, connected, idleAt time.Duration
		fired                     time.Duration // at the latest
	}{
		{"idle", 10 * s, 0, 0, s},
		{"at work", 10 * s, 0, 4 * s, 4 * s},
		{"starting", 10 * s, 3 * s, 0, 3 * s},
		{"always at work", 10 * s, 0, time.Hour, 11 * s},
		{"not extended", 0, 3 * s, 4 * s, s},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := func(t *testing.T) *plan.Plan {
				soon := plantest.Trigger(t, "soon", "soon@timeout")
				soon.Definitions[0].Condition.Extend = tt.extend
				return &plan.Plan{Actions: []plan.Action{plantest.Restart(soon)}}
			}
			inBubble(t, p, time.Minute, func(t *testing.T, r *bubble) {
				r.busy.Store(tt.idleAt > 0)
				if tt.connected == 0 {
					r.connect("db")
				}
				began := begin(t, r)
				for at := time.Duration(0); at < 12*s; at += s / 2 {
					if at == tt.connected && at > 0 {
						r.connect("db")
					}
					r.busy.Store(at < tt.idleAt)
					time.Sleep(s / 4)
					if fired := status(t, r).Fired == 1; fired != (time.Since(began) > tt.fired) {
						t.Fatalf("fired after %s: %t", time.Since(began), fired)
					}
					time.Sleep(s / 4)
				}
			})
		})
	}
}

func TestWaitsOfAnActionAreAsLongAsThePlanSays(t *testing.T) {
	p := func(t *testing.T) *plan.Plan {
		a := plantest.Restart(plantest.Trigger(t, "now", "now@none"))
		a.WaitBefore, a.WaitAfter = 3*time.Second, 2*time.Second
		return &plan.Plan{Actions: []plan.Action{a}}
	}
	inBubble(t, p, time.Minute, func(t *testing.T, r *bubble) {
		start := begin(t, r)
		time.Sleep(3*time.Second - time.Nanosecond)
		if synctest.Wait(); len(r.list()) > 0 {
			t.Errorf("done before its time: %s", r.list())
		}
		time.Sleep(time.Nanosecond)
		if s := status(t, r); strings.Join(r.list(), ", ") != "kill db, start db" || s.Completed != 0 {
			t.Errorf("after 3 s: %s, %d completed", r.list(), s.Completed)
		}
		time.Sleep(2 * time.Second)
		if s := status(t, r); s.Completed != 1 {
			t.Errorf("after 5 s %d completed", s.Completed)
		}
		if a := r.journal.actions[0]; a.Began.Sub(start) != 3*time.Second || a.Done.Sub(start) != 5*time.Second {
			t.Errorf("began after %s, done after %s", a.Began.Sub(start), a.Done.Sub(start))
		}
	})
}

func TestAHoldLastsAsLongAsItMay(t *testing.T) {
	p := func(t *testing.T) *plan.Plan {
		return &plan.Plan{Actions: []plan.Action{{
			Type: plan.PauseAPIServer, Target: "apiserver-1", Trigger: plantest.Trigger(t, "now", "now@none"),
		}}}
	}
	inBubble(t, p, 30*time.Second, func(t *testing.T, r *bubble) {
		begin(t, r)
		x := pod("x")
		x.Phase = wire.Before
		start := time.Now()
		released := r.observe(r.server, x)
		// After 10 s the watchdog reports once who waits for whom.
		time.Sleep(10 * time.Second)
		if synctest.Wait(); len(r.list()) != 1 ||
			!strings.HasPrefix(r.list()[0], "waiting apiserver-1's receipt") {
			t.Errorf("told after 10 s: %q", r.list())
		}
		<-released
		if held := time.Since(start); held != 30*time.Second {
			t.Errorf("held for %s", held)
		}
		if s := status(t, r); len(s.Findings) != 1 || s.Findings[0].Judge != record.JudgeHold {
			t.Errorf("findings %+v", s.Findings)
		}
	})
}

// The run's clock may move ahead of the machine's; then times pass that the plan waits for.
func TestTimesOfAPlanAreTheClocks(t *testing.T) {
	p := func(t *testing.T) *plan.Plan {
		late := plantest.Async(plantest.Restart(plantest.Trigger(t, "now", "now@none")))
		late.WaitBefore = time.Hour
		return &plan.Plan{Actions: []plan.Action{
			{Type: plan.PauseAPIServer, Target: "apiserver-1", Trigger: plantest.Trigger(t, "now", "now@none")},
			plantest.Restart(plantest.Trigger(t, "soon", "soon@timeout")), late,
		}}
	}
	inBubble(t, p, 30*time.Minute, func(t *testing.T, r *bubble) {
		start := begin(t, r)
		x := pod("x")
		x.Phase = wire.Before
		released := r.observe(r.server, x)
		synctest.Wait()
		r.clock.Advance(30 * time.Minute)
		<-released
		if s := status(t, r); len(s.Findings) != 1 || s.Findings[0].Judge != record.JudgeHold ||
			s.Findings[0].Time.Sub(start) != 30*time.Minute || s.Fired != 3 || s.Completed != 2 {
			t.Errorf("after 30 minutes: %+v", s)
		}
		r.clock.Advance(time.Hour)
		if s := status(t, r); s.Completed != 3 || s.LastEvent.Sub(start) != 90*time.Minute {
			t.Errorf("after 90 minutes: %+v", s)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %s", took)
		}
	})
}

// While an action is carried out, the clock is held; while it waits, it is not.
func TestAnActionHoldsTheClock(t *testing.T) {
	held := make(chan bool)
	done := make(chan struct{})
	do := func(ctx context.Context) error {
		held <- clock.Of(ctx).Held()
		<-done
		return nil
	}
	p := func(t *testing.T) *plan.Plan {
		return scriptedPlan(t, &scripted{do: do, undo: func(ctx context.Context) error {
			held <- clock.Of(ctx).Held()
			return nil
		}, ended: make(chan struct{})}, func(a *plan.Action) { a.WaitBefore, a.WaitAfter = time.Hour, time.Hour })
	}
	inBubble(t, p, time.Minute, func(t *testing.T, r *bubble) {
		begin(t, r)
		for _, when := range []string{"before", "after"} {
			if status(t, r); r.clock.Held() {
				t.Errorf("held in the time %s the action", when)
			}
			if when == "before" {
				r.clock.Advance(time.Hour)
				if !<-held {
					t.Error("not held")
				}
				close(done)
			}
		}
		r.clock.Advance(time.Hour)
		if s := status(t, r); s.Completed != 1 {
			t.Errorf("%d actions are complete", s.Completed)
		}
		ctx := clock.With(t.Context(), r.clock)
		if err := r.End(ctx); err != nil {
			t.Fatal(err)
		}
		undone := make(chan error)
		go func() { undone <- r.Undo(ctx) }()
		if !<-held {
			t.Error("not held while it is undone")
		}
		if err := <-undone; err != nil || r.clock.Held() {
			t.Errorf("undone: %v; held: %t", err, r.clock.Held())
		}
	})
}

func TestEndDoesNotWaitForATime(t *testing.T) {
	p := func(t *testing.T) *plan.Plan {
		before := plantest.Async(plantest.Restart(plantest.Trigger(t, "now", "now@none")))
		before.WaitBefore = time.Hour
		return &plan.Plan{Actions: []plan.Action{before}}
	}
	inBubble(t, p, time.Minute, func(t *testing.T, r *bubble) {
		start := begin(t, r)
		if err := errors.Join(r.End(t.Context()), r.Undo(t.Context())); err != nil {
			t.Fatal(err)
		}
		struck := func() bool { return slices.Contains(r.list(), "kill db") }
		if took := time.Since(start); took != 0 || struck() {
			t.Errorf("the end took %s and did %s", took, r.list())
		}
		time.Sleep(2 * time.Hour)
		if synctest.Wait(); struck() {
			t.Errorf("done after the end: %s", r.list())
		}
	})
}

func TestSettlingTakesTheTimeOfQuiet(t *testing.T) {
	p := func(*testing.T) *plan.Plan { return &plan.Plan{} }
	inBubble(t, p, time.Minute, func(t *testing.T, r *bubble) {
		begin(t, r)
		<-r.observe(r.connect("db"), write("pod", "a"))
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if restless, err := r.Settle(ctx, 2*time.Second); restless != "" || err != nil {
			t.Errorf("%q, %v", restless, err)
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("settled after %s", took)
		}
	})
}

// A resume one by one lets the next event go on when the controllers have done nothing for a while, and does not wait
// for ever for that.
func TestResumeOneByOneWaitsForTheControllers(t *testing.T) {
	p := func(t *testing.T) *plan.Plan {
		return &plan.Plan{Actions: []plan.Action{
			plantest.PauseServer(plantest.Trigger(t, "now", "now@none"), ""),
			plantest.ResumeOneByOne(plantest.Trigger(t, "soon", "soon@timeout"), ""),
			plantest.Restart(plantest.Trigger(t, "now", "now@none")),
		}}
	}
	event := func(name string) wire.Observation {
		o := pod(name)
		o.Phase = wire.Before
		return o
	}
	// after is how long it takes from the release of one event to that of the next, which has come in time.
	after := func(t *testing.T, r *bubble, meanwhile func()) time.Duration {
		t.Helper()
		first := r.observe(r.server, event("a"))
		<-first
		released := time.Now()
		next := r.observe(r.server, event("b"))
		if meanwhile != nil {
			go meanwhile()
		}
		<-next
		return time.Since(released)
	}
	for _, tt := range []struct {
		name      string
		most      time.Duration
		meanwhile func(r *bubble, db *monitor.Session)
	}{
		{name: "idle", most: stepQuiet},
		{name: "acts", most: stepQuiet + 450*time.Millisecond, meanwhile: func(r *bubble, db *monitor.Session) {
			for range 3 {
				time.Sleep(150 * time.Millisecond)
				<-r.observe(db, write("pod", "a"))
			}
		}},
		{name: "something is queued", most: stepQuiet + idleLook, meanwhile: func(r *bubble, _ *monitor.Session) {
			r.busy.Store(true)
			time.Sleep(stepQuiet + idleLook/2)
			r.busy.Store(false)
		}},
		{name: "acts for ever", most: stepMost, meanwhile: func(r *bubble, db *monitor.Session) {
			for range stepMost / (100 * time.Millisecond) {
				time.Sleep(100 * time.Millisecond)
				<-r.observe(db, write("pod", "a"))
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, p, time.Hour, func(t *testing.T, r *bubble) {
				db := r.connect("db")
				begin(t, r)
				var meanwhile func()
				if tt.meanwhile != nil {
					meanwhile = func() { tt.meanwhile(r, db) }
				}
				if took := after(t, r, meanwhile); took < tt.most-idleLook/2 || took > tt.most+idleLook/2 {
					t.Errorf("the next event went on after %s, want %s", took, tt.most)
				}
				time.Sleep(stepMost)
				if s := status(t, r); s.Completed != 3 || r.machine.Holding() {
					t.Errorf("%d actions are complete", s.Completed)
				}
				<-r.observe(r.server, event("c"))
			})
		})
	}
	t.Run("events that do not end", func(t *testing.T) {
		inBubble(t, p, time.Hour, func(t *testing.T, r *bubble) {
			r.connect("db")
			begin(t, r)
			for status(t, r).Completed < 3 {
				<-r.observe(r.server, event("a"))
			}
			note := r.journal.actions[1].Note
			if want := "one by one, and after 1m0s all that were left"; !strings.Contains(note, want) {
				t.Errorf("note %q", note)
			}
		})
	})
	t.Run("the plan ends", func(t *testing.T) {
		inBubble(t, p, time.Hour, func(t *testing.T, r *bubble) {
			r.connect("db")
			begin(t, r)
			<-r.observe(r.server, event("a"))
			next := r.observe(r.server, event("b"))
			if err := r.End(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-next
		})
	})
}
