package passthrough

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
)

// Shape disturbs a connection's data, in each direction by itself. The zero value does nothing.
type Shape struct {
	// Delay is the time between receiving a piece of data and sending it on. Jitter varies it, up and down; the order
	// of the data stays.
	Delay, Jitter time.Duration
	// Bandwidth in bytes per second; 0: no limit.
	Bandwidth int64
	// Hang means that no data passes. It passes when the shape changes.
	Hang bool
}

// Plus combines two shapes.
func (s Shape) Plus(t Shape) Shape {
	s.Delay += t.Delay
	s.Jitter += t.Jitter
	if s.Bandwidth == 0 || t.Bandwidth != 0 && t.Bandwidth < s.Bandwidth {
		s.Bandwidth = t.Bandwidth
	}
	s.Hang = s.Hang || t.Hang
	return s
}

// heedTime limits the time in which Shape waits for connections whose peer does not read.
const heedTime = 50 * time.Millisecond

// Shape gives every open connection and every new one the shape that choose returns for it; nil ends that. It is in
// effect when Shape returns, except for data that a peer has not read yet. No data is lost or changes its order.
func (p *Proxy) Shape(choose func() Shape) {
	p.mu.Lock()
	changed := p.changeShapes(choose)
	heeded := p.heeded
	p.mu.Unlock()
	// A read that was interrupted may still return what came at the same time. Connections heed the change in this
	// program, which takes real time.
	defer p.clock.Hold()()
	timer := p.clock.NewTimer(heedTime)
	defer timer.Stop()
	for len(changed) > 0 {
		select {
		case <-heeded:
		case <-timer.C:
			return
		}
		p.mu.Lock()
		changed = slices.DeleteFunc(changed, func(l *link) bool { return !l.behind[0] && !l.behind[1] })
		heeded = p.heeded
		p.mu.Unlock()
	}
}

// changeShapes returns the connections that must heed a change. The caller holds mu.
func (p *Proxy) changeShapes(choose func() Shape) (changed []*link) {
	p.shape = choose
	for l := range p.links {
		before := l.shape
		l.shape = Shape{}
		if choose != nil {
			l.shape = choose()
		}
		if l.shape == before {
			continue
		}
		close(l.changed)
		l.changed = make(chan struct{})
		// Interrupt reads; see copyShaped.
		_ = l.client.SetReadDeadline(past)
		if l.backend != nil {
			_ = l.backend.SetReadDeadline(past)
		}
		if l.behind = l.copying; l.copying != [2]bool{} {
			changed = append(changed, l)
		}
	}
	return changed
}

// heed notes that a direction uses the current shape, or has ended. The caller holds mu.
func (p *Proxy) heed(l *link, direction int, copying bool) {
	l.copying[direction], l.behind[direction] = copying, false
	close(p.heeded)
	p.heeded = make(chan struct{})
}

var past = time.Unix(1, 0)

// join is Join for a link, whose shape may change.
func (p *Proxy) join(l *link) {
	done := make(chan struct{})
	go func() {
		finish(l.client, l.backend, p.copyShaped(l, 0, l.client, l.backend))
		close(done)
	}()
	finish(l.backend, l.client, p.copyShaped(l, 1, l.backend, l.client))
	<-done
	_ = l.client.Close()
	_ = l.backend.Close()
}

// copyShaped copies until the source ends.
func (p *Proxy) copyShaped(l *link, direction int, dst, src net.Conn) error {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.heed(l, direction, false)
	}()
	for {
		// Shape changes the shape and interrupts reads under the same lock, so no change is missed.
		p.mu.Lock()
		shape, changed := l.shape, l.changed
		_ = src.SetReadDeadline(time.Time{})
		p.heed(l, direction, true)
		p.mu.Unlock()
		var err error
		if shape == (Shape{}) {
			_, err = io.Copy(dst, src)
		} else {
			err = shape.copy(p.clock, dst, src, changed, l.gone)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// piece is data that was received at a time.
type piece struct {
	data []byte
	at   time.Time
}

// A piece's largest size, and how many may wait in each direction.
const (
	pieceSize = 16 << 10
	backlog   = 256
)

// copy copies until the source ends or a read is interrupted. Then it sends at once all that it has read.
func (s Shape) copy(clock *clock.Clock, dst, src net.Conn, changed, gone <-chan struct{}) error {
	if s.Hang {
		select {
		case <-changed:
			return os.ErrDeadlineExceeded
		case <-gone:
			return net.ErrClosed
		}
	}
	pieces := make(chan piece, backlog)
	var readErr error // valid when pieces is closed
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, pieceSize)
			n, err := src.Read(buffer)
			if n > 0 {
				pieces <- piece{buffer[:n], clock.Now()}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					readErr = err
				}
				return
			}
		}
	}()
	var free time.Time // when the bandwidth allows the next byte
	for p := range pieces {
		wait(clock, p.at.Add(s.delay()), changed, gone)
		for len(p.data) > 0 {
			n := len(p.data)
			if s.Bandwidth > 0 {
				wait(clock, free, changed, gone)
				n = min(n, max(int(s.Bandwidth/50), 64))
				if now := clock.Now(); free.Before(now) {
					free = now
				}
				free = free.Add(time.Duration(float64(n) / float64(s.Bandwidth) * float64(time.Second)))
			}
			if _, err := dst.Write(p.data[:n]); err != nil {
				go func() {
					for range pieces { // until finish has ended the source
					}
				}()
				return err
			}
			p.data = p.data[n:]
		}
	}
	return readErr
}

func (s Shape) delay() time.Duration {
	if s.Jitter <= 0 {
		return s.Delay
	}
	return max(s.Delay-s.Jitter+rand.N(2*s.Jitter), 0)
}

// wait waits until the clock's time has come or one of the channels is closed.
func wait(clock *clock.Clock, until time.Time, changed, gone <-chan struct{}) {
	d := clock.Until(until)
	if d <= 0 {
		return
	}
	timer := clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-gone:
	}
}
