// Package monitor is the coordinator's side of the wire protocol: it accepts the sessions of instrumented processes,
// sends each process the interests that say what it reports, turns its calls into observations and releases them.
//
// Order: the observations of one session arrive on [Monitor.Events] in the order in which the process sent them; the
// order of the channel also orders the sessions among each other. An observation holds its caller until Release. The
// end of a session comes on the same channel after all its observations; so do callers that no longer wait, and gaps in
// which a process was not observed.
//
// Hooks receive how long they wait for this coordinator, see [Config].Limits. A process that does not answer stays
// connected, as it may only be stopped for a while, and an event says so; only a process that does not acknowledge new
// interests is cut off. Times are measured by this process's own ticks, so that the time in which it is stopped itself
// does not count.
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
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/clock"
)

// Defaults of Config.
const (
	DefaultSilence      = 20 * time.Second
	DefaultAckTimeout   = 5 * time.Second
	DefaultHelloTimeout = 10 * time.Second
)

// holdMargin is how much longer a hook waits than the coordinator. The coordinator's deadline starts later: after the
// observations before it, and after the lookup for this one.
const holdMargin = 30 * time.Second

// LimitsFor returns the limits for hooks of a coordinator that holds no observation longer than hold.
func LimitsFor(hold time.Duration) wire.Limits {
	return wire.Limits{Hold: hold + holdMargin, Silence: DefaultSilence}
}

// Config configures a Monitor. Address and Token are required.
type Config struct {
	Address string       // a wire.EnvCoordinator value
	Token   string       // processes must present it
	Logger  *slog.Logger // default: discards

	// Limits are sent to hooks, so that a hung coordinator holds no process forever. Limits.Hold must be longer than
	// the coordinator's own deadline, see LimitsFor; zero: no limit. Limits.Silence is also the time after which an
	// event reports that a process does not answer; zero: DefaultSilence.
	Limits wire.Limits
	// AckTimeout limits how long a process may take to acknowledge new interests. After that it is cut off, which
	// releases its holds. Default: DefaultAckTimeout.
	AckTimeout time.Duration
	// HelloTimeout limits how long a connection may take to present its token. Default: DefaultHelloTimeout.
	HelloTimeout time.Duration
}

// Session is one connected process. Its exported fields do not change.
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
// If Abandoned is set too, the caller of that Observation, which an earlier event delivered, has gone on without a
// release.
type Event struct {
	Session     *Session
	Observation *wire.Observation
	Abandoned   *wire.Abandoned
	Trouble     *wire.Trouble
	Missed      *wire.Missed  // the process ran unobserved for a time
	Silent      time.Duration // the process has not answered for that long; it is still connected
	Started     bool
	Ended       bool
	Lost        string // with Ended: why the monitor has cut the session off; the process may still be running

	hold *hold
}

// NewEvent returns an observation without a process, for tests, and a channel that is closed when it is released.
func NewEvent(s *Session, o *wire.Observation) (Event, <-chan struct{}) {
	h := &hold{done: make(chan struct{})}
	return Event{Session: s, Observation: o, hold: h}, h.done
}

// Release lets the observation's caller go on. It does not block and may be called more than once.
func (e Event) Release() { e.ReleaseToFail(nil) }

// ReleaseToFail is Release for a request that must fail, see [wire.Failure]. The first release counts.
func (e Event) ReleaseToFail(failure *wire.Failure) {
	if e.hold != nil {
		e.hold.release(failure)
	}
}

type hold struct {
	once    sync.Once
	done    chan struct{}
	failure *wire.Failure // set when done is closed
}

func (h *hold) release(failure *wire.Failure) {
	h.once.Do(func() {
		h.failure = failure
		close(h.done)
	})
}

// Monitor accepts sessions until Close.
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

// Listen starts to accept sessions. The caller owns the Monitor and must read Events until Close.
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
		// A killed coordinator leaves its socket behind. The cluster's lock ensures that no other coordinator listens
		// on it.
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

// Addr returns the address in the form of wire.EnvCoordinator, for tcp with the actual port.
func (m *Monitor) Addr() string {
	return m.listener.Addr().Network() + "://" + m.listener.Addr().String()
}

// Events returns the channel of all events. It is never closed; after Close, no more events come.
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

