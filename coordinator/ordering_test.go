package coordinator

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/coordinator/machine"
	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// scheduled is a plan with a schedule.
func scheduled(s *plan.Schedule) func(*testing.T) *plan.Plan {
	return func(*testing.T) *plan.Plan { return &plan.Plan{Schedule: s} }
}

func delivery(kind, name string) wire.Observation {
	return wire.Observation{
		Call: 1, Point: wire.ControllerRecv, Phase: wire.Before, Operation: wire.Create, Kind: kind, GroupKnown: true,
		Namespace: "default", Name: name, Object: []byte(`{}`),
	}
}

// rests plays the keeper until nothing goes on: at rest it asks whether something does, and otherwise lets time pass.
func rests(r *bubble, times int) {
	for range times {
		synctest.Wait()
		if !r.clock.GoesOn() {
			time.Sleep(time.Second)
		}
	}
	synctest.Wait()
}

// chosen lists the streams of the choices.
func chosen(r *bubble) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.journal.events {
		if e.Choice != nil {
			all = append(all, e.Choice.Stream)
		}
	}
	return all
}

func TestOneStepGoesOnAtEachRest(t *testing.T) {
	inBubble(t, scheduled(&plan.Schedule{}), time.Minute, func(t *testing.T, r *bubble) {
		db := r.connect("db")
		begin(t, r)
		if err := r.Ordering().Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		lease := r.observe(db, renewal(9))
		pods, secrets := r.observe(db, delivery("pod", "a")), r.observe(db, delivery("secret", "a"))
		turn := make(chan struct{})
		go func() {
			r.Ordering().AwaitTurn(context.Background(), "workload", "the next step")
			close(turn)
		}()
		synctest.Wait()
		is := func(want ...bool) {
			t.Helper()
			synctest.Wait()
			got := []bool{}
			for _, c := range []<-chan struct{}{lease, pods, secrets, turn} {
				select {
				case <-c:
					got = append(got, true)
				default:
					got = append(got, false)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("went on: lease, pods, secrets, workload: %v, want %v", got, want)
			}
		}
		is(true, false, false, false)
		rests(r, 1)
		is(true, true, false, false)
		rests(r, 1)
		is(true, true, true, false)
		rests(r, 1)
		is(true, true, true, true)
		if r.clock.GoesOn() {
			t.Error("nothing is held, but something goes on")
		}
		if got := strings.Join(chosen(r), ", "); got != "db receives pod, db receives secret, workload" {
			t.Errorf("chosen: %s", got)
		}
		if err := r.End(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(status(t, r).Findings) > 0 || r.clock.Ordered() {
			t.Errorf("in the end: %v, ordered: %t", r.findings, r.clock.Ordered())
		}
		if _, _, err := machine.Replay(&plan.Plan{Schedule: &plan.Schedule{}}, nil, r.journal.events); err != nil {
			t.Error(err)
		}
	})
}

// A late step waits for others that come while time passes. When the workload is over, it waits for no time.
func TestLateStepLetsTimePass(t *testing.T) {
	late := &plan.Schedule{Late: []plan.LateStep{{Stream: "db receives pod", Step: 1}}}
	inBubble(t, scheduled(late), time.Minute, func(t *testing.T, r *bubble) {
		db := r.connect("db")
		began := begin(t, r)
		if err := r.Ordering().Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		pods := r.observe(db, delivery("pod", "a"))
		rests(r, 3)
		secrets := r.observe(db, delivery("secret", "a"))
		rests(r, 1)
		<-secrets
		since, postponed := time.Since(began), r.Ordering().Postponed()
		if postponed.IsZero() || since < time.Second || since > 3*time.Second {
			t.Errorf("the secret went on after %s, time was let pass until %s", since, postponed)
		}
		select {
		case <-pods:
			t.Fatal("the late step was not late")
		default:
		}
		if err := r.Ordering().Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		rests(r, 1)
		<-pods
		if time.Since(before) > 0 {
			t.Errorf("the late step waited for %s after the workload", time.Since(before))
		}
	})
}

// A run that cannot follow the choices of its schedule says so, and where.
func TestDivergedRun(t *testing.T) {
	given := &plan.Schedule{Choices: []string{"db receives secret"}}
	inBubble(t, scheduled(given), time.Minute, func(t *testing.T, r *bubble) {
		db := r.connect("db")
		begin(t, r)
		if err := r.Ordering().Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		pods := r.observe(db, delivery("pod", "a"))
		rests(r, 1)
		<-pods
		s := status(t, r)
		want := `choice 1: the schedule expects "db receives secret", but these wait: db receives pod`
		if s.Diverged != want {
			t.Errorf("diverged: %q", s.Diverged)
		}
		if len(s.Findings) != 1 || s.Findings[0].Severity != record.SeverityInconclusive ||
			!strings.HasSuffix(s.Findings[0].Title, want) {
			t.Errorf("findings: %v", s.Findings)
		}
	})
}

// A process that ends takes its steps with it, and the end of the plan lets everything go on.
func TestNothingStaysHeld(t *testing.T) {
	inBubble(t, scheduled(&plan.Schedule{}), time.Minute, func(t *testing.T, r *bubble) {
		db := r.connect("db")
		begin(t, r)
		if err := r.Ordering().Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.observe(db, delivery("pod", "a"))
		synctest.Wait()
		r.processes.events <- monitor.Event{Session: db, Ended: true}
		synctest.Wait()
		if r.clock.GoesOn() {
			t.Error("a step of a process that has ended goes on")
		}
		other := r.connect("db")
		pods := r.observe(other, delivery("pod", "a"))
		if err := r.End(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-pods
	})
}
