package linux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/chaos/inject"
)

// serveHTTP serves HTTP/1 and HTTP/2 without TLS in a namespace. Answers have the path, and gRPC's status.
func serveHTTP(t *testing.T, ns *namespace, at string) {
	t.Helper()
	var l net.Listener
	err := ns.do(func() (err error) {
		l, err = net.Listen("tcp", at)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{
		Protocols: &http.Protocols{},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Content-Type") == "application/grpc" {
				w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
			}
			_, _ = io.WriteString(w, r.Method+" "+r.URL.Path)
		}),
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
}

// browser sends requests from a pod.
type browser struct {
	transport *http.Transport
	opened    int
}

func newBrowser(p *runningPod, http2 bool) *browser {
	b := &browser{}
	b.transport = &http.Transport{
		Protocols: &http.Protocols{},
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			b.opened++
			return p.dial(ctx, network, to)
		},
	}
	b.transport.Protocols.SetHTTP1(!http2)
	b.transport.Protocols.SetUnencryptedHTTP2(http2)
	p.n.t.Cleanup(b.transport.CloseIdleConnections)
	return b
}

// send sends a request, such as GET 10.77.9.1:80/path. The answer is lost if there is none within the time.
func (b *browser) send(what string, within time.Duration) (answer string, took time.Duration) {
	method, to, _ := strings.Cut(what, " ")
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+to, nil)
	if err != nil {
		return err.Error(), 0
	}
	if strings.Contains(to, "/grpc.") {
		r.Header.Set("Content-Type", "application/grpc")
	}
	began := time.Now()
	resp, err := b.transport.RoundTrip(r)
	if errors.Is(err, context.DeadlineExceeded) {
		return "lost", 0
	}
	if err != nil {
		return err.Error(), 0
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error(), 0
	}
	answer = string(data)
	for _, from := range []http.Header{resp.Header, resp.Trailer} {
		if status := from.Get("Grpc-Status"); status != "" {
			answer = fmt.Sprintf("%d bytes, status %s", len(data), status)
		}
	}
	return answer, time.Since(began)
}

func TestHTTP(t *testing.T) {
	n, target, control := newPair(t)
	forward(n, n.server)
	for _, at := range []string{host1 + ":8080", host2 + ":8080", "[" + host6 + "]:8080"} {
		serveHTTP(t, n.server, at)
	}
	serveHTTP(t, target.ns, ":8000")
	echo(n, 7000)
	before := target.dump()
	one, two, six, own := host1+":8080", host2+":8080", "["+host6+"]:8080", target.ip+":8000"
	const usual = ""
	for _, tt := range []struct {
		spec string
		want map[string]string // what is not here is as usual
	}{
		{`{"hosts": [{"host": "10.77.9.1"}], "http": {"paths": ["/a"]}, "drop": 100}`,
			map[string]string{"GET " + one + "/a": "lost", "POST " + one + "/a": "lost", "GET " + one + "/ab": "lost"}},
		{`{"hosts": [{"host": "10.77.9.1", "port": 8080}], "http": {"methods": ["POST"]}, "delay": "600ms"}`,
			map[string]string{"POST " + one + "/a": "late"}},
		{`{"hosts": [{"host": "fd77:9::/32"}], "http": {}, "drop": 100}`,
			map[string]string{"GET " + six + "/a": "lost"}},
		{`{"hosts": [{"host": "example.org"}], "http": {"paths": ["/a"]}, "delay": "600ms"}`,
			map[string]string{"GET " + one + "/a": "late", "POST " + one + "/a": "late", "GET " + one + "/ab": "late"}},
		{`{"http": {"paths": ["/a"], "methods": ["GET"]}, "drop": 100}`, map[string]string{
			"GET " + one + "/a": "lost", "GET " + one + "/ab": "lost", "GET " + two + "/a": "lost",
			"GET " + six + "/a": "lost"}},
		{`{"hosts": [{"host": "10.77.0.0/16", "port": 8000, "flow": "ingress"}], "http": {}, "drop": 100}`,
			map[string]string{"GET " + own + "/a": "lost"}},
		{`{"hosts": [{"host": "10.77.9.1", "port": 8081}], "http": {}, "drop": 100}`, nil},
	} {
		t.Run(tt.spec, func(t *testing.T) {
			from, other := newBrowser(target, false), newBrowser(control, false)
			all := []string{"GET " + one + "/a", "POST " + one + "/a", "GET " + one + "/ab", "GET " + one + "/b",
				"GET " + two + "/a", "GET " + six + "/a", "GET " + own + "/a"}
			by := func(line string) *browser {
				if strings.Contains(line, own) {
					return other
				}
				return from
			}
			check := func(b *browser, line, want string) {
				t.Helper()
				within := 10 * time.Second
				if want == "lost" {
					within = 300 * time.Millisecond
				}
				got, took := b.send(line, within)
				method, _, _ := strings.Cut(line, " ")
				_, path, _ := strings.Cut(line, "/")
				switch want {
				case "lost":
					if got != "lost" {
						t.Errorf("%s: %s", line, got)
					}
				default:
					if got != method+" /"+path || want == "late" && took < 600*time.Millisecond {
						t.Errorf("%s: %s after %s; want %q", line, got, took, want)
					}
				}
			}
			for _, line := range all {
				check(by(line), line, usual) // these connections stay open
			}
			remove := injecting(t, request(target, "network", tt.spec))
			for _, line := range all {
				// A connection that was open is reset. HTTP repeats a request if it was not sent, but not a POST.
				if strings.HasPrefix(line, "POST") {
					from.transport.CloseIdleConnections()
				}
				check(by(line), line, tt.want[line])
			}
			check(other, "GET "+one+"/a", usual)
			if got := echoesFrom(target, host1+":7000"); got != "e" {
				t.Errorf("what is not HTTP: %q", got)
			}
			remove()
			from.transport.CloseIdleConnections()
			other.transport.CloseIdleConnections()
			for _, line := range all {
				check(by(line), line, usual)
			}
			if diff := cmp.Diff(before, target.dump()); diff != "" {
				t.Errorf("left (-before +after):\n%s", diff)
			}
		})
	}
}

