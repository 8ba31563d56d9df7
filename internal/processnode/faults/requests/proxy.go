// Package requests is a reverse proxy that disturbs HTTP requests and gRPC calls: those of the pods of the process
// node and, with connections that the kernel redirects, those of real pods.
package requests

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
)

// Config is what a proxy does.
type Config struct {
	// Context carries the clock. Requests that are left after its end go on.
	Context context.Context
	// Disturb carries out what the faults say. Unless it has answered or aborted, the request is forwarded, and the
	// ModifyFunc, if it is not nil, changes the answer.
	Disturb func(p *Proxy, w http.ResponseWriter, r *http.Request) (Consequence, ModifyFunc)
	Dial    func(context.Context) (net.Conn, error) // to the server; not for connections of Join
	TLS     *tls.Config                             // of this server; nil: HTTP without TLS
	Client  *tls.Config                             // for connections to the server behind it; nil without TLS
	Host    string                                  // of that server, host:port, as its certificate says
	Log     *slog.Logger
}

// ModifyFunc changes an answer. Its error aborts the request.
type ModifyFunc func(*http.Response) error

// Consequence is what a fault does to a request, after it has delayed it.
type Consequence int

const (
	// None: the request is forwarded.
	None Consequence = iota
	// Answered: the client has an answer.
	Answered
	// Aborted: the client gets none.
	Aborted
)

// Proxy is a reverse proxy that disturbs HTTP requests. Each connection of a client has its own connection to the
// server, and both end together, as without the proxy.
type Proxy struct {
	config  Config
	server  *http.Server
	accept  chan net.Conn
	closing chan struct{} // closed when watches must end
	closed  sync.Once

	mu       sync.Mutex
	conns    map[*terminatedConn]struct{}
	requests int           // in progress
	changed  chan struct{} // closed and replaced when requests changes
	retired  bool          // it stops when its last connection has ended
}

// terminatedConn is a client's connection.
type terminatedConn struct {
	net.Conn
	server *Proxy
	once   sync.Once
	opened net.Conn // the connection to the server, if it was opened before

	mu       sync.Mutex
	backend  *http.ClientConn // nil before the first request
	requests int
	broken   bool // the server's connection has ended
}

type terminatedConnKey struct{}

// Start starts a proxy. Its connections come from Dial and Join.
func Start(config Config) *Proxy {
	t := &Proxy{
		config: config, accept: make(chan net.Conn), closing: make(chan struct{}),
		conns: map[*terminatedConn]struct{}{}, changed: make(chan struct{}),
	}
	t.server = &http.Server{
		Handler:     t,
		TLSConfig:   config.TLS,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(config.Context) },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if secured, ok := c.(*tls.Conn); ok {
				c = secured.NetConn()
			}
			return context.WithValue(ctx, terminatedConnKey{}, c)
		},
		// A client that does not begin its handshake or a request is held only as long as the fault lasts.
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: 100},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	if config.TLS != nil {
		go func() { _ = t.server.ServeTLS(t, "", "") }()
		return t
	}
	t.server.Protocols = &http.Protocols{}
	t.server.Protocols.SetHTTP1(true)
	t.server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = t.server.Serve(t) }()
	return t
}

