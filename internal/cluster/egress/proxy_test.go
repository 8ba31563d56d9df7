package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo sends back what it receives on each connection, until the client's end.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

func listen(t *testing.T, dial func(context.Context, string) (net.Conn, error)) (*Proxy, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	p, err := Listen(nil, socket, dial, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, socket
}

func TestProxy(t *testing.T) {
	address := echo(t)
	_, socket := listen(t, func(ctx context.Context, to string) (net.Conn, error) {
		switch to {
		case "10.0.0.1:443":
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		case "10.0.0.2:443":
			return nil, fmt.Errorf("connect to %s:\nrefused", to)
		}
		return nil, &RefusedError{to, "no such address"}
	})
	conn, err := Dial(t.Context(), socket, "10.0.0.1:443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
		t.Errorf("came back: %q, %v", got, err)
	}
	for to, want := range map[string]string{
		"10.0.0.2:443": "connect to 10.0.0.2:443: refused",
		"10.0.0.3:443": "connect to 10.0.0.3:443: no such address",
	} {
		if _, err := Dial(t.Context(), socket, to); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(cancelled, socket, "10.0.0.1:443"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// An API server shows the status line of a refusal.
func TestProxyAnswers(t *testing.T) {
	_, socket := listen(t, func(_ context.Context, to string) (net.Conn, error) {
		return nil, &RefusedError{to, "why\nnot"}
	})
	for request, want := range map[string]string{
		"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n": "HTTP/1.1 403 Forbidden: connect to a:1: why not\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n": "HTTP/1.1 405 Method Not Allowed: this proxy supports only " +
			"CONNECT\r\n",
		"nonsense\r\n\r\n": "",
	} {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, request)
		got, _ := io.ReadAll(conn)
		conn.Close()
		if !strings.HasPrefix(string(got), want) || want == "" && len(got) > 0 {
			t.Errorf("%q: got %q, want %q", request, got, want)
		}
	}
}

// Close closes open connections.
func TestProxyCloses(t *testing.T) {
	address := echo(t)
	dialing := make(chan struct{})
	p, socket := listen(t, func(ctx context.Context, to string) (net.Conn, error) {
		if to == "slow:1" {
			close(dialing)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	})
	open, err := Dial(t.Context(), socket, "a:1")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	slow, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	_, _ = io.WriteString(slow, "CONNECT slow:1 HTTP/1.1\r\nHost: x\r\n\r\n")
	<-dialing
	closed := make(chan struct{})
	go func() { p.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("Close hangs")
	}
	if _, err := open.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
}

func TestOrLoopback(t *testing.T) {
	address := echo(t)
	dial := OrLoopback(func(context.Context, string) (net.Conn, error) { return nil, errors.New("asked") })
	_, port, _ := net.SplitHostPort(address)
	for _, to := range []string{address, "localhost:" + port} {
		conn, err := dial(t.Context(), to)
		if err != nil {
			t.Errorf("%s: %v", to, err)
			continue
		}
		conn.Close()
	}
	for _, to := range []string{"10.0.0.1:443", "example.com:443", "nonsense"} {
		if _, err := dial(t.Context(), to); err == nil || err.Error() != "asked" {
			t.Errorf("%s: %v", to, err)
		}
	}
}
