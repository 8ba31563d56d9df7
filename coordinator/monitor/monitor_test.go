package monitor

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trommel-dev/trommel/coordinator/monitor/monitortest"
	"github.com/trommel-dev/trommel/instrumentation/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "secret"

func listen(t *testing.T, address string) *Monitor {
	t.Helper()
	m, err := Listen(Config{Address: address, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func next(t *testing.T, m *Monitor) Event {
	t.Helper()
	select {
	case e := <-m.Events():
		return e
	case <-time.After(10 * time.Second):
		t.Fatal("no event within 10s")
		return Event{}
	}
}

func hello(identity string) wire.Hello {
	return wire.Hello{ProtocolVersion: wire.ProtocolVersion, Token: token, Identity: identity, PID: 7}
}

func transports(t *testing.T, f func(t *testing.T, m *Monitor)) {
	for _, address := range []string{"tcp://127.0.0.1:0", "unix://" + filepath.Join(t.TempDir(), "s")} {
		network, _, _ := strings.Cut(address, "://")
		t.Run(network, func(t *testing.T) { f(t, listen(t, address)) })
	}
}

func TestObservationsArriveInOrderAndHoldUntilReleased(t *testing.T) {
	transports(t, func(t *testing.T, m *Monitor) {
		p := monitortest.Dial(t, m.Addr())
		p.Hello(hello("db"))
		if e := next(t, m); !e.Started || e.Session.Identity != "db" || e.Session.PID != 7 {
			t.Fatalf("first event %+v, want the start of db's session", e)
		}
		const n = 500
		go func() {
			for i := uint64(1); i <= n; i++ {
				p.Observe(wire.Observation{Call: i})
			}
		}()
		var events []Event
		for i := uint64(1); i <= n; i++ {
			e := next(t, m)
			if e.Observation.Call != i {
				t.Fatalf("observation %d came as number %d", e.Observation.Call, i)
			}
			events = append(events, e)
		}
		held := p.Observe(wire.Observation{Call: n + 1})
		last := next(t, m)
		for _, e := range events {
			e.Release()
			e.Release() // a second call is harmless
		}
		select {
		case <-held.Done:
			t.Fatal("a held call returned")
		case <-time.After(50 * time.Millisecond):
		}
		last.Release()
		if c := <-held.Done; c.Error != nil {
			t.Fatal(c.Error)
		}
	})
}

func TestReleaseToFail(t *testing.T) {
	transports(t, func(t *testing.T, m *Monitor) {
		p := monitortest.Dial(t, m.Addr())
		p.Hello(hello("db"))
		next(t, m)
		want := &wire.Failure{Answer: wire.Refused, Code: 409, Body: []byte("{}"), Header: map[string]string{"A": "b"}}
		for i, failure := range []*wire.Failure{want, nil} {
			held := p.Observe(wire.Observation{Call: uint64(i + 1)})
			e := next(t, m)
			e.ReleaseToFail(failure)
			e.Release() // the first release counts
			c := <-held.Done
			if got := c.Reply.(*wire.Release).Failure; c.Error != nil || !reflect.DeepEqual(got, failure) {
				t.Errorf("released with %+v (%v), want %+v", got, c.Error, failure)
			}
		}
	})
}

func TestRefusedSessions(t *testing.T) {
	m := listen(t, "tcp://127.0.0.1:0")
	for _, test := range []struct {
		name  string
		hello wire.Hello
		want  string
	}{
		{"wrong token", wire.Hello{ProtocolVersion: wire.ProtocolVersion, Token: "x", Identity: "db"}, "wrong token"},
		{"no identity", wire.Hello{ProtocolVersion: wire.ProtocolVersion, Token: token}, "no identity"},
		{"old hook", wire.Hello{ProtocolVersion: 0, Token: token, Identity: "db"},
			"protocol version 0, this coordinator speaks 4: rebuild the process with this version of trommel"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := monitortest.Dial(t, m.Addr()).Hello(test.hello).Reject; got != test.want {
				t.Errorf("rejected with %q, want %q", got, test.want)
			}
		})
	}
	if s := m.Sessions(); len(s) != 0 {
		t.Errorf("%d sessions after refusals", len(s))
	}
}

func TestObserveBeforeHelloIsAnError(t *testing.T) {
	m := listen(t, "tcp://127.0.0.1:0")
	if c := <-monitortest.Dial(t, m.Addr()).Observe(wire.Observation{Call: 1}).Done; c.Error == nil {
		t.Error("an observation without Hello was accepted")
	}
}

func TestKilledProcessEndsItsSessionBehindItsObservations(t *testing.T) {
	transports(t, func(t *testing.T, m *Monitor) {
		p := monitortest.Dial(t, m.Addr())
		p.Hello(hello("db"))
		next(t, m)
		p.Observe(wire.Observation{Call: 1})
		p.Observe(wire.Observation{Call: 2})
		first := next(t, m)
		second := next(t, m)
		p.Close()
		if e := next(t, m); !e.Ended || e.Session != first.Session {
			t.Fatalf("got %+v, want the session's end", e)
		}
		first.Release()
		second.Release()
		if s := m.Sessions(); len(s) != 0 {
			t.Errorf("%d sessions left", len(s))
		}
	})
}

func TestSetRulesReturnsWhenProcessesHaveThem(t *testing.T) {
	m := listen(t, "tcp://127.0.0.1:0")
	rules := func(n int) map[string][]wire.Rule {
		return map[string][]wire.Rule{"db": {{Point: wire.Reconcile, Name: fmt.Sprint(n)}}}
	}
	m.SetRules(context.Background(), rules(0))
	var all []*monitortest.Process
	for range 3 {
		p := monitortest.Dial(t, m.Addr())
		w := p.Hello(hello("db"))
		if len(w.Interests.Rules) != 1 || w.Interests.Rules[0].Name != "0" {
			t.Fatalf("welcomed with %+v", w.Interests)
		}
		next(t, m)
		all = append(all, p)
	}
	for n := 1; n <= 20; n++ {
		m.SetRules(context.Background(), rules(n))
		for _, p := range all {
			select {
			case i := <-p.Interests:
				if i.Rules[0].Name != fmt.Sprint(n) || i.Generation != uint64(n)+1 {
					t.Fatalf("round %d: got %+v", n, i)
				}
			default:
				t.Fatalf("round %d: SetRules returned before a process had its rules", n)
			}
		}
	}
}

func TestCloseLetsHeldCallersGo(t *testing.T) {
	m, err := Listen(Config{Address: "tcp://127.0.0.1:0", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	p := monitortest.Dial(t, m.Addr())
	p.Hello(hello("db"))
	var wg sync.WaitGroup
	for i := uint64(1); i <= 200; i++ { // more than the channel's capacity
		c := p.Observe(wire.Observation{Call: i})
		wg.Go(func() { <-c.Done })
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

func TestSecondListenTakesOverAStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close() // the socket file remains, as after a SIGKILL
	m := listen(t, "unix://"+path)
	if w := monitortest.Dial(t, m.Addr()).Hello(hello("db")); w.Reject != "" {
		t.Error(w.Reject)
	}
}
