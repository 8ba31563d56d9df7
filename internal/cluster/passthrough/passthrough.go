// Package passthrough forwards TCP connections unchanged to a backend that may change, and resets them on demand.
package passthrough

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
)

// Proxy listens on a port of its own, on loopback unless it was given a listener.
type Proxy struct {
	clock    *clock.Clock // for shapes
	dial     func(context.Context) (net.Conn, error)
	listener net.Listener
	tunnels  bool // see NewTunnel
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu    sync.Mutex
	links map[*link]struct{}
	shape func() Shape // for a new connection; nil: none
	quiet bool         // Retire was called
	// heeded is closed and replaced when a direction of a link has heeded a change of its shape.
	heeded chan struct{}
}

// link is one client's connection and, once dialed, the backend's.
type link struct {
	client, backend net.Conn
	gone            chan struct{} // closed by reset
	wasReset        bool
	shape           Shape
	changed         chan struct{} // closed and replaced when shape changes
	// For each direction: whether data is copied, and whether it still uses an earlier shape.
	copying, behind [2]bool
}

// New starts a proxy. It calls dial for every accepted connection to connect to the backend; if dial fails, it resets
// the client's connection. The delays of shapes pass by the clock; nil is this machine's.
func New(clock *clock.Clock, dial func(context.Context) (net.Conn, error)) (*Proxy, error) {
	return listen(clock, dial, false)
}

// NewTunnel is New for clients to which the proxy is an HTTP proxy: each asks by CONNECT for a server, whose name does
// not matter, and gets the backend.
func NewTunnel(clock *clock.Clock, dial func(context.Context) (net.Conn, error)) (*Proxy, error) {
	return listen(clock, dial, true)
}

// Serve is New with a listener, which the proxy closes.
func Serve(listener net.Listener, clock *clock.Clock, dial func(context.Context) (net.Conn, error)) *Proxy {
	return serve(listener, clock, dial, false)
}

func listen(clock *clock.Clock, dial func(context.Context) (net.Conn, error), tunnels bool) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return serve(listener, clock, dial, tunnels), nil
}

func serve(
	listener net.Listener, clock *clock.Clock, dial func(context.Context) (net.Conn, error), tunnels bool,
) *Proxy {
	p := &Proxy{
		clock: clock, dial: dial, listener: listener, tunnels: tunnels, links: map[*link]struct{}{},
		heeded: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.running.Add(1)
	go p.accept()
	return p
}

// Addr returns the address for clients: an IP, 127.0.0.1 unless the proxy was given a listener, and a port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut resets every open connection and returns their number. New connections are accepted as before.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
	return len(p.links)
}

// Retire stops listening; open connections stay. A proxy that has retired need not be closed.
func (p *Proxy) Retire() {
	p.mu.Lock()
	p.quiet = true
	last := len(p.links) == 0
	p.mu.Unlock()
	_ = p.listener.Close()
	if last {
		p.cancel()
	}
}

// Close stops listening, resets every open connection and waits until all goroutines have finished.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.listener.Close()
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) accept() {
	defer p.running.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Most likely out of file descriptors: wait until others close theirs.
			time.Sleep(5 * time.Millisecond)
			continue
		}
		l := &link{client: client, gone: make(chan struct{}), changed: make(chan struct{})}
		p.mu.Lock()
		if p.shape != nil {
			l.shape = p.shape()
		}
		p.links[l] = struct{}{}
		p.mu.Unlock()
		p.running.Add(1)
		go p.serve(l)
	}
}

func (p *Proxy) serve(l *link) {
	defer p.running.Done()
	defer func() {
		p.mu.Lock()
		delete(p.links, l)
		last := p.quiet && len(p.links) == 0
		p.mu.Unlock()
		if last {
			p.cancel()
		}
	}()
	backend, err := net.Conn(nil), p.ctx.Err()
	if err == nil && p.tunnels {
		err = acceptTunnel(l.client)
	}
	if err == nil {
		backend, err = p.dial(p.ctx)
	}
	if err != nil {
		p.mu.Lock()
		l.reset()
		p.mu.Unlock()
		return
	}
	p.mu.Lock()
	l.backend = backend
	if l.wasReset {
		_ = backend.Close()
	}
	p.mu.Unlock()
	p.join(l)
}

// acceptTunnel reads a client's CONNECT and says yes. A client sends nothing more before it has the answer. It may take
// its time: a plan may freeze it in the middle.
func acceptTunnel(client net.Conn) error {
	sent := bufio.NewReader(client)
	req, err := http.ReadRequest(sent)
	switch {
	case err != nil:
		return err
	case req.Method != http.MethodConnect || sent.Buffered() > 0:
		_, _ = io.WriteString(client, "HTTP/1.1 405 Method Not Allowed\r\nAllow: CONNECT\r\nContent-Length: 0\r\n\r\n")
		return fmt.Errorf("%s, not CONNECT", req.Method)
	}
	_, err = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	return err
}

// Join copies between two connections, TCP or unix, in both directions. It forwards the end of each direction, and
// returns when both have ended and both connections are closed. Closing one of the connections ends it.
func Join(a, b net.Conn) {
	done := make(chan struct{})
	go func() {
		forward(a, b)
		close(done)
	}()
	forward(b, a)
	<-done
	_ = a.Close()
	_ = b.Close()
}

// forward copies until the source ends, and then ends the destination's direction.
func forward(dst, src net.Conn) {
	_, err := io.Copy(dst, src)
	finish(dst, src, err)
}

// finish ends the destination's direction after a copy from the source has ended.
func finish(dst, src net.Conn, err error) {
	switch {
	case errors.Is(err, syscall.EPIPE):
		// The peer behind dst has closed and no longer reads. What it has sent before may still be on its way to src.
		if half, ok := src.(interface{ CloseRead() error }); ok {
			_ = half.CloseRead()
		}
		return
	case err != nil:
		// An error in one direction breaks the whole connection.
		_ = src.Close()
		_ = dst.Close()
		return
	}
	if half, ok := dst.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = dst.Close()
}

// reset closes both sides so that the peers see an error, not an end. The caller holds Proxy.mu or has sole access.
func (l *link) reset() {
	if !l.wasReset {
		l.wasReset = true
		close(l.gone)
	}
	for _, c := range []net.Conn{l.client, l.backend} {
		if c == nil {
			continue
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}
