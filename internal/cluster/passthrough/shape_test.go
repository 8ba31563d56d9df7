package passthrough_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/cluster/passthrough"
)

// shaped returns a proxy in front of a server that sends back what it gets, and a connection to it.
func shaped(t *testing.T) (*passthrough.Proxy, net.Conn) {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	proxy, err := passthrough.New(nil, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Addr().String())
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	c, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return proxy, c
}

// roundTrip sends a byte and waits for it.
func roundTrip(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	start := time.Now()
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// Only a lower limit is checked for connections of the machine, which may be busy. See TestShapeTakesItsTime.
func TestShape(t *testing.T) {
	for _, tt := range []struct {
		name  string
		shape passthrough.Shape
		min   time.Duration // of a round trip
	}{
		{"nothing", passthrough.Shape{}, 0},
		{"delay", passthrough.Shape{Delay: 60 * time.Millisecond}, 120 * time.Millisecond},
		{
			"jitter", passthrough.Shape{Delay: 60 * time.Millisecond, Jitter: 30 * time.Millisecond},
			60 * time.Millisecond,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proxy, c := shaped(t)
			roundTrip(t, c)
			proxy.Shape(func() passthrough.Shape { return tt.shape })
			for range 3 {
				if d := roundTrip(t, c); d < tt.min {
					t.Errorf("round trip: %v", d)
				}
			}
			proxy.Shape(nil)
			// A shape that is left would delay each of them.
			const quick = 40 * time.Millisecond
			d := roundTrip(t, c)
			for range 9 {
				if d > quick {
					d = roundTrip(t, c)
				}
			}
			if d > quick {
				t.Errorf("round trip afterwards: %v", d)
			}
		})
	}
}

func TestShapeHangs(t *testing.T) {
	proxy, c := shaped(t)
	proxy.Shape(func() passthrough.Shape { return passthrough.Shape{Hang: true} })
	if _, err := c.Write([]byte("data")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes through a connection that hangs", n)
	}
	_ = c.SetReadDeadline(time.Time{})
	proxy.Shape(nil)
	got := make([]byte, 4)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "data" {
		t.Errorf("afterwards: %q, %v", got, err)
	}
}

func TestShapeBandwidth(t *testing.T) {
	proxy, c := shaped(t)
	proxy.Shape(func() passthrough.Shape { return passthrough.Shape{Bandwidth: 200_000} })
	start := time.Now()
	go func() { _, _ = c.Write(make([]byte, 100_000)) }()
	if _, err := io.ReadFull(c, make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < 450*time.Millisecond {
		t.Errorf("100 kB at 200 kB/s took %v", d)
	}
}

// The data stays whole while the shape changes.
func TestShapeChanges(t *testing.T) {
	proxy, c := shaped(t)
	const size = 8 << 20
	data := make([]byte, size)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(data)
	stop := make(chan struct{})
	changing := make(chan struct{})
	go func() {
		defer close(changing)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			s := passthrough.Shape{
				Delay: rand.N(3 * time.Millisecond), Bandwidth: rand.Int64N(2) * 50e6, Hang: rand.IntN(8) == 0,
			}
			if rand.IntN(2) == 0 {
				s = passthrough.Shape{}
			}
			proxy.Shape(func() passthrough.Shape { return s })
		}
	}()
	go func() {
		_, _ = c.Write(data)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	close(stop)
	<-changing
	if err != nil || sha256.Sum256(got) != sha256.Sum256(data) {
		t.Errorf("%d of %d bytes, equal at the beginning: %v; %v", len(got), size,
			bytes.HasPrefix(data, got[:min(len(got), 100)]), err)
	}
}

func TestRetire(t *testing.T) {
	proxy, c := shaped(t)
	roundTrip(t, c)
	proxy.Retire()
	roundTrip(t, c)
	if other, err := net.Dial("tcp", proxy.Addr()); err == nil {
		_ = other.Close()
		t.Error("it still listens")
	}
}

func TestCutWhileHanging(t *testing.T) {
	proxy, c := shaped(t)
	roundTrip(t, c)
	proxy.Shape(func() passthrough.Shape { return passthrough.Shape{Hang: true} })
	if n := proxy.Cut(); n != 1 {
		t.Errorf("Cut = %d", n)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open")
	}
}

// A shape is in effect when Shape returns, also just after other data has passed.
func TestShapeIsInEffectAtOnce(t *testing.T) {
	proxy, c := shaped(t)
	for n := range 40 {
		s := passthrough.Shape{Delay: 10 * time.Millisecond, Jitter: time.Duration(n%2) * time.Millisecond}
		proxy.Shape(func() passthrough.Shape { return s })
		if d := roundTrip(t, c); d < 18*time.Millisecond {
			t.Errorf("round trip %d: %v", n, d)
		}
		proxy.Shape(nil)
		roundTrip(t, c)
	}
}
