package hook

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hashicorp/yamux"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// EnvDebug names a file to which the hook writes its own errors.
const EnvDebug = "TROMMEL_HOOK_DEBUG"

const (
	dialTimeout  = 2 * time.Second
	helloTimeout = 5 * time.Second // how long main waits
	helloLimit   = time.Minute     // how long a coordinator may take to welcome a process, which runs meanwhile
	redialEvery  = 100 * time.Millisecond
	// How long a coordinator may read nothing before the session ends. It cannot be infinite, because yamux keeps a
	// timer of that length for each ping.
	writeTimeout = 10 * time.Minute
)

// manifest is the wire.Manifest of the binary, JSON in base64; the linker sets it.
var manifest string

// enabled is set before main runs and does not change.
var enabled bool

// Enabled reports whether this process was started to be observed.
func Enabled() bool { return enabled }

func init() {
	defer IgnorePanic()
	address := os.Getenv(wire.EnvCoordinator)
	if address == "" {
		return
	}
	enabled = true
	openDebug(os.Getenv(EnvDebug))
	a := newAgent(address, os.Getenv(wire.EnvToken), os.Getenv(wire.EnvIdentity))
	go a.run()
	// Main begins when the coordinator knows this process, so that nothing is missed, or when there is no coordinator.
	select {
	case <-a.tried:
	case <-time.After(helloTimeout):
	}
}

// own is the address of the API server that the environment names, see rest.InClusterConfig.
var own = net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))

// Server returns Observation.Server for requests to the host of a client's URL.
func Server(host string) string {
	if host == own {
		return wire.OwnServer
	}
	return host
}

// ServiceAccountFile moves a path inside the service account's directory to the directory that the environment names.
func ServiceAccountFile(path string) string {
	dir := os.Getenv(wire.EnvServiceAccountDir)
	if dir == "" {
		return path
	}
	const mounted = "/var/run/secrets/kubernetes.io/serviceaccount"
	if !strings.HasPrefix(path, mounted) {
		return path
	}
	return dir + strings.TrimPrefix(path, mounted)
}

// agent keeps a session with the coordinator: when one is lost, it opens the next.
type agent struct {
	address, token, identity string
	tried                    chan struct{} // closed when the first attempt has succeeded or failed
	once                     sync.Once
	stop                     chan struct{} // for tests
	done                     chan struct{} // closed when run returns
	late                     bool          // the process went on because a coordinator took too long to answer
}

