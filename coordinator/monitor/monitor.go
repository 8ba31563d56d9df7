// Package monitor is the coordinator's side of the wire: it accepts the sessions of instrumented processes, tells
// each process what to report, turns its calls into observations and releases them.
//
// Order: the observations of one session arrive on [Monitor.Events] in the order in which the process sent them;
// between sessions the order of the channel is the order there is. An observation holds its caller until Release.
// Ends of sessions come on the same channel, behind every observation of that session, and so do callers that wait no
// longer and times in which a process was not observed.
//
// A process is told for how long its hook may trust this coordinator, see [Config].Limits. One that does not answer
// itself stays connected, as it may be stopped for a while, and an event says so; only one that does not acknowledge
// new interests is cut off. Times are counted in this process's own ticks: that in which it is stopped itself does not
// count.
package monitor

import (
	"cmp"
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

// Defaults of Config.
const (
	DefaultSilence      = 20 * time.Second
	DefaultAckTimeout   = 5 * time.Second
	DefaultHelloTimeout = 10 * time.Second
)

// holdMargin is what a hook waits longer than the coordinator, whose own deadline begins when it takes an observation
// in, behind others and after it has looked up what the observation lacks.
const holdMargin = 30 * time.Second

// LimitsFor gives hooks the limits that suit a coordinator which holds no observation longer than hold.
func LimitsFor(hold time.Duration) wire.Limits {
	return wire.Limits{Hold: hold + holdMargin, Silence: DefaultSilence}
}

// Config sets up a Monitor. Address and Token are required.
type Config struct {
	Address string       // a wire.EnvCoordinator value
	Token   string       // what processes must show
	Logger  *slog.Logger // default: discards

	// Limits are what hooks are told, so that a coordinator that hangs holds nobody for ever. Limits.Hold must be
	// longer than the coordinator's own deadline, see LimitsFor; zero: hooks have none. Limits.Silence also says when
	// an event reports that a process does not answer; zero: DefaultSilence.
	Limits wire.Limits
	// AckTimeout bounds how long a process may take to acknowledge new interests. Then it is cut off, which releases
	// all that it holds. Default: DefaultAckTimeout.
	AckTimeout time.Duration
	// HelloTimeout bounds how long a connection may take to show its token. Default: DefaultHelloTimeout.
	HelloTimeout time.Duration
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

	mu   sync.Mutex
	lost string
}

// Event is what happened to a session: exactly one of Observation, Trouble, Missed, Silent, Started and Ended is set.
// With Abandoned, the caller of that Observation, which was on this channel before, has gone on by itself.
type Event struct {
	Session     *Session
	Observation *wire.Observation
	Abandoned   *wire.Abandoned
	Trouble     *wire.Trouble
	Missed      *wire.Missed  // the process ran without being observed for a time
	Silent      time.Duration // the process has not answered for that long; it is still connected
	Started     bool
	Ended       bool
	Lost        string // of a session that has Ended: why the monitor has cut it off; the process may be running on

	hold *hold
}

// NewEvent is an observation that comes from no process, and a channel that is closed when it is released.
func NewEvent(s *Session, o *wire.Observation) (Event, <-chan struct{}) {
	h := &hold{done: make(chan struct{})}
	return Event{Session: s, Observation: o, hold: h}, h.done
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
	config.Limits.Silence = cmp.Or(config.Limits.Silence, DefaultSilence)
	config.AckTimeout = cmp.Or(config.AckTimeout, DefaultAckTimeout)
	config.HelloTimeout = cmp.Or(config.HelloTimeout, DefaultHelloTimeout)
	network, address, ok := strings.Cut(config.Address, "://")
	if !ok || (network != "unix" && network != "tcp") {
		return nil, fmt.Errorf("coordinator address %q: want unix:///path or tcp://host:port", config.Address)
	}
	if network == "unix" {
		// A coordinator that was killed leaves its socket behind. The cluster's lock makes sure that nobody listens on
		// it.
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

// SetRules replaces what processes report, by identity; an identity without rules reports nothing. It returns when
// every connected process judges new calls by the new rules. A process that does not acknowledge them within the
// configured time loses its session, whose end then says so (Event.Lost).
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
			if err := s.configure(ctx, interests, m.config.AckTimeout); err != nil {
				m.config.Logger.Warn("process did not take its interests", "identity", s.Identity, "pid", s.PID,
					"error", err)
				s.cutOff(fmt.Sprintf("it did not acknowledge what it is to report: %v", err))
			}
		})
	}
	wg.Wait()
}

