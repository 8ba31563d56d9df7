package coordinator

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/coordinator/machine/plantest"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
)

func write(kind, name string) wire.Observation {
	o := wire.Observation{Call: 1, Point: wire.ControllerWrite, Phase: wire.After, Operation: wire.Update, Kind: kind,
		GroupKnown: true, Namespace: "default", Name: name}
	if kind == "lease" {
		o.Group, o.Resource = "coordination.k8s.io", "leases"
	}
	return o
}

func TestSettleWaitsUntilTheControllerDoesNothing(t *testing.T) {
	r := newRig(t, &plan.Plan{}, time.Minute)
	r.process = r.connect(t, "db")
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	const quiet = 200 * time.Millisecond
	settled := make(chan time.Time, 1)
	last := time.Now()
	go func() {
		restless, err := r.Settle(t.Context(), quiet)
		if err != nil || restless != "" {
			t.Errorf("%q, %v", restless, err)
		}
		settled <- time.Now()
	}()
	for range 5 {
		r.observe(t, write("pod", "a"))
		now := time.Now()
		if now.Sub(last) >= quiet {
			<-settled
			t.Skip("the machine is too slow: it stood still for the quiet time")
		}
		last = now
		// The next one comes within the quiet time.
		time.Sleep(quiet / 4)
	}
	if at := <-settled; at.Sub(last) < quiet/2 {
		t.Errorf("settled %s after the last write", at.Sub(last))
	}
}

// Regression: between the steps of a workload, controllers that had been idle for long counted as at rest at once,
// before they could hear of the step.
func TestSettleBeginsAnewAfterStir(t *testing.T) {
	r := newRig(t, &plan.Plan{}, time.Minute)
	r.process = r.connect(t, "db")
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	const quiet = 50 * time.Millisecond
	for range 3 {
		time.Sleep(2 * quiet)
		began := time.Now()
		if err := r.Stir(t.Context()); err != nil {
			t.Fatal(err)
		}
		if restless, err := r.Settle(t.Context(), quiet); err != nil || restless != "" || time.Since(began) < quiet {
			t.Errorf("settled after %s: %q, %v", time.Since(began), restless, err)
		}
	}
}

func TestSettleSaysWhoIsRestless(t *testing.T) {
	const quiet = 50 * time.Millisecond
	bounded := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 6*quiet)
		t.Cleanup(cancel)
		return ctx
	}
	r := newRig(t, &plan.Plan{}, time.Minute)
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if restless, err := r.Settle(bounded(), quiet); err != nil || restless != "db is not connected" {
		t.Errorf("not connected: %q, %v", restless, err)
	}
	r.process = r.connect(t, "db")
	r.observe(t, write("lease", "db"))
	if restless, err := r.Settle(t.Context(), quiet); err != nil || restless != "" {
		t.Errorf("it leads: %q, %v", restless, err)
	}
	r.process.Close()
	if err := r.loop.until(t.Context(), func() bool { return !r.sessions.connected("db") }); err != nil {
		t.Fatal(err)
	}
	r.process = r.connect(t, "db")
	restless, err := r.Settle(bounded(), quiet)
	if err != nil ||
		restless != "db waits for leader election: it has not acquired lease.coordination.k8s.io/default/db again" {
		t.Errorf("it does not lead: %q, %v", restless, err)
	}
	// Renewing a lease is not activity.
	renewing := bounded()
	go func() {
		for renewing.Err() == nil {
			<-r.process.Observe(write("lease", "db")).Done
		}
	}()
	if restless, err := r.Settle(t.Context(), quiet); err != nil || restless != "" {
		t.Errorf("it renews: %q, %v", restless, err)
	}
	// Its activity begins before the wait does. On a busy machine it pauses for longer than quiet.
	const longQuiet = time.Second
	r.observe(t, write("pod", "a"))
	ctx, cancel := context.WithTimeout(t.Context(), 3*longQuiet/2)
	defer cancel()
	busy := make(chan struct{})
	go func() {
		defer close(busy)
		for ctx.Err() == nil {
			<-r.process.Observe(write("pod", "a")).Done
		}
	}()
	if restless, err := r.Settle(ctx, longQuiet); err != nil || !strings.HasPrefix(restless, "db was active ") {
		t.Errorf("it never rests: %q, %v", restless, err)
	}
	<-busy
}

func TestSettleDoesNotWaitForWhatThePlanHasKilled(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{{Type: plan.KillController, Target: "db",
		Trigger: plantest.Trigger(t, "now", "now@none")}}}
	r := newRig(t, p, time.Minute)
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if restless, err := r.Settle(t.Context(), time.Millisecond); err != nil || restless != "" {
		t.Errorf("%q, %v", restless, err)
	}
}

// Calls that the end of the plan releases take effect only then: the quiet time starts again.
func TestSettleBeginsAnewWhenTheEndLetsSomethingGo(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{{Type: plan.PauseAPIServer, Target: "apiserver-1",
		Trigger: plantest.Trigger(t, "now", "now@none")}}}
	r := newRig(t, p, time.Minute)
	r.process = r.connect(t, "db")
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	const quiet = 200 * time.Millisecond
	settle := func(began time.Time) time.Duration {
		if restless, err := r.Settle(t.Context(), quiet); err != nil || restless != "" {
			t.Fatalf("%q, %v", restless, err)
		}
		return time.Since(began)
	}
	settle(time.Now())
	if took := settle(time.Now()); took >= quiet {
		t.Errorf("settled before, and took %s again", took)
	}
	ends := time.Now()
	if err := r.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := settle(ends); took < quiet {
		t.Errorf("settled %s after everything was released", took)
	}
}