func newAgent(address, token, identity string) *agent {
	return &agent{
		address: address, token: token, identity: identity,
		tried: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
}

func (a *agent) run() {
	defer close(a.done)
	defer a.once.Do(func() { close(a.tried) })
	defer IgnorePanic()
	for a.connect() {
		select {
		case <-a.stop:
			return
		case <-time.After(redialEvery):
		}
	}
}

// connect dials and serves one session until it is lost. It reports whether to dial again.
func (a *agent) connect() (again bool) {
	i := strings.Index(a.address, "://")
	if i < 0 || (a.address[:i] != "unix" && a.address[:i] != "tcp") {
		debugf("%s=%q: want unix:///path or tcp://host:port", wire.EnvCoordinator, a.address)
		return false
	}
	conn, err := net.DialTimeout(a.address[:i], a.address[i+3:], dialTimeout)
	if err != nil {
		a.once.Do(func() { close(a.tried) })
		return true
	}
	s, err := newSession(conn)
	if err != nil {
		debugf("open session: %v", err)
		return true
	}
	defer s.close()
	welcome, err := s.hello(a)
	if err != nil {
		debugf("hello: %v", err)
		a.once.Do(func() { close(a.tried) })
		return true
	}
	if welcome.Reject != "" {
		debugf("refused: %s", welcome.Reject)
		return false
	}
	s.limits = welcome.Limits
	if a.late {
		a.late = false
		s.send("Miss", &wire.Missed{
			Why: fmt.Sprintf("the coordinator took longer than %s to answer when the process connected", helloTimeout),
		})
	}
	s.configure(welcome.Interests)
	a.once.Do(func() { close(a.tried) })
	go s.serve()
	go s.deliver()
	go s.watch()
	select {
	case <-s.mux.CloseChan():
	case <-a.stop:
	}
	return true
}

// session is one connection to a coordinator.
type session struct {
	mux    *yamux.Session
	client *rpc.Client
	limits wire.Limits
	lost   chan struct{} // closed at the session's end, which releases all callers
	queue  queue         // what is sent, in the order in which callers arrived

	configuring sync.Mutex
	// Under configuring:
	ended  bool
	newest *interests
	silent bool          // the coordinator does not answer; nothing is reported
	letGo  chan struct{} // closed when the coordinator falls silent
}

// queue keeps the order of messages. It never blocks a caller, even if the coordinator reads nothing.
type queue struct {
	sync.Mutex
	messages []*rpc.Call
	filled   chan struct{} // holds one value while there may be messages
}

func (q *queue) put(m *rpc.Call) {
	q.Lock()
	q.messages = append(q.messages, m)
	q.Unlock()
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

func (q *queue) take() []*rpc.Call {
	q.Lock()
	defer q.Unlock()
	all := q.messages
	q.messages = nil
	return all
}

func newSession(conn net.Conn) (*session, error) {
	config := yamux.DefaultConfig()
	config.LogOutput = io.Discard
	// The session of a coordinator that is slow or stopped lasts; it ends only with its connection. yamux's own
	// keepalive would end it, even if it was this process that was stopped; see watch for ours.
	config.EnableKeepAlive = false
	config.ConnectionWriteTimeout = writeTimeout
	config.StreamOpenTimeout = 0
	mux, err := yamux.Client(conn, config)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	stream, err := mux.OpenStream()
	if err != nil {
		_ = mux.Close()
		return nil, err
	}
	return &session{
		mux: mux, client: rpc.NewClient(fatalWrites{stream, mux}),
		lost: make(chan struct{}), letGo: make(chan struct{}),
		queue: queue{filled: make(chan struct{}, 1)},
	}, nil
}

// fatalWrites ends the session when a write fails: after half a message the peer can read no other.
type fatalWrites struct {
	*yamux.Stream
	mux *yamux.Session
}

func (w fatalWrites) Write(data []byte) (int, error) {
	n, err := w.Stream.Write(data)
	if err != nil {
		_ = w.mux.Close()
	}
	return n, err
}

func (s *session) hello(a *agent) (wire.Welcome, error) {
	hello := wire.Hello{
		ProtocolVersion: wire.ProtocolVersion, Token: a.token, Identity: a.identity, PID: os.Getpid(),
		Manifest: readManifest(),
	}
	var welcome wire.Welcome
	call := s.client.Go(wire.MonitorService+".Hello", &hello, &welcome, make(chan *rpc.Call, 1))
	timeout := time.NewTimer(helloTimeout)
	defer timeout.Stop()
	for waited := false; ; {
		select {
		case <-call.Done:
			return welcome, call.Error
		case <-timeout.C:
			if waited {
				return wire.Welcome{}, errors.New("no answer")
			}
			// Another connection would only wait behind this one.
			waited, a.late = true, true
			a.once.Do(func() { close(a.tried) })
			timeout.Reset(helloLimit - helloTimeout)
		case <-a.stop:
			return wire.Welcome{}, errors.New("stopped")
		}
	}
}

func readManifest() wire.Manifest {
	var m wire.Manifest
	if manifest == "" {
		return m
	}
	data, err := base64.StdEncoding.DecodeString(manifest)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		debugf("manifest: %v", err)
	}
	return m
}

// serve answers the monitor's calls until the session ends.
func (s *session) serve() {
	defer IgnorePanic()
	stream, err := s.mux.AcceptStream()
	if err != nil {
		return
	}
	server := rpc.NewServer()
	if err := server.RegisterName(wire.HookService, &service{s}); err != nil {
		debugf("register: %v", err)
		return
	}
	server.ServeConn(stream)
}

type service struct{ session *session }

// Configure replaces what the process reports; when it returns, new calls are judged by the new rules.
func (v *service) Configure(from wire.Interests, ack *wire.Ack) error {
	ack.Generation = v.session.configure(from)
	return nil
}

// configure returns the generation in force: net/rpc may run two calls out of order, and the newer one wins.
func (s *session) configure(from wire.Interests) uint64 {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	if s.ended {
		return from.Generation
	}
	if s.newest != nil && s.newest.generation > from.Generation {
		return s.newest.generation
	}
	s.newest = newInterests(s, from, s.letGo)
	if !s.silent {
		atomic.StorePointer(&current, unsafe.Pointer(s.newest))
	}
	return from.Generation
}

// watch releases all callers while the coordinator does not answer.
func (s *session) watch() {
	defer IgnorePanic()
	wire.Heartbeat{
		Ping: func() error {
			_, err := s.mux.Ping()
			return err
		},
		Silence: s.limits.Silence,
		Silent:  s.suspend,
		Back:    s.resume,
	}.Run(s.lost)
}

func (s *session) silence() string {
	return fmt.Sprintf("the coordinator did not answer for %s", s.limits.Silence)
}

// suspend releases all callers, and reports nothing until resume.
func (s *session) suspend() {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	if s.ended {
		return
	}
	s.silent = true
	if now := (*interests)(atomic.LoadPointer(&current)); now != nil && now.session == s {
		atomic.StorePointer(&current, nil)
	}
	debugf("suspended: %s", s.silence())
	// Sent at once, so that a coordinator that is continued reads it before it judges anything.
	s.send("Miss", &wire.Missed{Why: s.silence()})
	close(s.letGo)
}

func (s *session) resume() {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	if s.ended {
		return
	}
	s.silent = false
	s.letGo = make(chan struct{})
	if s.newest != nil {
		s.newest = newInterests(s, s.newest.from, s.letGo)
		atomic.StorePointer(&current, unsafe.Pointer(s.newest))
	}
	debugf("resumed")
}

// close ends the session: nobody listens any longer, and all callers go on.
func (s *session) close() {
	s.configuring.Lock()
	if !s.ended {
		s.ended = true
		if now := (*interests)(atomic.LoadPointer(&current)); now != nil && now.session == s {
			atomic.StorePointer(&current, nil)
		}
		close(s.lost)
	}
	s.configuring.Unlock()
	_ = s.client.Close()
	_ = s.mux.Close()
}

// holdSlices is how many waits, one after the other, the longest hold consists of: when the run's clock jumps ahead, it
// ends no more than one of them.
const holdSlices = 8

// observe sends an observation and returns when it is released, the session is lost, letGo is closed, the session's
// limit is reached, or ctx, which may be nil, has ended: then with its error. The failure is that of the release.
func (s *session) observe(ctx context.Context, o *wire.Observation, letGo <-chan struct{}) (*wire.Failure, error) {
	call := s.send("Observe", o)
	var ended <-chan struct{}
	if ctx != nil {
		ended = ctx.Done()
	}
	var slice *time.Timer
	var limit <-chan time.Time
	if s.limits.Hold > 0 {
		slice = time.NewTimer(s.limits.Hold / holdSlices)
		defer slice.Stop()
		limit = slice.C
	}
	abandoned := &wire.Abandoned{Call: o.Call, Phase: o.Phase, LetGo: true}
	var err error
	for slices := 1; ; slices++ {
		select {
		case answer := <-call.Done:
			if answer.Error != nil {
				debugf("observe: %v", answer.Error)
				return nil, nil
			}
			return answer.Reply.(*wire.Release).Failure, nil
		case <-s.lost:
			return nil, nil
		case <-letGo:
			abandoned.Error = s.silence()
		case <-limit:
			if slices < holdSlices {
				slice.Reset(s.limits.Hold / holdSlices)
				continue
			}
			abandoned.Error = fmt.Sprintf("the coordinator did not release it within %s", s.limits.Hold)
		case <-ended:
			err = ctx.Err()
			abandoned.Error, abandoned.LetGo = err.Error(), false
		}
		break
	}
	s.send("Abandon", abandoned)
	return nil, err
}

// trouble tells the coordinator about a hook that has failed. It does not wait for the answer.
func (s *session) trouble(t *wire.Trouble) { s.send("Trouble", t) }

// send queues a message and does not block.
func (s *session) send(method string, message interface{}) *rpc.Call {
	call := &rpc.Call{
		ServiceMethod: wire.MonitorService + "." + method, Args: message, Reply: &wire.Release{},
		Done: make(chan *rpc.Call, 1),
	}
	s.queue.put(call)
	return call
}

// deliver sends what is queued until the session ends. Only this goroutine waits while the coordinator does not read.
func (s *session) deliver() {
	defer s.close()
	defer IgnorePanic()
	for {
		select {
		case <-s.queue.filled:
		case <-s.lost:
			return
		}
		for _, m := range s.queue.take() {
			s.client.Go(m.ServiceMethod, m.Args, m.Reply, m.Done)
		}
	}
}

var debugFile struct {
	sync.Mutex
	w io.Writer
}

func openDebug(path string) {
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	debugFile.Lock()
	debugFile.w = f
	debugFile.Unlock()
}

func debugf(format string, args ...interface{}) {
	debugFile.Lock()
	defer debugFile.Unlock()
	if debugFile.w != nil {
		args = append([]interface{}{time.Now().Format(time.RFC3339Nano), os.Getpid()}, args...)
		_, _ = fmt.Fprintf(debugFile.w, "%s %d "+format+"\n", args...)
	}
}
