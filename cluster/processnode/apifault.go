package processnode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/cluster/passthrough"
)

// apiLink is a pod's way to the API server. Without faults of requests it forwards bytes; with them it is a reverse
// proxy that sees requests. Open connections cannot change between the two: they are reset when a fault begins; when the
// last one ends, watches end as after a timeout of the API server's, other requests are completed, and the client is
// told to open a new connection.
type apiLink struct {
	proxy *passthrough.Proxy
	start func(*apiLink) *terminator

	mu     sync.Mutex
	faults []*apiFault
	server *terminator // nil without faults
}

// apiFault is a fault of requests that is in effect.
type apiFault struct {
	spec       v1alpha1.APIFault
	disruption string
	ended      chan struct{} // closed at its end
}

func (n *Node) newAPILink(c *controller) (*apiLink, error) {
	dial := func(ctx context.Context) (net.Conn, error) { return n.dial(ctx, n.routeOf(c)) }
	l := &apiLink{}
	var err error
	l.proxy, err = passthrough.New(func(ctx context.Context) (net.Conn, error) {
		l.mu.Lock()
		server := l.server
		l.mu.Unlock()
		if server != nil {
			if conn, err := server.dial(); err == nil {
				return conn, nil
			}
			// It has stopped meanwhile.
		}
		return dial(ctx)
	})
	if err != nil {
		return nil, err
	}
	l.start = func(l *apiLink) *terminator {
		return startTerminator(terminatorConfig{
			ctx: n.ctx, faults: l.current, dial: dial, certificate: *n.config.Certificate, ca: n.config.CA, log: n.log,
		})
	}
	return l, nil
}

// add begins a fault. It is in effect when add returns: no request that the client sends from now on escapes it.
func (l *apiLink) add(f *apiFault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults[:len(l.faults):len(l.faults)], f)
	if l.server == nil {
		l.server = l.start(l)
	}
	// A connection that is still being opened will see the server.
	l.proxy.Cut()
}

// drain is how long the end of the last fault waits for requests to complete.
const drain = time.Second

// remove ends a fault. It returns when connections pass unchanged, if it was the last one.
func (l *apiLink) remove(f *apiFault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var rest []*apiFault
	for _, other := range l.faults {
		if other != f {
			rest = append(rest, other)
		}
	}
	l.faults = rest
	close(f.ended)
	if len(rest) == 0 && l.server != nil {
		server := l.server
		l.server = nil
		// add must not wait for requests of before.
		l.mu.Unlock()
		server.stop(drain)
		l.mu.Lock()
	}
}

func (l *apiLink) current() []*apiFault {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.faults
}

// close resets all connections.
func (l *apiLink) close() {
	l.mu.Lock()
	server := l.server
	l.server = nil
	l.mu.Unlock()
	if server != nil {
		server.stop(0)
	}
	l.proxy.Close()
}

type terminatorConfig struct {
	ctx         context.Context // closes connections that are left after the end
	faults      func() []*apiFault
	dial        func(context.Context) (net.Conn, error) // to the API server
	certificate tls.Certificate
	ca          []byte
	log         *slog.Logger
}

// terminator is a reverse proxy for the Kubernetes API that disturbs requests. Each connection of a client has its own
// connection to the API server, and both end together, as without the proxy.
type terminator struct {
	config  terminatorConfig
	server  *http.Server
	accept  chan net.Conn
	closing chan struct{} // closed when watches must end
	closed  sync.Once
	roots   *x509.CertPool

	mu       sync.Mutex
	conns    map[*apiConn]struct{}
	requests int           // in progress
	changed  chan struct{} // closed and replaced when requests changes
}

// apiConn is a client's connection.
type apiConn struct {
	net.Conn
	server *terminator
	once   sync.Once

	mu       sync.Mutex
	backend  *http.ClientConn // nil before the first request
	requests int
	broken   bool // the API server's connection has ended
}

type apiConnKey struct{}

func startTerminator(config terminatorConfig) *terminator {
	t := &terminator{
		config: config, accept: make(chan net.Conn), closing: make(chan struct{}), conns: map[*apiConn]struct{}{},
		changed: make(chan struct{}), roots: x509.NewCertPool(),
	}
	t.roots.AppendCertsFromPEM(config.ca)
	t.server = &http.Server{
		Handler: t,
		// A client with a certificate must be recognised.
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{config.certificate}, ClientAuth: tls.RequestClientCert,
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, apiConnKey{}, c.(*tls.Conn).NetConn())
		},
		// A client that does not begin its handshake or a request is held only as long as the fault lasts.
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: 100},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() { _ = t.server.ServeTLS(t, "", "") }()
	return t
}