// echoesFrom returns what comes back to a pod.
func echoesFrom(p *runningPod, at string) string {
	c, err := p.dial(context.Background(), "tcp", at)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	data := make([]byte, 1)
	if _, err := c.Write([]byte("e")); err != nil {
		return err.Error()
	}
	if _, err := io.ReadFull(c, data); err != nil {
		return err.Error()
	}
	return string(data)
}

func TestGRPC(t *testing.T) {
	n, target, control := newPair(t)
	forward(n, n.server)
	serveHTTP(t, target.ns, ":8000")
	before := target.dump()
	other := newBrowser(control, true)
	call := func(method string) string {
		answer, _ := other.send("POST "+target.ip+":8000/"+method, 10*time.Second)
		return answer
	}
	usual := func(when string) {
		t.Helper()
		for _, method := range []string{"grpc.A/Get", "grpc.A/Put", "grpc.A/List"} {
			if got, want := call(method), fmt.Sprintf("%d bytes, status 0", len("POST /"+method)); got != want {
				t.Errorf("%s, %s: %s, want %s", when, method, got, want)
			}
		}
	}
	usual("before")
	remove := injecting(t, request(target, "grpc", `{"port": 8000, "endpoints": [
		{"method": "/grpc.A/Get", "error": "UNAVAILABLE"}, {"method": "/grpc.A/Put", "override": "empty"}]}`))
	other.transport.CloseIdleConnections()
	for method, want := range map[string]string{
		"grpc.A/Get": "0 bytes, status 14", "grpc.A/Put": "5 bytes, status 0", "grpc.A/List": "17 bytes, status 0",
	} {
		if got := call(method); got != want {
			t.Errorf("%s: %s, want %s", method, got, want)
		}
	}
	if other.opened != 2 {
		t.Errorf("%d connections", other.opened)
	}
	remove()
	other.transport.CloseIdleConnections() // they have ended with the injector
	usual("afterwards")
	if diff := cmp.Diff(before, target.dump()); diff != "" {
		t.Errorf("left (-before +after):\n%s", diff)
	}
}

// TestGRPCWithoutServer: a server that does not speak HTTP/2 without TLS is not one whose calls are seen.
func TestGRPCWithoutServer(t *testing.T) {
	_, target, _ := newPair(t)
	var l net.Listener
	err := target.ns.do(func() (err error) {
		l, err = net.Listen("tcp", ":8000")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { _ = serveEcho(l) }()
	r := request(target, "grpc", `{"port": 8000, "endpoints": [{"method": "/grpc.A/Get", "error": "UNAVAILABLE"}]}`)
	err = must(backend(os.Getpid()).New(r, &inject.Notes{}))(t).Check(t.Context())
	if !errors.Is(err, inject.ErrUnsupported) || !strings.Contains(err.Error(), "does not speak HTTP/2") {
		t.Errorf("%v", err)
	}
}
