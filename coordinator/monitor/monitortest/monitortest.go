// Package monitortest implements the hook's side of the wire protocol, for tests of the monitor and the coordinator.
package monitortest

import (
	"net"
	"net/rpc"
	"strings"
	"testing"

	"github.com/hashicorp/yamux"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// Process is the hook's side of a session, driven by a test.
type Process struct {
	t       testing.TB
	session *yamux.Session
	client  *rpc.Client
	// Interests receives the argument of each Configure call.
	Interests chan wire.Interests
}

// Configure implements the hook's RPC service.
func (p *Process) Configure(i wire.Interests, ack *wire.Ack) error {
	p.Interests <- i
	ack.Generation = i.Generation
	return nil
}

// Dial connects to a monitor. The connection is closed at the end of the test, if not before.
func Dial(t testing.TB, address string) *Process {
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
	p := &Process{t: t, session: session, client: rpc.NewClient(stream), Interests: make(chan wire.Interests, 16)}
	t.Cleanup(p.Close)
	return p
}

// Close ends the session as a killed process would.
func (p *Process) Close() {
	_ = p.client.Close()
	_ = p.session.Close()
}

// Closed is closed when the session has ended, by either side.
func (p *Process) Closed() <-chan struct{} { return p.session.CloseChan() }

type testWriter struct{}

func (testWriter) Write(b []byte) (int, error) { return len(b), nil }

// Hello opens the session; if it is accepted, Hello serves the monitor's control stream.
func (p *Process) Hello(h wire.Hello) wire.Welcome {
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

// Observe sends an observation; the call returns when it is released.
func (p *Process) Observe(o wire.Observation) *rpc.Call {
	return p.client.Go(wire.MonitorService+".Observe", o, &wire.Release{}, make(chan *rpc.Call, 1))
}

// LetGo reports that the hook has released the observation's caller.
func (p *Process) LetGo(o wire.Observation, why string) error {
	return p.client.Call(wire.MonitorService+".Abandon",
		wire.Abandoned{Call: o.Call, Phase: o.Phase, Error: why, LetGo: true}, &wire.Release{})
}

// Miss reports that the process was not observed for a time.
func (p *Process) Miss(why string) error {
	return p.client.Call(wire.MonitorService+".Miss", wire.Missed{Why: why}, &wire.Release{})
}

// Abandon reports that the observation's caller has gone on without a release.
func (p *Process) Abandon(o wire.Observation, why string) error {
	return p.client.Call(wire.MonitorService+".Abandon", wire.Abandoned{Call: o.Call, Phase: o.Phase, Error: why},
		&wire.Release{})
}
