package monitor

import (
	"context"
	"fmt"
	"net"
	"net/rpc"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"go.uber.org/goleak"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "secret"

// process is the hook's side of a session, spoken by hand.
type process struct {
	t         *testing.T
	session   *yamux.Session
	client    *rpc.Client
	interests chan wire.Interests
}

// Configure is the hook's service.
func (p *process) Configure(i wire.Interests, ack *wire.Ack) error {
	p.interests <- i
	ack.Generation = i.Generation
	return nil
}

func dial(t *testing.T, address string) *process {
	t.Helper()
	network, addr, _ := strings.Cut(address, "://")
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	config := yamux.DefaultConfig()
	config.LogOutput = testWriter{}
	session, err := yamux.Client(conn, config)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := session.Open()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, session: session, client: rpc.NewClient(stream), interests: make(chan wire.Interests, 16)}
	t.Cleanup(p.close)
	return p
}

func (p *process) close() {
	_ = p.client.Close()
	_ = p.session.Close()
}

type testWriter struct{}

func (testWriter) Write(b []byte) (int, error) { return len(b), nil }

func (p *process) hello(h wire.Hello) wire.Welcome {
	p.t.Helper()
	var w wire.Welcome
	if err := p.client.Call(wire.MonitorService+".Hello", h, &w); err != nil {
		p.t.Fatal(err)
	}
	if w.Reject == "" {
		stream, err := p.session.Accept()
		if err != nil {
			p.t.Fatal(err)
		}
		server := rpc.NewServer()
		if err := server.RegisterName(wire.HookService, p); err != nil {
			p.t.Fatal(err)
		}
		go server.ServeConn(stream)
	}
	return w
}

func (p *process) observe(call uint64) *rpc.Call {
	return p.client.Go(wire.MonitorService+".Observe", wire.Observation{Call: call}, &wire.Release{}, make(chan *rpc.Call, 1))
}

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
		p := dial(t, m.Addr())
		p.hello(hello("db"))
		if e := next(t, m); !e.Started || e.Session.Identity != "db" || e.Session.PID != 7 {
			t.Fatalf("first event %+v, want the start of db's session", e)
		}
		const n = 500
		var calls []*rpc.Call
		go func() {
			for i := uint64(1); i <= n; i++ {
				p.observe(i)
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
		held := p.observe(n + 1)
		calls = append(calls, held)
		last := next(t, m)
		for _, e := range events {
			e.Release()
			e.Release() // twice is harmless
		}
		select {
		case <-held.Done:
			t.Fatal("a held call returned")
		case <-time.After(50 * time.Millisecond):
		}
		last.Release()
		if c := <-calls[0].Done; c.Error != nil {
			t.Fatal(c.Error)
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
			"protocol version 0, this coordinator speaks 1: build the process again with this version of trommel"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := dial(t, m.Addr()).hello(test.hello).Reject; got != test.want {
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
	if c := <-dial(t, m.Addr()).observe(1).Done; c.Error == nil {
		t.Error("an observation without Hello was taken")
	}
}

func TestKilledProcessEndsItsSessionBehindItsObservations(t *testing.T) {
	transports(t, func(t *testing.T, m *Monitor) {
		p := dial(t, m.Addr())
		p.hello(hello("db"))
		next(t, m)
		p.observe(1)
		p.observe(2)
		first := next(t, m)
		second := next(t, m)
		p.close()
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
	var all []*process
	for range 3 {
		p := dial(t, m.Addr())
		w := p.hello(hello("db"))
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
			case i := <-p.interests:
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
	p := dial(t, m.Addr())
	p.hello(hello("db"))
	var wg sync.WaitGroup
	for i := uint64(1); i <= 200; i++ { // more than the channel takes
		c := p.observe(i)
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
	_ = l.Close() // the file stays, as after a SIGKILL
	m := listen(t, "unix://"+path)
	if w := dial(t, m.Addr()).hello(hello("db")); w.Reject != "" {
		t.Error(w.Reject)
	}
}
