package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/coordinator/machine/plantest"
	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// zombies is a plan that freezes a process of db before it creates pod a, and thaws it when pod b was created.
func zombies(t *testing.T) *plan.Plan {
	after := plantest.Creates(t, "b")
	after.Definitions[0].Observe.Timing = plan.AfterControllerWrite
	return &plan.Plan{Actions: []plan.Action{
		{Type: plan.FreezeController, Target: "db", Trigger: plantest.Creates(t, "a")},
		{Type: plan.ThawController, Target: "db", Trigger: after},
	}}
}

func creation(name string, phase wire.Phase, call uint64) wire.Observation {
	o := write("pod", name)
	o.Operation, o.Phase, o.Call = wire.Create, phase, call
	return o
}

// renewal is a controller's write of its lease.
func renewal(call uint64) wire.Observation {
	return wire.Observation{
		Call: call, Point: wire.ControllerWrite, Phase: wire.After, Operation: wire.Update, Kind: "lease",
		Resource: "leases", Group: leaseGroup, GroupKnown: true, Namespace: "default", Name: "db",
		Object: []byte(`{"spec":{"leaseDurationSeconds":15}}`),
	}
}

func TestAProcessIsFrozenBeforeItsCallIsReleased(t *testing.T) {
	inBubble(t, zombies, time.Minute, func(t *testing.T, r *bubble) {
		first, second := r.connect("db"), r.connect("db")
		<-r.observe(first, renewal(1))
		begin(t, r)
		silent := func(s *monitor.Session) int {
			r.processes.events <- monitor.Event{Session: s, Silent: 20 * time.Second}
			return len(status(t, r).Findings)
		}
		<-r.observe(first, creation("a", wire.Before, 2))
		s := status(t, r)
		if got := strings.Join(r.list(), ", "); got != fmt.Sprintf("freeze db %d", first.PID) {
			t.Errorf("done: %s", got)
		}
		if !slices.Equal(r.frozen, []uint64{first.ID}) {
			// The rules are the same as before; the next ones are not for it.
			if err := r.loop.do(t.Context(), r.push); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.frozen, []uint64{first.ID}) {
				t.Errorf("frozen: %v", r.frozen)
			}
		}
		want := "a process of db has been frozen for 0s by action 1 (freezeController db), which action 2 " +
			"(thawController db) ends when: onObjectCreation of pod/default/b, afterControllerWrite at db"
		if s.Stuck != want || !s.OnItsWay {
			t.Errorf("stuck: %s\non its way: %t", s.Stuck, s.OnItsWay)
		}
		if n := silent(first); n != 0 {
			t.Error("the silence of a frozen process is a finding")
		}
		// Its lease expires after 15 s. A new leader is elected within 15 s after that, or never.
		time.Sleep(29 * time.Second)
		if !status(t, r).OnItsWay {
			t.Error("nobody can take over any more")
		}
		time.Sleep(2 * time.Second)
		if status(t, r).OnItsWay {
			t.Error("somebody can still take over")
		}
		<-r.observe(second, creation("b", wire.After, 1))
		s = status(t, r)
		if s.Completed != 2 || s.Stuck != "" || r.list()[len(r.list())-1] != "thaw db false" || len(r.frozen) > 0 {
			t.Errorf("%d complete, stuck %q, frozen %v: %s", s.Completed, s.Stuck, r.frozen, r.list())
		}
		time.Sleep(19 * time.Second)
		if n := silent(first); n != 0 {
			t.Error("the silence of a process that was frozen meanwhile is a finding")
		}
		time.Sleep(2 * time.Second)
		if n := silent(first); n != 1 {
			t.Error("the silence of a process that was thawed long ago is no finding")
		}
	})
}

// A leader may be frozen before it renews its lease for the first time in the plan. The record says that it was the
// leader, so that judges know.
func TestTheRecordSaysWhoLeadsAtTheBeginning(t *testing.T) {
	inBubble(t, zombies, time.Minute, func(t *testing.T, r *bubble) {
		first, second := r.connect("db"), r.connect("db")
		<-r.observe(first, renewal(1))
		<-r.observe(first, renewal(2))
		<-r.observe(second, creation("x", wire.After, 1))
		begin(t, r)
		synctest.Wait()
		if len(r.journal.events) != 1 || r.journal.events[0].Seq != 1 {
			t.Fatalf("recorded: %+v", r.journal.events)
		}
		if o := r.journal.events[0].Observation; o.Session != first.ID || o.Call != 2 || !o.Election || !o.Aside {
			t.Errorf("recorded: %+v", o)
		}
	})
}

func TestATakenLeaseIsNotWaitedFor(t *testing.T) {
	inBubble(t, zombies, time.Minute, func(t *testing.T, r *bubble) {
		first, second := r.connect("db"), r.connect("db")
		<-r.observe(first, renewal(1))
		begin(t, r)
		<-r.observe(first, creation("a", wire.Before, 2))
		<-r.observe(second, renewal(1))
		if status(t, r).OnItsWay {
			t.Error("the second process leads already")
		}
	})
}

