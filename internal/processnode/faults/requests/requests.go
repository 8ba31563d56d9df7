package requests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster/passthrough"
)

// CheckGRPC reports what is invalid about the alteration of a method.
func CheckGRPC(e v1alpha1.GRPCEndpoint) error {
	if e.Error != "" && slices.Index(grpcCodes, e.Error) <= 0 || e.Error == "" && e.Override != "empty" {
		return fmt.Errorf("endpoint %s: error %q, override %q", e.Method, e.Error, e.Override)
	}
	return nil
}

// Drawn reports whether a share in percent, nil for all, is meant this time.
func Drawn(p *v1alpha1.Percentage) bool {
	return p == nil || rand.Float64()*100 < float64(*p)
}

// grpcCodes are the names of gRPC's status codes, by their numbers.
var grpcCodes = []string{
	"OK", "CANCELED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
	"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// preface is what a client of HTTP/2 begins with, and an empty SETTINGS frame, with which both sides begin.
const (
	preface  = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
)

// SpeaksHTTP2 reports whether a server speaks HTTP/2 without TLS. dial connects to it.
func SpeaksHTTP2(ctx context.Context, dial func(context.Context) (net.Conn, error)) (bool, error) {
	ctx, cancel := clock.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := dial(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := io.WriteString(conn, preface+settings); err != nil {
		return false, err
	}
	var answer [len(settings)]byte
	n, err := io.ReadFull(conn, answer[:])
	switch {
	case isSettings(answer[:n]):
		return true, nil
	case ctx.Err() != nil || n == 0 && !errors.Is(err, io.EOF):
		return false, fmt.Errorf("the server at %s does not answer: %w", conn.RemoteAddr(), err)
	}
	return false, nil
}

// isSettings reports whether data begins with a SETTINGS frame.
func isSettings(data []byte) bool {
	return len(data) >= len(settings) && data[0] == 0 && data[3] == 4 && bytes.Equal(data[5:9], make([]byte, 4))
}

// longestLine is longer than the first line of most requests.
const longestLine = 16 << 10

// beginsHTTP reports whether data of a client begins a request, or the preface of HTTP/2; unsure means that more data
// must come before that is clear.
func beginsHTTP(data []byte) (yes, unsure bool) {
	for i, c := range data {
		if c == ' ' && i > 0 {
			break
		}
		if c < 'A' || c > 'Z' {
			return false, false
		}
	}
	line, _, complete := bytes.Cut(data, []byte("\n"))
	if !complete {
		return false, len(data) < longestLine
	}
	line = bytes.TrimSuffix(line, []byte("\r"))
	return bytes.HasSuffix(line, []byte(" HTTP/1.1")) || bytes.HasSuffix(line, []byte(" HTTP/1.0")) ||
		string(line) == "PRI * HTTP/2.0", false
}

// Join joins a client's connection with its server's: as a reverse proxy if the client speaks HTTP without TLS, and
// byte by byte otherwise.
func (t *Proxy) Join(client, server net.Conn) {
	fromClient, fromServer, isHTTP := hear(client, server)
	if isHTTP {
		_ = t.take(&terminatedConn{Conn: &heard{client, fromClient}, server: t, opened: &heard{server, fromServer}})
		return
	}
	_, err := server.Write(fromClient)
	if _, e := client.Write(fromServer); err != nil || e != nil {
		_ = client.Close()
		_ = server.Close()
		return
	}
	passthrough.Join(client, server)
}

// words are what one side of a connection has said.
type words struct {
	by   net.Conn
	data []byte
	err  error
}

// hear reads until it is clear whether the client speaks HTTP. It returns what both sides have said.
func hear(client, server net.Conn) (fromClient, fromServer []byte, isHTTP bool) {
	said := make(chan words, 2)
	listening := map[net.Conn]bool{}
	listen := func(c net.Conn) {
		listening[c] = true
		go func() {
			buffer := make([]byte, 4096)
			n, err := c.Read(buffer)
			said <- words{c, buffer[:n], err}
		}()
	}
	listen(client)
	listen(server)
	for clear := false; len(listening) > 0; {
		w := <-said
		delete(listening, w.by)
		switch {
		case w.by == client:
			fromClient = append(fromClient, w.data...)
			if clear {
				continue
			}
			unsure := false
			isHTTP, unsure = beginsHTTP(fromClient)
			if unsure && w.err == nil {
				listen(client)
				continue
			}
			clear = true
		default:
			fromServer = append(fromServer, w.data...)
			// Some servers of HTTP/2 speak first.
			clear = clear || !isSettings(fromServer)
		}
		if clear {
			for c := range listening {
				_ = c.SetReadDeadline(past)
			}
		}
	}
	_ = client.SetReadDeadline(time.Time{})
	_ = server.SetReadDeadline(time.Time{})
	return fromClient, fromServer, isHTTP
}

var past = time.Unix(1, 0)

// heard is a connection with data that has been read before.
type heard struct {
	net.Conn
	data []byte
}

func (h *heard) Read(p []byte) (int, error) {
	if len(h.data) == 0 {
		return h.Conn.Read(p)
	}
	n := copy(p, h.data)
	h.data = h.data[n:]
	return n, nil
}

// Fault disturbs HTTP requests, or gRPC calls.
type Fault struct {
	// Network is for requests; its HTTP is set.
	Network *v1alpha1.Network
	// GRPC are the calls that are answered in the server's place.
	GRPC []v1alpha1.GRPCEndpoint
	// Ended is closed at its end.
	Ended <-chan struct{}
}

// Disturb carries out what the fault says about a request.
func (f *Fault) Disturb(w http.ResponseWriter, r *http.Request) Consequence {
	switch {
	case f.GRPC != nil:
		return f.disturbCall(w, r)
	case f.Network.HTTP != nil:
		return f.disturbRequest(r)
	}
	return None
}

// disturbRequest drops or delays an HTTP request.
func (f *Fault) disturbRequest(r *http.Request) Consequence {
	filter := f.Network.HTTP
	if len(filter.Methods) > 0 && !slices.Contains(filter.Methods, r.Method) || len(filter.Paths) > 0 &&
		!slices.ContainsFunc(filter.Paths, func(prefix string) bool { return strings.HasPrefix(r.URL.Path, prefix) }) ||
		!Drawn(f.Network.Percentage) {
		return None
	}
	if f.Network.Drop != nil && Drawn(f.Network.Drop) {
		select {
		case <-f.Ended:
			// The client has got no answer, as if the answer were lost.
		case <-r.Context().Done():
		}
		return Aborted
	}
	if f.Network.Delay == nil {
		return None
	}
	delay := f.Network.Delay.Duration()
	if f.Network.DelayJitter != nil && f.Network.DelayJitter.Duration() > 0 {
		delay += rand.N(2*f.Network.DelayJitter.Duration()) - f.Network.DelayJitter.Duration()
	}
	timer := clock.NewTimer(r.Context(), delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.Ended:
	case <-r.Context().Done():
		return Aborted
	}
	return None
}

// alteration is what happens to a call of a method; nil: nothing. Several entries of a method share its calls, in their
// order. drawn is a random number from 0 to 100.
func alteration(endpoints []v1alpha1.GRPCEndpoint, method string, drawn float64) *v1alpha1.GRPCEndpoint {
	for i := range endpoints {
		e := &endpoints[i]
		if e.Method != method {
			continue
		}
		share := 100.0
		if e.Percentage != nil {
			share = float64(*e.Percentage)
		}
		if drawn < share {
			return e
		}
		drawn -= share
	}
	return nil
}

// disturbCall answers a gRPC call in the server's place.
func (f *Fault) disturbCall(w http.ResponseWriter, r *http.Request) Consequence {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		return None
	}
	e := alteration(f.GRPC, r.URL.Path, rand.Float64()*100)
	if e == nil {
		return None
	}
	header := w.Header()
	header.Set("Content-Type", "application/grpc")
	if e.Error != "" {
		header.Set("Grpc-Status", strconv.Itoa(slices.Index(grpcCodes, e.Error)))
		header.Set("Grpc-Message", "injected by a disruption")
		return Answered
	}
	_, _ = w.Write(make([]byte, 5)) // not compressed, and no bytes
	header.Set(http.TrailerPrefix+"Grpc-Status", "0")
	return Answered
}
