package processnode

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/trommel-dev/trommel/internal/child"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/clock/keeper"
	"github.com/trommel-dev/trommel/internal/cluster"
)

// atClock runs a test of a container of a node with a clock that only the test moves. Nothing else is there.
func atClock(t *testing.T, test func(ctx context.Context, t *testing.T, c *clock.Clock, of *container)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		ctx := clock.With(t.Context(), c)
		n := &Node{config: Config{Clock: c}, ctx: ctx, changed: make(chan struct{})}
		p := &pod{node: n, dirty: make(chan struct{}, 1), ending: newEnding()}
		test(ctx, t, c, &container{pod: p, spec: &corev1.Container{}})
	})
}

// due returns when the next timer is due; 0 without one.
func due(c *clock.Clock) time.Duration {
	synctest.Wait()
	next, ok := c.Next()
	if !ok {
		return 0
	}
	return c.Until(next)
}

func TestProbeByClock(t *testing.T) {
	atClock(t, func(ctx context.Context, t *testing.T, c *clock.Clock, of *container) {
		of.spec.ReadinessProbe = &corev1.Probe{InitialDelaySeconds: 600, PeriodSeconds: 3600}
		ctx, cancel := context.WithCancel(ctx)
		ended, record := make(chan struct{}), &cluster.Process{}
		go func() {
			defer close(ended)
			of.probe(ctx, &run{record: record})
		}()
		for i, tt := range []struct {
			ready   bool
			next    time.Duration
			unready string
		}{
			{false, 10 * time.Minute, ""},
			{true, time.Hour, ""},
			{true, time.Hour, ""},
			{false, firstEager, `no port "none"`},
			{false, 2 * firstEager, `no port "none"`},
		} {
			if next := due(c); of.ready != tt.ready || next != tt.next || record.Unready != tt.unready {
				t.Errorf("%d: ready %t, and the next probe is in %s; want %t, %s", i, of.ready, next, tt.ready, tt.next)
				t.Errorf("%d: the probe fails: %q, want %q", i, record.Unready, tt.unready)
			}
			if i == 2 { // from now on it fails: there is no such port
				of.spec.ReadinessProbe.FailureThreshold = 1
				of.spec.ReadinessProbe.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromString("none")}
			}
			c.Advance(tt.next)
		}
		cancel()
		<-ended
		if next := due(c); next != 0 {
			t.Errorf("a timer is left, due in %s", next)
		}
	})
}

// TestTimeless: `sleep` does not have the clock, so time is real while it runs, unless its pod says that it does not
// matter.
func TestTimeless(t *testing.T) {
	k, err := keeper.Start(t.TempDir())
	if errors.Is(err, keeper.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for _, timeless := range []bool{false, true} {
		c := &container{pod: &pod{node: &Node{config: Config{Keeper: k}}}, program: program{timeless: timeless}}
		p, err := c.adopt(func() (*child.Process, error) { return child.Start(exec.Command("sleep", "100000")) })
		if err != nil {
			t.Fatal(err)
		}
		if held := k.Clock().Held(); held == timeless {
			t.Errorf("timeless %t: the clock is held: %t", timeless, held)
		}
		p.Kill()
		<-p.Done()
	}
}

func TestBackoffByClock(t *testing.T) {
	atClock(t, func(ctx context.Context, t *testing.T, c *clock.Clock, of *container) {
		started := make(chan bool, 1)
		go func() { started <- of.awaitStart(ctx, maxBackoff, 0) }()
		if next := due(c); next != maxBackoff || of.waiting != "CrashLoopBackOff" {
			t.Errorf("it waits for %q, and starts in %s", of.waiting, next)
		}
		c.Advance(maxBackoff - 1)
		if next := due(c); next != 1 || len(started) > 0 {
			t.Errorf("it starts in %s (%d)", next, len(started))
		}
		c.Advance(1)
		if !<-started {
			t.Error("it must not start")
		}
	})
}

// A Start between the end of a process and the beginning of the back-off ends the back-off too. One before the end does
// not.
func TestStartBeforeBackoff(t *testing.T) {
	for _, urgent := range []int{0, 1} {
		atClock(t, func(ctx context.Context, t *testing.T, c *clock.Clock, of *container) {
			of.pod.controller = &controller{urgent: 1 + urgent}
			of.idleSince = 1
			started := make(chan bool, 1)
			go func() { started <- of.awaitStart(ctx, maxBackoff, 0) }()
			if waits := due(c) == maxBackoff; waits != (urgent == 0) {
				t.Errorf("%d calls of Start since the process exited: waits: %t", urgent, waits)
			}
			c.Advance(maxBackoff)
			<-started
		})
	}
}

func TestGraceByClock(t *testing.T) {
	atClock(t, func(_ context.Context, t *testing.T, c *clock.Clock, of *container) {
		p := of.pod
		p.node.mu.Lock()
		p.terminateLocked(2 * time.Hour)
		p.terminateLocked(time.Hour)
		p.node.mu.Unlock()
		<-p.ending.stopping
		if next := due(c); next != time.Hour {
			t.Errorf("it is killed in %s", next)
		}
		c.Advance(time.Hour)
		<-p.ending.kill
	})
}
