package passthrough

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
)

// inBubble runs a test of a proxy's connection to a server that sends back what it gets, in the time of a bubble: what
// is measured does not depend on how busy the machine is.
func inBubble(t *testing.T, test func(t *testing.T, p *Proxy, c net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &Proxy{clock: clock.New(), links: map[*link]struct{}{}, heeded: make(chan struct{})}
		c, client := net.Pipe()
		backend, server := net.Pipe()
		l := &link{client: client, backend: backend, gone: make(chan struct{}), changed: make(chan struct{})}
		p.links[l] = struct{}{}
		go p.join(l)
		go func() { _, _ = io.Copy(server, server) }()
		defer func() {
			p.Cut()
			_ = server.Close()
		}()
		test(t, p, c)
	})
}

// exchange sends data, waits until all of it has come back, and returns how long that took.
func exchange(t *testing.T, c net.Conn, size int) time.Duration {
	t.Helper()
	start := time.Now()
	go func() { _, _ = c.Write(make([]byte, size)) }()
	if _, err := io.ReadFull(c, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

func TestShapeTakesItsTime(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name     string
		shape    Shape
		size     int
		min, max time.Duration // there and back
	}{
		{"nothing", Shape{}, 1, 0, 0},
		{"delay", Shape{Delay: 60 * ms}, 1, 120 * ms, 120 * ms},
		{"delay of much", Shape{Delay: 60 * ms}, 1 << 20, 120 * ms, 120 * ms},
		{"jitter", Shape{Delay: 60 * ms, Jitter: 30 * ms}, 1, 60 * ms, 180 * ms},
		{"bandwidth", Shape{Bandwidth: 200_000}, 100_000, 480 * ms, 520 * ms},
		{"delay and bandwidth", Shape{Delay: 60 * ms, Bandwidth: 200_000}, 100_000, 600 * ms, 640 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *Proxy, c net.Conn) {
				exchange(t, c, 1)
				p.Shape(func() Shape { return tt.shape })
				for range 3 {
					if d := exchange(t, c, tt.size); d < tt.min || d > tt.max {
						t.Errorf("it took %v", d)
					}
				}
				p.Shape(nil)
				if d := exchange(t, c, tt.size); d != 0 {
					t.Errorf("it took %v afterwards", d)
				}
			})
		})
	}
}

// Data that waits is sent at once when the shape changes.
func TestShapeEndsDelay(t *testing.T) {
	inBubble(t, func(t *testing.T, p *Proxy, c net.Conn) {
		p.Shape(func() Shape { return Shape{Delay: time.Hour} })
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			p.Shape(nil)
		}()
		exchange(t, c, 1)
		if d := time.Since(start); d != time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// A delay passes by the cluster's clock.
func TestShapeByClock(t *testing.T) {
	inBubble(t, func(t *testing.T, p *Proxy, c net.Conn) {
		p.Shape(func() Shape { return Shape{Delay: time.Hour} })
		start, back := time.Now(), make(chan struct{})
		go func() {
			defer close(back)
			exchange(t, c, 1)
		}()
		for range 2 { // there and back
			synctest.Wait()
			if next, ok := p.clock.Next(); !ok || p.clock.Until(next) != time.Hour {
				t.Errorf("the next timer is due in %s (%t)", p.clock.Until(next), ok)
			}
			p.clock.Advance(time.Hour)
		}
		<-back
		if d := time.Since(start); d != 0 {
			t.Errorf("it took %s of real time", d)
		}
	})
}
