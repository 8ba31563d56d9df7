package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster/passthrough"
)

// connectTimeout limits the time for a client's request and for connecting to its destination.
const connectTimeout = 30 * time.Second

// Proxy serves the CONNECT requests of API servers (egress selector, HTTPConnect) on a unix socket. It responds with
// 403 and the reason to what the network refuses; the API server puts the reason into its own error.
type Proxy struct {
	dial     func(ctx context.Context, address string) (net.Conn, error)
	listener net.Listener
	log      *slog.Logger
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// Listen starts a proxy on a unix socket. It calls dial for each connection, with a context that carries the clock; nil
// is this machine's.
func Listen(clk *clock.Clock, socket string, dial func(ctx context.Context, address string) (net.Conn, error),
	log *slog.Logger) (*Proxy, error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listen for the API servers' connections into the cluster: %w", err)
	}
	p := &Proxy{dial: dial, listener: listener, log: log}
	p.ctx, p.cancel = context.WithCancel(clock.With(context.Background(), clk))
	p.running.Go(p.accept)
	return p, nil
}

// Close closes all connections and waits until their goroutines have finished.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.listener.Close()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		switch {
		case err == nil:
			p.running.Go(func() { p.serve(client) })
		case errors.Is(err, net.ErrClosed):
			return
		default:
			// Most likely out of file descriptors: wait until others close theirs.
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	defer context.AfterFunc(p.ctx, func() { _ = client.Close() })()
	// Deadlines of connections are in real time.
	_ = client.SetDeadline(time.Now().Add(connectTimeout))
	in := bufio.NewReader(client)
	request, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	if request.Method != http.MethodConnect {
		answer(client, http.StatusMethodNotAllowed, "this proxy supports only CONNECT")
		return
	}
	backend, err := p.connect(client, request.Host)
	if err != nil {
		return
	}
	defer backend.Close()
	defer context.AfterFunc(p.ctx, func() { _ = backend.Close() })()
	if err := client.SetDeadline(time.Time{}); err != nil {
		return
	}
	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	// A client that does not wait for the response may have sent more.
	if n := in.Buffered(); n > 0 {
		early, _ := in.Peek(n)
		if _, err := backend.Write(early); err != nil {
			return
		}
	}
	passthrough.Join(client, backend)
}

// connect connects to the address or sends the client the reason why it cannot.
func (p *Proxy) connect(client net.Conn, address string) (net.Conn, error) {
	ctx, cancel := clock.WithTimeout(p.ctx, connectTimeout)
	defer cancel()
	backend, err := p.dial(ctx, address)
	if err == nil {
		return backend, nil
	}
	status := http.StatusBadGateway
	var refused *RefusedError
	if errors.As(err, &refused) {
		status = http.StatusForbidden
	}
	p.log.Info("an API server's connection into the cluster was refused", "address", address, "error", err)
	answer(client, status, err.Error())
	return nil, err
}

// answer puts the text after the status, which the API server shows to its own client.
func answer(client net.Conn, status int, text string) {
	text = strings.Join(strings.Fields(text), " ")
	_, _ = fmt.Fprintf(client, "HTTP/1.1 %d %s: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status,
		http.StatusText(status), text)
}

// Dial connects to an address of the cluster through the proxy on a unix socket, as an API server does.
func Dial(ctx context.Context, socket, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	response, err := connect(conn, address)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err == nil && response.StatusCode != http.StatusOK {
		// The reason follows the status; see answer.
		_, reason, _ := strings.Cut(response.Status, ": ")
		err = errors.New(reason)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func connect(conn net.Conn, address string) (*http.Response, error) {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address); err != nil {
		return nil, err
	}
	// No server behind the proxy sends before the client does, so the reader has buffered nothing that belongs to the
	// caller.
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return response, response.Body.Close()
}

// OrLoopback returns a dial function that connects directly to loopback addresses and otherwise calls dial: the URL of
// a webhook may be that of a program outside the cluster.
func OrLoopback(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return dial(ctx, address)
		}
		if host == "localhost" {
			host = "127.0.0.1"
		}
		if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
			return dial(ctx, address)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	}
}
