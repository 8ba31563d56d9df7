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

// EnvDebug names a file that the hook writes its own troubles to.
const EnvDebug = "TROMMEL_HOOK_DEBUG"

const (
	dialTimeout  = 2 * time.Second
	helloTimeout = 5 * time.Second // also bounds how long main waits
	redialEvery  = 100 * time.Millisecond
)

// manifest is the wire.Manifest of the binary, JSON in base64; the linker sets it.
var manifest string

// enabled is settled before main runs and does not change.
var enabled bool

// Enabled tells whether this process was started to be observed.
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
	// Main begins when the coordinator knows this process, so that nothing is missed, or when there is none.
	select {
	case <-a.tried:
	case <-time.After(helloTimeout):
	}
}

// ServiceAccountFile moves a path inside the service account's folder to the folder that the environment names.
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

// agent keeps a session with the coordinator, one after the other.
type agent struct {
	address, token, identity string
	tried                    chan struct{} // closed when the first attempt has succeeded or failed
	once                     sync.Once
	stop                     chan struct{} // for tests
	done                     chan struct{} // closed when run returns
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

// connect dials and serves one session until it is lost. It tells whether to dial again.
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
	s.configure(welcome.Interests)
	a.once.Do(func() { close(a.tried) })
	go s.serve()
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
	lost   chan struct{} // closed at the session's end, which lets go whoever is held

	sending sync.Mutex // observations are sent in the order in which callers get here

	configuring sync.Mutex
	ended       bool // under configuring
}

func newSession(conn net.Conn) (*session, error) {
	config := yamux.DefaultConfig()
	config.LogOutput = io.Discard
	// A coordinator that is slow or stopped is still there; the session ends with its connection.
	config.EnableKeepAlive = false
	config.ConnectionWriteTimeout = time.Minute
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
	return &session{mux: mux, client: rpc.NewClient(stream), lost: make(chan struct{})}, nil
}

func (s *session) hello(a *agent) (wire.Welcome, error) {
	hello := wire.Hello{
		ProtocolVersion: wire.ProtocolVersion, Token: a.token, Identity: a.identity, PID: os.Getpid(), Manifest: readManifest(),
	}
	var welcome wire.Welcome
	call := s.client.Go(wire.MonitorService+".Hello", &hello, &welcome, make(chan *rpc.Call, 1))
	timeout := time.NewTimer(helloTimeout)
	defer timeout.Stop()
	select {
	case <-call.Done:
		return welcome, call.Error
	case <-timeout.C:
		return wire.Welcome{}, errors.New("no answer")
	case <-a.stop:
		return wire.Welcome{}, errors.New("stopped")
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

// configure returns the generation in force: net/rpc may run two calls out of order, and the newer one stays.
func (s *session) configure(from wire.Interests) uint64 {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	if s.ended {
		return from.Generation
	}
	if now := (*interests)(atomic.LoadPointer(&current)); now != nil && now.session == s && now.generation > from.Generation {
		return now.generation
	}
	atomic.StorePointer(&current, unsafe.Pointer(newInterests(s, from)))
	return from.Generation
}

// close ends the session: nobody listens any longer, and whoever is held goes on.
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

// observe sends an observation and returns when it is released, the session is lost, or ctx, which may be nil, has ended:
// then with its error.
func (s *session) observe(ctx context.Context, o *wire.Observation) error {
	s.sending.Lock()
	call := s.client.Go(wire.MonitorService+".Observe", o, &wire.Release{}, make(chan *rpc.Call, 1))
	s.sending.Unlock()
	var ended <-chan struct{}
	if ctx != nil {
		ended = ctx.Done()
	}
	select {
	case <-call.Done:
		if call.Error != nil {
			debugf("observe: %v", call.Error)
		}
	case <-s.lost:
	case <-ended:
		abandoned := &wire.Abandoned{Call: o.Call, Phase: o.Phase, Error: ctx.Err().Error()}
		s.sending.Lock()
		s.client.Go(wire.MonitorService+".Abandon", abandoned, &wire.Release{}, make(chan *rpc.Call, 1))
		s.sending.Unlock()
		return ctx.Err()
	}
	return nil
}

// trouble tells the coordinator of a hook that has failed, and does not wait for its answer.
func (s *session) trouble(t *wire.Trouble) {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.client.Go(wire.MonitorService+".Trouble", t, &wire.Release{}, make(chan *rpc.Call, 1))
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
		_, _ = fmt.Fprintf(debugFile.w, "%s %d "+format+"\n", append([]interface{}{time.Now().Format(time.RFC3339Nano), os.Getpid()}, args...)...)
	}
}