func (s *Session) configure(ctx context.Context, interests wire.Interests, timeout time.Duration) error {
	result := make(chan error, 1)
	go func() { // ends with the session; a process that reads nothing can block even the sending
		select {
		case <-s.control:
			result <- s.client.Call(wire.HookService+".Configure", interests, &wire.Ack{})
		case <-s.conn.CloseChan():
			result <- nil
		}
	}()
	const parts = 10
	ticker := time.NewTicker(timeout / parts)
	defer ticker.Stop()
	for missed := 0; ; {
		select {
		case err := <-result:
			if s.conn.IsClosed() {
				return nil // gone: nothing to configure
			}
			return err
		case <-s.conn.CloseChan():
			return nil
		case <-ctx.Done():
			return nil // nobody waits for the answer any more
		case <-ticker.C:
			if missed++; missed == parts {
				return fmt.Errorf("no answer within %s", timeout)
			}
		}
	}
}

// cutOff closes the session of a process that may be running on.
func (s *Session) cutOff(why string) {
	s.mu.Lock()
	if s.lost == "" && !s.conn.IsClosed() {
		s.lost = why
	}
	s.mu.Unlock()
	_ = s.conn.Close()
}

func (s *Session) lostBy() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
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
	// A stopped process is a session like any other; it ends with its connection, not for being slow. What notices that
	// it is silent is our own heartbeat, see Hello.
	config.EnableKeepAlive = false
	config.ConnectionWriteTimeout = writeTimeout
	config.StreamOpenTimeout = 0
	config.AcceptBacklog = 1 // each side opens one stream; more would let a stranger fill more memory
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
	stranger := time.AfterFunc(m.config.HelloTimeout, func() {
		m.config.Logger.Warn("connection closed: no accepted Hello", "within", m.config.HelloTimeout)
		_ = session.Close()
	})
	defer stranger.Stop()
	stream, err := session.AcceptStream()
	if err != nil {
		return
	}
	codec := newCodec(stream, maxHello)
	service := &service{
		monitor: m, conn: session, holds: map[*wire.Observation]*hold{},
		welcome: func() { stranger.Stop(); codec.trust() },
	}
	codec.arrived = service.arrived
	server := rpc.NewServer()
	if err := server.RegisterName(wire.MonitorService, service); err != nil {
		panic(err) // the method set is fixed at compile time
	}
	server.ServeCodec(codec)
	_ = session.Close()
	if s := service.registered(); s != nil {
		m.mu.Lock()
		delete(m.sessions, s.ID)
		m.mu.Unlock()
		m.send(Event{Session: s, Ended: true, Lost: s.lostBy()})
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

// maxHello is how many bytes a connection may send until its Hello is accepted. The largest part is the manifest, of a
// few hundred bytes for each point.
const maxHello = 4 << 20

// writeTimeout is how long a process may read nothing until its session is given up. yamux keeps a timer of that length
// for each ping, so that it cannot be for ever.
const writeTimeout = 10 * time.Minute

// service is the RPC service of one connection.
type service struct {
	monitor *Monitor
	conn    *yamux.Session
	welcome func() // lifts the limits for strangers

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
		welcome.Reject = fmt.Sprintf("protocol version %d, this coordinator speaks %d: build the process again with "+
			"this version of trommel",
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
	s.welcome()
	welcome.Limits = m.config.Limits
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
		wire.Heartbeat{
			Ping: func() error {
				_, err := s.conn.Ping()
				return err
			},
			Silence: m.config.Limits.Silence,
			Silent: func() {
				m.config.Logger.Warn("process does not answer", "identity", session.Identity, "pid", session.PID, "for",
					m.config.Limits.Silence)
				m.send(Event{Session: session, Silent: m.config.Limits.Silence})
			},
			Back: func() {
				m.config.Logger.Info("process answers again", "identity", session.Identity, "pid", session.PID)
			},
		}.Run(s.conn.CloseChan())
	})
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
	case *wire.Missed:
		s.monitor.send(Event{Session: session, Missed: message})
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

// Miss takes note that the process was not observed; [service.arrived] has done so.
func (s *service) Miss(*wire.Missed, *wire.Release) error { return nil }

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
