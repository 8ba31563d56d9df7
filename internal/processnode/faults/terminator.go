package faults

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

type terminatorConfig struct {
	ctx context.Context // carries the clock, and closes connections that are left after the end
	// disturb carries out what the faults say. Unless it has answered or aborted, the request is forwarded, and modify,
	// if it is not nil, changes the answer.
	disturb func(t *terminator, w http.ResponseWriter, r *http.Request) (consequence, modifyFunc)
	dial    func(context.Context) (net.Conn, error) // to the server; not for connections of join
	tls     *tls.Config                             // of this server; nil: HTTP without TLS
	client  *tls.Config                             // for connections to the server behind it; nil without TLS
	host    string                                  // of that server, host:port, as its certificate says
	log     *slog.Logger
}

// modifyFunc changes an answer. Its error aborts the request.
type modifyFunc func(*http.Response) error

// consequence is what a fault does to a request, after it has delayed it.
type consequence int

const (
	none consequence = iota
	answered
	aborted
)

// terminator is a reverse proxy that disturbs HTTP requests. Each connection of a client has its own connection to the
// server, and both end together, as without the proxy.
type terminator struct {
	config  terminatorConfig
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
	server *terminator
	once   sync.Once
	opened net.Conn // the connection to the server, if it was opened before

	mu       sync.Mutex
	backend  *http.ClientConn // nil before the first request
	requests int
	broken   bool // the server's connection has ended
}

type terminatedConnKey struct{}

func startTerminator(config terminatorConfig) *terminator {
	t := &terminator{
		config: config, accept: make(chan net.Conn), closing: make(chan struct{}),
		conns: map[*terminatedConn]struct{}{}, changed: make(chan struct{}),
	}
	t.server = &http.Server{
		Handler:     t,
		TLSConfig:   config.tls,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(config.ctx) },
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
	if config.tls != nil {
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
	if err := t.take(&terminatedConn{Conn: server, server: t}); err != nil {
		_ = client.Close()
		return nil, err
	}
	return client, nil
}

// take serves a connection. It fails, and closes it, if the server has stopped.
func (t *terminator) take(c *terminatedConn) error {
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

// retire stops the server when its last connection has ended. Until then requests are forwarded.
func (t *terminator) retire() {
	t.mu.Lock()
	t.retired = true
	last := len(t.conns) == 0
	t.mu.Unlock()
	if last {
		t.abandon()
	}
}

// stop ends the server. It ends watches, makes clients open a new connection, and returns when no request is left, or
// when the time is over. Connections without requests close soon after that; a request that still takes its time is
// completed.
func (t *terminator) stop(within time.Duration) {
	_ = t.Close()
	if within <= 0 {
		t.abandon()
		return
	}
	go func() {
		ctx, cancel := clock.WithTimeout(t.config.ctx, 10*within)
		defer cancel()
		_ = t.server.Shutdown(ctx)
		t.abandon()
	}()
	timer := clock.NewTimer(t.config.ctx, within)
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
func (t *terminator) count(n int) {
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
	protocols.SetHTTP2(r.ProtoMajor == 2 && t.config.client != nil)
	protocols.SetUnencryptedHTTP2(r.ProtoMajor == 2 && t.config.client == nil)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if c.opened != nil {
				return c.opened, nil
			}
			return t.config.dial(ctx)
		},
		TLSClientConfig:    t.config.client,
		Protocols:          protocols,
		HTTP2:              &http.HTTP2Config{StrictMaxConcurrentRequests: true},
		DisableCompression: true,
	}
	backend, err := transport.NewClientConn(context.WithoutCancel(r.Context()), t.scheme(), t.config.host)
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

func (t *terminator) scheme() string {
	if t.config.client != nil {
		return "https"
	}
	return "http"
}

// ServeHTTP disturbs the request as the faults say, and forwards it.
func (t *terminator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.count(1)
	defer t.count(-1)
	c := r.Context().Value(terminatedConnKey{}).(*terminatedConn)
	did, modify := t.config.disturb(t, w, r)
	switch did {
	case answered:
		return
	case aborted:
		c.abort(r)
	}
	t.forward(w, r, c, modify)
}

// errLost is for a modifyFunc that loses the answer.
var errLost = errors.New("lost")

func (t *terminator) forward(w http.ResponseWriter, r *http.Request, c *terminatedConn, modify modifyFunc) {
	backend, err := c.begin(r)
	defer c.end()
	if err != nil {
		_ = c.Close()
		panic(http.ErrAbortHandler)
	}
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = t.scheme(), t.config.host
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
			if !errors.Is(err, errLost) && r.Context().Err() == nil {
				// As without the proxy: the client does not get an answer that the server has not given.
				t.config.log.Info("the server does not answer", "error", err)
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