func TestWhichProcessIsFrozen(t *testing.T) {
	for _, tt := range []struct {
		name      string
		processes int
		leads     []int
		by        int // whose observation fires it; -1: the API server's
		want      int // its index; -1: unknown
	}{
		{"the one that was observed", 2, []int{0}, 1, 1},
		{"the only one", 1, nil, -1, 0},
		{"the leader", 2, []int{1}, -1, 1},
		{"nobody leads", 2, nil, -1, -1},
		{"two lead", 2, []int{0, 1}, -1, -1},
		{"none is connected", 0, nil, -1, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := func(t *testing.T) *plan.Plan {
				p := zombies(t)
				if tt.by < 0 {
					p.Actions[0].Trigger = plantest.Trigger(t, "a", "a")
				}
				return p
			}
			inBubble(t, p, time.Minute, func(t *testing.T, r *bubble) {
				var all []*monitor.Session
				for range tt.processes {
					all = append(all, r.connect("db"))
				}
				for _, i := range tt.leads {
					<-r.observe(all[i], renewal(1))
				}
				begin(t, r)
				if tt.by < 0 {
					<-r.observe(r.server, pod("a"))
				} else {
					<-r.observe(all[tt.by], creation("a", wire.Before, 2))
				}
				synctest.Wait()
				pid := 0
				if tt.want >= 0 {
					pid = all[tt.want].PID
				}
				if got, want := strings.Join(r.list(), ", "), fmt.Sprintf("freeze db %d", pid); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			})
		})
	}
}

func TestTheEndThawsWhatIsFrozen(t *testing.T) {
	inBubble(t, zombies, time.Minute, func(t *testing.T, r *bubble) {
		first := r.connect("db")
		begin(t, r)
		<-r.observe(first, creation("a", wire.Before, 1))
		if err := errors.Join(r.End(t.Context()), r.Undo(t.Context())); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(r.list(), ", "); got != "freeze db 102, thaw db false" || len(r.frozen) > 0 {
			t.Errorf("%s, frozen %v", got, r.frozen)
		}
	})
}

func TestAProcessThatCouldNotBeFrozenIsNotExcused(t *testing.T) {
	inBubble(t, zombies, time.Minute, func(t *testing.T, r *bubble) {
		r.fail = errors.New("it has exited")
		first := r.connect("db")
		begin(t, r)
		<-r.observe(first, creation("a", wire.Before, 1))
		if s := status(t, r); len(s.Findings) != 1 || s.Findings[0].Judge != record.JudgeAction || len(r.frozen) > 0 {
			t.Errorf("frozen %v, findings %+v", r.frozen, s.Findings)
		}
	})
}

func TestAFrozenProcessThatIsKilledIsNotWaitedFor(t *testing.T) {
	inBubble(t, zombies, time.Minute, func(t *testing.T, r *bubble) {
		first := r.connect("db")
		begin(t, r)
		<-r.observe(first, creation("a", wire.Before, 1))
		r.live = slices.DeleteFunc(r.live, func(s *monitor.Session) bool { return s == first })
		r.processes.events <- monitor.Event{Session: first, Ended: true}
		if s := status(t, r); s.Stuck != "" {
			t.Errorf("stuck: %s", s.Stuck)
		}
		var lapsed []int
		for _, e := range r.journal.events {
			if e.Lapsed != nil {
				lapsed = append(lapsed, *e.Lapsed)
			}
		}
		if !slices.Equal(lapsed, []int{0}) {
			t.Errorf("lapsed: %v", lapsed)
		}
	})
}

// A process that is stopped acknowledges no rules. Regression: it was cut off, which released its calls and made it run
// unobserved.
func TestAFrozenProcessKeepsItsSession(t *testing.T) {
	r := newRig(t, zombies(t), time.Minute)
	frozen, other := r.connect(t, "db"), r.connect(t, "db")
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := frozen.Observe(creation("a", wire.Before, 1))
	<-done.Done
	for len(frozen.Interests) < cap(frozen.Interests) { // as if they were not read: then the process accepts no more
		frozen.Interests <- wire.Interests{}
	}
	start := time.Now()
	for range 3 {
		if err := r.loop.do(t.Context(), r.push); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("rules for the others took %s", took)
	}
	var newest wire.Interests
	for len(other.Interests) > 0 {
		newest = <-other.Interests
	}
	thawed := make(chan wire.Interests)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // what SIGCONT does
		for {
			select {
			case i := <-frozen.Interests:
				if i.Generation > newest.Generation {
					thawed <- i
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	call := other.Observe(creation("b", wire.After, 1))
	select {
	case <-thawed:
	case <-frozen.Closed():
		t.Fatal("it was cut off")
	case <-time.After(10 * time.Second):
		t.Fatal("it got no new rules")
	}
	<-call.Done
	select {
	case <-frozen.Closed():
		t.Error("it was cut off")
	default:
	}
}