// Accept implements net.Listener.
func (t *terminator) Accept() (net.Conn, error) {
	select {
	case c := <-t.accept:
		return c, nil
	case <-t.closing:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (t *terminator) Close() error {
	t.closed.Do(func() { close(t.closing) })
	return nil
}

// Addr implements net.Listener.
func (t *terminator) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects to the server. It fails if the server has stopped.
func (t *terminator) dial() (net.Conn, error) {
	client, server, err := socketPair()
	if err != nil {
		return nil, err
	}
	c := &apiConn{Conn: server, server: t}
	t.mu.Lock()
	t.conns[c] = struct{}{}
	t.mu.Unlock()
	select {
	case t.accept <- c:
		return client, nil
	case <-t.closing:
		_ = c.Close()
		_ = client.Close()
		return nil, net.ErrClosed
	}
}

// stop ends the server. It ends watches, tells clients to open a new connection, and returns when no request is left, or
// when the time is over. Connections without requests close soon after that; a request that still takes its time is
// completed.
func (t *terminator) stop(within time.Duration) {
	_ = t.Close()
	if within <= 0 {
		t.abandon()
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(t.config.ctx, 10*within)
		defer cancel()
		_ = t.server.Shutdown(ctx)
		t.abandon()
	}()
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		t.mu.Lock()
		left, changed := t.requests, t.changed
		t.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		}
	}
}

// abandon closes all connections, also those that are not the server's any more because they were upgraded.
func (t *terminator) abandon() {
	_ = t.server.Close()
	t.mu.Lock()
	conns := slices.Collect(maps.Keys(t.conns))
	t.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// count counts requests.
func (t *terminator) count(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests += n
	close(t.changed)
	t.changed = make(chan struct{})
}

// Close closes both sides.
func (c *apiConn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		err = c.Conn.Close()
		c.mu.Lock()
		c.broken = true
		backend := c.backend
		c.mu.Unlock()
		if backend != nil {
			go func() { _ = backend.Close() }() // it may call stateChanged
		}
		c.server.mu.Lock()
		delete(c.server.conns, c)
		c.server.mu.Unlock()
	})
	return err
}

// begin counts a request and returns the connection to the API server, which the first request opens.
func (c *apiConn) begin(r *http.Request) (*http.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	if c.broken {
		return nil, errors.New("the connection has ended")
	}
	if c.backend != nil {
		return c.backend, nil
	}
	t := c.server
	protocols := &http.Protocols{}
	protocols.SetHTTP1(r.ProtoMajor == 1)
	protocols.SetHTTP2(r.ProtoMajor == 2)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return t.config.dial(ctx) },
		// Certificates of the cluster's API servers have this name.
		TLSClientConfig:    &tls.Config{RootCAs: t.roots, ServerName: "kubernetes.default.svc"},
		Protocols:          protocols,
		HTTP2:              &http.HTTP2Config{StrictMaxConcurrentRequests: true},
		DisableCompression: true,
	}
	backend, err := transport.NewClientConn(context.WithoutCancel(r.Context()), "https", "kubernetes.default.svc:443")
	if err != nil {
		c.broken = true
		return nil, err
	}
	c.backend = backend
	backend.SetStateHook(func(b *http.ClientConn) {
		if b.Err() != nil {
			go c.lose()
		}
	})
	return backend, nil
}

// lose ends the client's connection because the API server's has ended, after the answers that have come.
func (c *apiConn) lose() {
	c.mu.Lock()
	c.broken = true
	idle := c.requests == 0
	c.mu.Unlock()
	if idle {
		_ = c.Close()
	}
}

func (c *apiConn) end() {
	c.mu.Lock()
	c.requests--
	last := c.requests == 0 && c.broken
	c.mu.Unlock()
	if last {
		// After this handler: its answer is not sent yet.
		time.AfterFunc(10*time.Millisecond, func() { _ = c.Close() })
	}
}

// abort ends a request without an answer: by a reset of its stream, or the end of the connection before HTTP/2.
func (c *apiConn) abort(r *http.Request) {
	if r.ProtoMajor == 1 {
		_ = c.Close()
	}
	panic(http.ErrAbortHandler)
}

