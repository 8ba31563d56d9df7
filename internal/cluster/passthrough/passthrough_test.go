package passthrough

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// greeter is a backend that sends its name and then echoes its input, line by line.
func greeter(t *testing.T, name string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { listener.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, name+"\n")
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// proxyTo starts a proxy whose backend is the address in target.
func proxyTo(t *testing.T, target *atomic.Value) *Proxy {
	t.Helper()
	p, err := New(nil, func(ctx context.Context) (net.Conn, error) {
		addr := target.Load().(string)
		if addr == "" {
			return nil, errors.New("nowhere")
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

type client struct {
	net.Conn
	lines *bufio.Reader
}

func connect(t *testing.T, p *Proxy) client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	return client{conn, bufio.NewReader(conn)}
}

func (c client) line(t *testing.T) string {
	t.Helper()
	s, err := c.lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(s)
}

func (c client) echo(t *testing.T, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s+"\n"); err != nil {
		t.Fatal(err)
	}
	if got := c.line(t); got != s {
		t.Errorf("got %q, want %q", got, s)
	}
}

func TestRoute(t *testing.T) {
	var target atomic.Value
	target.Store(greeter(t, "one"))
	p := proxyTo(t, &target)
	first := connect(t, p)
	if got := first.line(t); got != "one" {
		t.Fatalf("got %q", got)
	}
	target.Store(greeter(t, "two"))
	if got := connect(t, p).line(t); got != "two" {
		t.Errorf("new connection goes to %q", got)
	}
	first.echo(t, "the old one stays")
}

func TestCut(t *testing.T) {
	var target atomic.Value
	target.Store(greeter(t, "one"))
	p := proxyTo(t, &target)
	a, b := connect(t, p), connect(t, p)
	a.line(t)
	b.line(t)
	if n := p.Cut(); n != 2 {
		t.Errorf("cut %d connections, want 2", n)
	}
	for _, c := range []client{a, b} {
		if _, err := c.lines.ReadByte(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("read after cut: %v, want a reset", err)
		}
	}
	if got := connect(t, p).line(t); got != "one" {
		t.Errorf("new connection goes to %q", got)
	}
}

func TestBackendAway(t *testing.T) {
	var target atomic.Value
	target.Store("")
	conn, err := net.Dial("tcp", proxyTo(t, &target).Addr())
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
}

func TestHalfClose(t *testing.T) {
	var target atomic.Value
	target.Store(greeter(t, "one"))
	p := proxyTo(t, &target)
	c := connect(t, p)
	_, _ = io.WriteString(c, "last words\n")
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	all, err := io.ReadAll(c.lines)
	if err != nil || string(all) != "one\nlast words\n" {
		t.Errorf("got %q, %v", all, err)
	}
}
