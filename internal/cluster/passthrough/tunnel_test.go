package passthrough

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestTunnel(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Host)
	}))
	defer server.Close()
	backend := server.Listener.Addr().String()
	p, err := NewTunnel(nil, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", backend)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	proxy := &url.URL{Scheme: "http", Host: p.Addr()}
	transport := server.Client().Transport.(*http.Transport)
	transport.Proxy = http.ProxyURL(proxy)
	defer transport.CloseIdleConnections()

	// The name is one of the server's certificate, and cannot be looked up.
	answer, err := server.Client().Get("https://example.com:6443/")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); string(body) != "example.com:6443" {
		t.Errorf("the server was asked for %q", body)
	}

	for _, request := range []string{
		"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"CONNECT example.com:6443 HTTP/1.1\r\nHost: example.com:6443\r\n\r\ntoo early",
	} {
		conn := connect(t, p)
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		if status := conn.line(t); !strings.Contains(status, " 405 ") {
			t.Errorf("%q: %s", request, status)
		}
	}
}