// ServeHTTP disturbs the request as the faults say, and forwards it.
func (t *terminator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.count(1)
	defer t.count(-1)
	c := r.Context().Value(apiConnKey{}).(*apiConn)
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		const message = "the client authenticates by a certificate, which cannot be forwarded while an apiFault lasts; " +
			"use a token of a service account"
		t.config.log.Warn("refuse a request", "path", r.URL.Path, "reason", message)
		answerStatus(w, r, apiRequest{}, http.StatusServiceUnavailable, nil, message)
		return
	}
	request := parseAPIRequest(r)
	lost := false
	for _, f := range t.config.faults() {
		switch t.disturb(w, r, request, f) {
		case answered:
			return
		case aborted:
			c.abort(r)
		case loses:
			lost = true
		}
	}
	t.forward(w, r, c, request, lost)
}

// consequence is what a fault does to a request, after it has delayed it.
type consequence int

const (
	none consequence = iota
	answered
	aborted
	loses
)

func (t *terminator) disturb(w http.ResponseWriter, r *http.Request, request apiRequest, f *apiFault) consequence {
	spec := &f.spec
	if request.verb == "create" && request.name == "" && len(spec.Names) > 0 {
		body, err := readBody(r)
		if err != nil {
			return aborted
		}
		request.name = nameIn(body)
	}
	if !request.matches(spec) || !drawn(spec.Percentage) {
		return none
	}
	if spec.Delay != nil || spec.Hang {
		if _, err := readBody(r); err != nil {
			return aborted
		}
	}
	if spec.Delay != nil {
		timer := time.NewTimer(spec.Delay.Duration())
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-f.ended:
			return none
		case <-r.Context().Done():
			return aborted
		}
	}
	switch {
	case spec.Hang:
		select {
		case <-f.ended:
		case <-r.Context().Done():
		}
		return aborted
	case spec.Status != nil:
		answerStatus(w, r, request, int(*spec.Status), spec.RetryAfter, "injected by the disruption "+f.disruption)
		return answered
	case spec.Lost:
		return loses
	}
	return none
}

var errLost = errors.New("lost")

func (t *terminator) forward(w http.ResponseWriter, r *http.Request, c *apiConn, request apiRequest, lost bool) {
	backend, err := c.begin(r)
	defer c.end()
	if err != nil {
		_ = c.Close()
		panic(http.ErrAbortHandler)
	}
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "https", "kubernetes.default.svc:443"
			p.Out.Host = p.In.Host
		},
		Transport:     backend,
		FlushInterval: -1, // a watch's events must not wait
		ErrorLog:      t.server.ErrorLog,
		ModifyResponse: func(resp *http.Response) error {
			switch {
			case lost:
				return errLost
			case request.verb == "watch" && resp.StatusCode == http.StatusOK:
				resp.Body = t.endable(resp.Body)
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			if !errors.Is(err, errLost) && r.Context().Err() == nil {
				// As without the proxy: the client does not get an answer that the API server has not given.
				t.config.log.Info("the API server does not answer", "error", err)
			}
			c.abort(r)
		},
	}
	proxy.ServeHTTP(w, r)
}

// endable returns a body that ends when the terminator stops.
func (t *terminator) endable(body io.ReadCloser) io.ReadCloser {
	e := &endableBody{ReadCloser: body, closing: t.closing, done: make(chan struct{})}
	go func() {
		select {
		case <-t.closing:
			_ = body.Close()
		case <-e.done:
		}
	}()
	return e
}

type endableBody struct {
	io.ReadCloser
	closing <-chan struct{}
	done    chan struct{}
	once    sync.Once
}

func (e *endableBody) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil {
		select {
		case <-e.closing:
			err = io.EOF
		default:
		}
	}
	return n, err
}

func (e *endableBody) Close() error {
	e.once.Do(func() { close(e.done) })
	return e.ReadCloser.Close()
}

// answerStatus answers as an API server does.
func answerStatus(w http.ResponseWriter, r *http.Request, request apiRequest, code int, retryAfter *v1alpha1.Duration,
	message string) {
	seconds := 0
	if retryAfter != nil {
		seconds = int(math.Ceil(retryAfter.Duration().Seconds()))
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	status := apierrors.NewGenericServerResponse(code, r.Method,
		schema.GroupResource{Group: request.group, Resource: request.resource}, request.name, message, seconds, false).ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if status.Reason == "" || status.Reason == metav1.StatusReasonUnknown {
		status.Message = message
	} else {
		status.Message += " (" + message + ")"
	}
	body, _ := json.Marshal(status) // plain data
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
