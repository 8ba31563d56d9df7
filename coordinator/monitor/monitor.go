// Package monitor is the coordinator's side of the wire: it accepts the sessions of instrumented processes, tells
// each process what to report, turns its calls into observations and releases them.
//
// Order: the observations of one session arrive on [Monitor.Events] in the order in which the process sent them;
// between sessions the order of the channel is the order there is. An observation holds its caller until Release.
// Ends of sessions come on the same channel, behind every observation of that session, and so do callers that wait no longer.
package monitor

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/rpc"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// configureTimeout bounds how long a process may take to acknowledge new interests. A process that does not answer
// for so long is stopped or gone; its session is closed, which releases all that it holds.
const configureTimeout = 5 * time.Second

// Config sets up a Monitor. Address and Token are required.
type Config struct {
	Address string       // a wire.EnvCoordinator value
	Token   string       // what processes must show
	Logger  *slog.Logger // default: discards
}

// Session is one connected process. Its fields do not change.
type Session struct {
	ID       uint64
	Identity string
	PID      int
	Manifest wire.Manifest

	conn    *yamux.Session
	control chan struct{} // closed once client is set
	client  *rpc.Client
}

// Event is what happened to a session: exactly one of Observation, Trouble, Started and Ended is set. With Abandoned, the caller of that
// Observation, which was on this channel before, has gone on by itself.
type Event struct {
	Session     *Session
	Observation *wire.Observation
	Abandoned   *wire.Abandoned
	Trouble     *wire.Trouble
	Started     bool
	Ended       bool

	hold *hold
}

// Release lets the observation's caller go on. It does not block and may be called more than once.
func (e Event) Release() {
	if e.hold != nil {
		e.hold.release()
	}
}

type hold struct {
	once sync.Once
	done chan struct{}
}

func (h *hold) release() { h.once.Do(func() { close(h.done) }) }

// Monitor accepts sessions until it is closed.
type Monitor struct {
	config   Config
	listener net.Listener
	events   chan Event
	closing  chan struct{}
	wg       sync.WaitGroup

	mu         sync.Mutex
	generation uint64
	nextID     uint64
	rules      map[string][]wire.Rule // by identity
	sessions   map[uint64]*Session
}

// Listen begins to accept sessions. The caller owns the Monitor and must read Events until Close.
func Listen(config Config) (*Monitor, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	network, address, ok := strings.Cut(config.Address, "://")
	if !ok || (network != "unix" && network != "tcp") {
		return nil, fmt.Errorf("coordinator address %q: want unix:///path or tcp://host:port", config.Address)
	}
	if network == "unix" {
		// A coordinator that was killed leaves its socket behind. The cluster's lock makes sure that nobody listens on it.
		if err := os.Remove(address); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("remove stale socket: %w", err)
		}
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		return nil, fmt.Errorf("listen for instrumented processes: %w", err)
	}
	m := &Monitor{
		config:   config,
		listener: listener,
		events:   make(chan Event, 64),
		closing:  make(chan struct{}),
		rules:    map[string][]wire.Rule{},
		sessions: map[uint64]*Session{},
	}
	m.wg.Go(m.accept)
	return m, nil
}

// Addr is the address in the form of wire.EnvCoordinator, with the port that was picked for tcp.
func (m *Monitor) Addr() string {
	return m.listener.Addr().Network() + "://" + m.listener.Addr().String()
}

// Events is the stream of what processes report. It is never closed; it ends with Close.
func (m *Monitor) Events() <-chan Event { return m.events }

// Close ends every session, which releases whatever is held, and waits for the monitor's goroutines.
func (m *Monitor) Close() error {
	close(m.closing)
	err := m.listener.Close()
	m.mu.Lock()
	for _, s := range m.sessions {
		_ = s.conn.Close()
	}
	m.mu.Unlock()
	m.wg.Wait()
	return err
}

// Sessions lists the connected processes, oldest first.
func (m *Monitor) Sessions() []*Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*Session
	for _, s := range m.sessions {
		list = append(list, s)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].ID < list[j].ID })
	return list
}

// SetRules replaces what processes report, by identity; an identity without rules reports nothing. It returns when every
// connected process judges new calls by the new rules. A process that does not acknowledge them loses its session.
func (m *Monitor) SetRules(ctx context.Context, rules map[string][]wire.Rule) {
	m.mu.Lock()
	m.generation++
	generation := m.generation
	m.rules = rules
	var sessions []*Session
	for _, s := range m.sessions {
		sessions = append(sessions, s)
	}
	m.mu.Unlock()

	var wg sync.WaitGroup
	for _, s := range sessions {
		wg.Go(func() {
			interests := wire.Interests{Generation: generation, Rules: rules[s.Identity]}
			if err := s.configure(ctx, interests); err != nil {
				m.config.Logger.Warn("process did not take its interests", "identity", s.Identity, "pid", s.PID, "error", err)
				_ = s.conn.Close()
			}
		})
	}
	wg.Wait()
}

func (s *Session) configure(ctx context.Context, interests wire.Interests) error {
	ctx, cancel := context.WithTimeout(ctx, configureTimeout)
	defer cancel()
	select {
	case <-s.control:
	case <-s.conn.CloseChan():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("open control stream: %w", ctx.Err())
	}
	var ack wire.Ack
	call := s.client.Go(wire.HookService+".Configure", interests, &ack, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		if s.conn.IsClosed() {
			return nil // gone: nothing to configure
		}
		return call.Error
	case <-s.conn.CloseChan():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("configure: %w", ctx.Err())
	}
}