// Accept implements net.Listener.
func (t *Proxy) Accept() (net.Conn, error) {
	select {
	case c := <-t.accept:
		return c, nil
	case <-t.closing:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (t *Proxy) Close() error {
	t.closed.Do(func() { close(t.closing) })
	return nil
}

// Addr implements net.Listener.
func (t *Proxy) Addr() net.Addr { return &net.TCPAddr{} }

// Dial connects to the server. It fails if the server has stopped.
func (t *Proxy) Dial() (net.Conn, error) {
	client, server, err := SocketPair()
	if err != nil {
		return nil, err
	}
	if err := t.take(&terminatedConn{Conn: server, server: t}); err != nil {
		_ = client.Close()
		return nil, err
	}
	return client, nil
}

// take serves a connection. It fails, and closes it, if the server has stopped.
func (t *Proxy) take(c *terminatedConn) error {
	t.mu.Lock()
	t.conns[c] = struct{}{}
	t.mu.Unlock()
	select {
	case t.accept <- c:
		return nil
	case <-t.closing:
		_ = c.Close()
		return net.ErrClosed
	}
}

// Retire stops the server when its last connection has ended. Until then requests are forwarded.
func (t *Proxy) Retire() {
	t.mu.Lock()
	t.retired = true
	last := len(t.conns) == 0
	t.mu.Unlock()
	if last {
		t.abandon()
	}
}

// Stop ends the server. It ends watches, makes clients open a new connection, and returns when no request is left, or
// when the time is over. Connections without requests close soon after that; a request that still takes its time is
// completed.
func (t *Proxy) Stop(within time.Duration) {
	_ = t.Close()
	if within <= 0 {
		t.abandon()
		return
	}
	go func() {
		ctx, cancel := clock.WithTimeout(t.config.Context, 10*within)
		defer cancel()
		_ = t.server.Shutdown(ctx)
		t.abandon()
	}()
	timer := clock.NewTimer(t.config.Context, within)
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
func (t *Proxy) abandon() {
	_ = t.Close()
	_ = t.server.Close()
	t.mu.Lock()
	conns := slices.Collect(maps.Keys(t.conns))
	t.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// count counts requests.
func (t *Proxy) count(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests += n
	close(t.changed)
	t.changed = make(chan struct{})
}

// Close closes both sides.
func (c *terminatedConn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		err = c.Conn.Close()
		c.mu.Lock()
		c.broken = true
		backend := c.backend
		c.mu.Unlock()
		if backend != nil {
			go func() { _ = backend.Close() }() // it may call stateChanged
		} else if c.opened != nil {
			_ = c.opened.Close()
		}
		t := c.server
		t.mu.Lock()
		delete(t.conns, c)
		last := t.retired && len(t.conns) == 0
		t.mu.Unlock()
		if last {
			go t.abandon()
		}
	})
	return err
}

// begin counts a request and returns the connection to the server, which the first request opens.
func (c *terminatedConn) begin(r *http.Request) (*http.ClientConn, error) {
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
	protocols.SetHTTP2(r.ProtoMajor == 2 && t.config.Client != nil)
	protocols.SetUnencryptedHTTP2(r.ProtoMajor == 2 && t.config.Client == nil)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if c.opened != nil {
				return c.opened, nil
			}
			return t.config.Dial(ctx)
		},
		TLSClientConfig:    t.config.Client,
		Protocols:          protocols,
		HTTP2:              &http.HTTP2Config{StrictMaxConcurrentRequests: true},
		DisableCompression: true,
	}
	backend, err := transport.NewClientConn(context.WithoutCancel(r.Context()), t.scheme(), t.config.Host)
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

// lose ends the client's connection because the server's has ended, after the answers that have come.
func (c *terminatedConn) lose() {
	c.mu.Lock()
	c.broken = true
	idle := c.requests == 0
	c.mu.Unlock()
	if idle {
		_ = c.Close()
	}
}

func (c *terminatedConn) end() {
	c.mu.Lock()
	c.requests--
	last := c.requests == 0 && c.broken
	c.mu.Unlock()
	if last {
		// After this handler: its answer is not sent yet. That takes this program real time.
		time.AfterFunc(10*time.Millisecond, func() { _ = c.Close() })
	}
}

// abort ends a request without an answer: by a reset of its stream, or the end of the connection before HTTP/2.
func (c *terminatedConn) abort(r *http.Request) {
	if r.ProtoMajor == 1 {
		_ = c.Close()
	}
	panic(http.ErrAbortHandler)
}

func (t *Proxy) scheme() string {
	if t.config.Client != nil {
		return "https"
	}
	return "http"
}

// ServeHTTP disturbs the request as the faults say, and forwards it.
func (t *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.count(1)
	defer t.count(-1)
	c := r.Context().Value(terminatedConnKey{}).(*terminatedConn)
	did, modify := t.config.Disturb(t, w, r)
	switch did {
	case Answered:
		return
	case Aborted:
		c.abort(r)
	}
	t.forward(w, r, c, modify)
}

// ErrLost is for a ModifyFunc that loses the answer.
var ErrLost = errors.New("lost")

func (t *Proxy) forward(w http.ResponseWriter, r *http.Request, c *terminatedConn, modify ModifyFunc) {
	backend, err := c.begin(r)
	defer c.end()
	if err != nil {
		_ = c.Close()
		panic(http.ErrAbortHandler)
	}
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = t.scheme(), t.config.Host
			p.Out.URL.RawQuery = p.In.URL.RawQuery
			p.Out.Host = p.In.Host
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if values, ok := p.In.Header[name]; ok {
					p.Out.Header[name] = values
				}
			}
		},
		Transport:      backend,
		FlushInterval:  -1, // a watch's events must not wait
		ErrorLog:       t.server.ErrorLog,
		ModifyResponse: modify,
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			if !errors.Is(err, ErrLost) && r.Context().Err() == nil {
				// As without the proxy: the client does not get an answer that the server has not given.
				t.config.Log.Info("the server does not answer", "error", err)
			}
			c.abort(r)
		},
	}
	proxy.ServeHTTP(w, r)
}

// Endable returns a body that ends when the Proxy stops.
func (t *Proxy) Endable(body io.ReadCloser) io.ReadCloser {
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
