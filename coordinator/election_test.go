package coordinator

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/coordinator/machine/plantest"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func TestLocksOfAControllerAreKnown(t *testing.T) {
	write := func(group, resource, kind, name, object string) wire.Observation {
		return wire.Observation{
			Call: 1, Point: wire.ControllerWrite, Phase: wire.After, Operation: wire.Update, Kind: kind,
			Resource: resource, Group: group, GroupKnown: true, Namespace: "kube-system", Name: name,
			Object: []byte(object),
		}
	}
	leads := `{"metadata":{"annotations":{"control-plane.alpha.kubernetes.io/leader":"{}"}}}`
	failed := write("", "configmaps", "configmap", "failed", leads)
	failed.Error, failed.Code = "conflict", 409
	reconciled := write(leaseGroup, "leases", "lease", "reconciled", "{}")
	reconciled.ReconcileID = "1"
	r := newRig(t, &plan.Plan{}, time.Minute)
	r.process = r.connect(t, "db")
	for _, o := range []wire.Observation{
		write(leaseGroup, "leases", "lease", "lease", `{"spec":{"leaseDurationSeconds":30}}`),
		write("", "configmaps", "configmap", "map", leads),
		write("", "endpoints", "endpoints", "ends", leads),
		write("", "configmaps", "configmap", "other", `{"metadata":{"annotations":{"a":"b"}}}`),
		write("", "secrets", "secret", "secret", leads),
		failed, reconciled,
	} {
		r.observe(t, o)
	}
	locks, err := r.Locks(context.Background(), "db")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range locks {
		got = append(got, l.String())
	}
	want := []string{"configmap/kube-system/map", "endpoints/kube-system/ends",
		"lease.coordination.k8s.io/kube-system/lease"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("locks (-want +got):\n%s", diff)
	}
	for controller, want := range map[string]time.Duration{"db": 30 * time.Second, "other": 0} {
		if got, err := r.LeaseLasts(context.Background(), controller); err != nil || got != want {
			t.Errorf("the lease of %s lasts for %s, want %s (%v)", controller, got, want, err)
		}
	}
}

// A process that is replaced while it makes its lease leaves a lease that must end before the next one leads.
func TestLeadersAreAwaited(t *testing.T) {
	const quiet = 50 * time.Millisecond
	r := newRig(t, &plan.Plan{}, time.Minute)
	r.process = r.connect(t, "db")
	if restless, err := r.Settle(t.Context(), quiet); err != nil || restless != "" {
		t.Fatalf("nobody has ever been leader: %q, %v", restless, err)
	}
	lease := wire.Observation{
		Call: 1, Point: wire.ControllerWrite, Phase: wire.After, Operation: wire.Create, Kind: "lease",
		Resource: "leases", Group: leaseGroup, GroupKnown: true, Namespace: "kube-system", Name: "db",
		Error: "context canceled",
	}
	r.observe(t, lease)
	short, cancel := context.WithTimeout(t.Context(), 6*quiet)
	defer cancel()
	restless, err := r.Settle(short, quiet)
	if err != nil || !strings.HasPrefix(restless, "db waits for leader election") {
		t.Errorf("the lease of a process without an answer counts as a leader: %q, %v", restless, err)
	}
	settled := make(chan string, 1)
	go func() {
		restless, err := r.Settle(t.Context(), quiet)
		settled <- fmt.Sprint(restless, err)
	}()
	lease.Call, lease.Error, lease.Operation = 2, "", wire.Update
	r.observe(t, lease)
	if got := <-settled; got != fmt.Sprint("", nil) {
		t.Errorf("it leads: %s", got)
	}
}

// A read of an annotated lock is recognized only by an earlier write: before it returns, it does not show the
// annotation.
func TestPauseOfEverythingLeavesKnownLocks(t *testing.T) {
	now := plan.Trigger{Expression: "now", Graph: plantest.Graph(t, "now"),
		Definitions: []plan.Definition{{Name: "now", Condition: plan.Condition{Type: plan.OnNone}}}}
	r := newRig(t, &plan.Plan{Actions: []plan.Action{
		{Type: plan.PauseController, Target: "db",
			Pausing: plan.Pausing{PauseAt: plan.BeforeControllerRead}, Trigger: now},
	}}, time.Minute)
	r.process = r.connect(t, "db")
	lock := wire.Observation{
		Call: 1, Point: wire.ControllerWrite, Phase: wire.After, Operation: wire.Update, Kind: "configmap",
		Resource: "configmaps", GroupKnown: true, Namespace: "kube-system", Name: "db",
		Object: []byte(`{"metadata":{"annotations":{"control-plane.alpha.kubernetes.io/leader":"{}"}}}`),
	}
	r.observe(t, lock)
	if err := r.Begin(context.Background()); err != nil {
		t.Fatal(err)
	}
	lock.Call, lock.Point, lock.Phase, lock.Operation, lock.Object = 2, wire.ControllerRead, wire.Before, wire.Get, nil
	r.observe(t, lock) // fails after 10 s if it is held
}

func TestLockRules(t *testing.T) {
	for version, want := range map[string]int{"": 1, "v0.17.2": 3, "v0.23.17": 3, "v0.24.0-alpha.1": 1, "v0.36.3": 1,
		"v0.0.0-20200410020128-abcdef012345": 3} {
		if got := len(lockRules(record.Controller{ClientGo: version})); got != want {
			t.Errorf("client-go %q: %d rules, want %d", version, got, want)
		}
	}
}