// SetRules replaces the rules for what processes report, by identity; an identity without rules reports nothing. It
// returns when every connected process applies the new rules to new calls. A process that does not acknowledge them
// within Config.AckTimeout is cut off (Event.Lost). Frozen are the IDs of sessions whose processes cannot answer: they
// keep their rules until the next call that does not name them.
func (m *Monitor) SetRules(ctx context.Context, rules map[string][]wire.Rule, frozen ...uint64) {
	// Processes answer at once, as far as the machine lets them; no time of the run passes meanwhile. What waits for
	// their answers and for a Hello is about this machine, and goes by its clock.
	release := clock.Hold(ctx)
	defer release()
	m.mu.Lock()
	m.generation++
	generation := m.generation
	m.rules = rules
	var sessions []*Session
	for _, s := range m.sessions {
		if !slices.Contains(frozen, s.ID) {
			sessions = append(sessions, s)
		}
	}
	m.mu.Unlock()

	var wg sync.WaitGroup
	for _, s := range sessions {
		wg.Go(func() {
			interests := wire.Interests{Generation: generation, Rules: rules[s.Identity]}
			if err := s.configure(ctx, interests, m.config.AckTimeout); err != nil {
				m.config.Logger.Warn("process did not acknowledge its interests", "identity", s.Identity, "pid", s.PID,
					"error", err)
				s.cutOff(fmt.Sprintf("it did not acknowledge its reporting rules: %v", err))
			}
		})
	}
	wg.Wait()
}

func (s *Session) configure(ctx context.Context, interests wire.Interests, timeout time.Duration) error {
	result := make(chan error, 1)
	go func() { // ends with the session; sending can block if the process reads nothing
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
				return nil // the process is gone
			}
			return err
		case <-s.conn.CloseChan():
			return nil
		case <-ctx.Done():
			return nil // the caller no longer waits
		case <-ticker.C:
			if missed++; missed == parts {
				return fmt.Errorf("no answer within %s", timeout)
			}
		}
	}
}

// cutOff closes the session of a process that may still be running.
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

// accept accepts connections until Close. An error passes: without file descriptors, say, those of strangers are free
// again after HelloTimeout.
func (m *Monitor) accept() {
	const least, most = 5 * time.Millisecond, time.Second
	wait := least
	for {
		conn, err := m.listener.Accept()
		if err == nil {
			wait = least
			m.wg.Go(func() { m.serve(conn) })
			continue
		}
		select {
		case <-m.closing:
			return
		default:
		}
		m.config.Logger.Error("accept instrumented processes", "error", err, "again in", wait)
		select {
		case <-m.closing:
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, most)
	}
}

func (m *Monitor) serve(conn net.Conn) {
	config := yamux.DefaultConfig()
	config.LogOutput = nil
	config.Logger = slog.NewLogLogger(m.config.Logger.Handler(), slog.LevelDebug)
	// The session of a stopped process stays open; it ends with its connection, not because it is slow. Our own
	// heartbeat notices that it is silent, see Hello.
	config.EnableKeepAlive = false
	config.ConnectionWriteTimeout = writeTimeout
	config.StreamOpenTimeout = 0
	config.AcceptBacklog = 1 // each side opens one stream; a larger backlog would let strangers use more memory
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
		panic(err) // cannot happen: the method set is fixed at compile time
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

// send sends an event and returns true, or false if the monitor is being closed.
func (m *Monitor) send(e Event) bool {
	select {
	case m.events <- e:
		return true
	case <-m.closing:
		return false
	}
}

// maxHello is the number of bytes that a connection may send before its Hello is accepted. The largest part is the
// manifest, with a few hundred bytes for each point.
const maxHello = 4 << 20

// writeTimeout is how long a process may read nothing before its session ends. It cannot be infinite, because yamux
// keeps a timer of that length for each ping.
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

// Hello handles the first call of a process: it checks its token and protocol version, and registers its session.
func (s *service) Hello(hello *wire.Hello, welcome *wire.Welcome) error {
	m := s.monitor
	switch {
	case s.registered() != nil:
		welcome.Reject = "second Hello in one session"
	case hello.ProtocolVersion != wire.ProtocolVersion:
		welcome.Reject = fmt.Sprintf("protocol version %d, this coordinator speaks %d: rebuild the process with this "+
			"version of trommel",
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
	// The session is registered and gets its rules under one lock: SetRules comes either before, so that these are its
	// rules, or after, so that it finds the session.
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

// arrived is called by the codec for every decoded message, one at a time and in order. net/rpc runs each call in its
// own goroutine and would lose the order.
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
			h.release(nil)
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

// unanswered returns the call's observation if it has not been released, otherwise nil.
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

// Abandon reports that a caller no longer waits. [service.arrived] has handled it.
func (s *service) Abandon(*wire.Abandoned, *wire.Release) error { return nil }

// Miss reports that the process was not observed. [service.arrived] has handled it.
func (s *service) Miss(*wire.Missed, *wire.Release) error { return nil }

// Trouble reports that a hook has failed. [service.arrived] has handled it.
func (s *service) Trouble(*wire.Trouble, *wire.Release) error { return nil }

// Observe returns when the observation is released or the session ends.
func (s *service) Observe(o *wire.Observation, answer *wire.Release) error {
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
		answer.Failure = h.failure
	case <-s.conn.CloseChan():
	}
	return nil
}