func (m *Monitor) accept() {
	for {
		conn, err := m.listener.Accept()
		if err != nil {
			select {
			case <-m.closing:
			default:
				m.config.Logger.Error("accept instrumented processes", "error", err)
			}
			return
		}
		m.wg.Go(func() { m.serve(conn) })
	}
}

func (m *Monitor) serve(conn net.Conn) {
	config := yamux.DefaultConfig()
	config.LogOutput = nil
	config.Logger = slog.NewLogLogger(m.config.Logger.Handler(), slog.LevelDebug)
	// A stopped process is a session like any other; it ends with its connection, not for being slow.
	config.EnableKeepAlive = false
	session, err := yamux.Server(conn, config)
	if err != nil {
		_ = conn.Close()
		return
	}
	defer session.Close()
	go func() { // ends with the session
		select {
		case <-m.closing:
			_ = session.Close()
		case <-session.CloseChan():
		}
	}()
	stream, err := session.AcceptStream()
	if err != nil {
		return
	}
	service := &service{monitor: m, conn: session, holds: map[*wire.Observation]*hold{}}
	server := rpc.NewServer()
	if err := server.RegisterName(wire.MonitorService, service); err != nil {
		panic(err) // the method set is fixed at compile time
	}
	server.ServeCodec(newCodec(stream, service.arrived))
	_ = session.Close()
	if s := service.registered(); s != nil {
		m.mu.Lock()
		delete(m.sessions, s.ID)
		m.mu.Unlock()
		m.send(Event{Session: s, Ended: true})
	}
}

// send hands an event over unless the monitor is being closed.
func (m *Monitor) send(e Event) bool {
	select {
	case m.events <- e:
		return true
	case <-m.closing:
		return false
	}
}

// service is the RPC service of one connection.
type service struct {
	monitor *Monitor
	conn    *yamux.Session

	mu      sync.Mutex
	session *Session
	holds   map[*wire.Observation]*hold
}

func (s *service) registered() *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

// Hello answers a process that introduces itself.
func (s *service) Hello(hello *wire.Hello, welcome *wire.Welcome) error {
	m := s.monitor
	switch {
	case s.registered() != nil:
		welcome.Reject = "second Hello in one session"
	case hello.ProtocolVersion != wire.ProtocolVersion:
		welcome.Reject = fmt.Sprintf("protocol version %d, this coordinator speaks %d: build the process again with this version of trommel",
			hello.ProtocolVersion, wire.ProtocolVersion)
	case subtle.ConstantTimeCompare([]byte(hello.Token), []byte(m.config.Token)) != 1:
		welcome.Reject = "wrong token"
	case hello.Identity == "":
		welcome.Reject = "no identity"
	}
	if welcome.Reject != "" {
		m.config.Logger.Warn("session refused", "identity", hello.Identity, "pid", hello.PID, "reason", welcome.Reject)
		return nil
	}
	session := &Session{
		Identity: hello.Identity, PID: hello.PID, Manifest: hello.Manifest,
		conn: s.conn, control: make(chan struct{}),
	}
	// Registered and given its rules under one lock: SetRules either comes before, then these are its rules,
	// or after, then it finds the session.
	m.mu.Lock()
	m.nextID++
	session.ID = m.nextID
	m.sessions[session.ID] = session
	welcome.Session = session.ID
	welcome.Interests = wire.Interests{Generation: m.generation, Rules: m.rules[session.Identity]}
	m.mu.Unlock()
	s.mu.Lock()
	s.session = session
	s.mu.Unlock()
	m.send(Event{Session: session, Started: true})
	m.wg.Go(func() {
		stream, err := s.conn.OpenStream()
		if err != nil {
			_ = s.conn.Close()
			return
		}
		session.client = rpc.NewClient(stream)
		close(session.control)
		<-s.conn.CloseChan()
		_ = session.client.Close()
	})
	return nil
}

// arrived is called by the codec for every decoded message, one at a time and in order: net/rpc itself would run the
// calls in goroutines of their own and lose the order.
func (s *service) arrived(message any) {
	session := s.registered()
	if session == nil {
		return
	}
	switch message := message.(type) {
	case *wire.Observation:
		h := &hold{done: make(chan struct{})}
		s.mu.Lock()
		s.holds[message] = h
		s.mu.Unlock()
		if !s.monitor.send(Event{Session: session, Observation: message, hold: h}) {
			h.release()
		}
	case *wire.Abandoned:
		if o := s.unanswered(message.Call, message.Phase); o != nil {
			s.monitor.send(Event{Session: session, Observation: o, Abandoned: message})
		}
	case *wire.Trouble:
		s.monitor.send(Event{Session: session, Trouble: message})
	}
}

// unanswered is the observation of that call that has not been released, or nil.
func (s *service) unanswered(call uint64, phase wire.Phase) *wire.Observation {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o := range s.holds {
		if o.Call == call && o.Phase == phase {
			return o
		}
	}
	return nil
}

// Abandon takes note that a caller waits no longer; [service.arrived] has done so.
func (s *service) Abandon(*wire.Abandoned, *wire.Release) error { return nil }

// Trouble takes note that a hook has failed; [service.arrived] has done so.
func (s *service) Trouble(*wire.Trouble, *wire.Release) error { return nil }

// Observe returns when the observation is released or the session ends.
func (s *service) Observe(o *wire.Observation, _ *wire.Release) error {
	s.mu.Lock()
	h := s.holds[o]
	s.mu.Unlock()
	if h == nil {
		return errors.New("observe before Hello was accepted")
	}
	defer func() {
		s.mu.Lock()
		delete(s.holds, o)
		s.mu.Unlock()
	}()
	select {
	case <-h.done:
	case <-s.conn.CloseChan():
	}
	return nil
}
