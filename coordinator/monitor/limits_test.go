package monitor

import (
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/trommel-dev/trommel/coordinator/monitor/monitortest"
	"github.com/trommel-dev/trommel/instrumentation/wire"
)

func listenWith(t *testing.T, config Config) *Monitor {
	t.Helper()
	config.Address, config.Token = "tcp://127.0.0.1:0", token
	m, err := Listen(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// stranger connects without a token, as any program that finds the address can.
func stranger(t *testing.T, m *Monitor) (net.Conn, *yamux.Stream) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(m.Addr(), "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	config := yamux.DefaultConfig()
	config.LogOutput = io.Discard
	session, err := yamux.Client(conn, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	stream, err := session.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	return conn, stream
}

// closed waits until the monitor has closed the stream's connection.
func closed(t *testing.T, stream *yamux.Stream, within time.Duration) {
	t.Helper()
	if err := stream.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, stream); errors.Is(err, yamux.ErrTimeout) {
		t.Errorf("still connected after %s", within)
	}
}

func TestAConnectionWithoutATokenIsClosedInTime(t *testing.T) {
	m := listenWith(t, Config{HelloTimeout: 200 * time.Millisecond})
	t.Run("nothing", func(t *testing.T) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(m.Addr(), "tcp://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("still connected: %v", err)
		}
	})
	t.Run("no message", func(t *testing.T) {
		_, stream := stranger(t, m)
		closed(t, stream, 10*time.Second)
	})
	t.Run("wrong token", func(t *testing.T) {
		p := monitortest.Dial(t, m.Addr())
		if w := p.Hello(wire.Hello{ProtocolVersion: wire.ProtocolVersion, Token: "x", Identity: "db"}); w.Reject == "" {
			t.Fatal("accepted")
		}
		select {
		case <-p.Closed():
		case <-time.After(10 * time.Second):
			t.Error("still connected")
		}
	})
	t.Run("right token", func(t *testing.T) {
		p := monitortest.Dial(t, m.Addr())
		p.Hello(hello("db"))
		next(t, m)
		select {
		case <-p.Closed():
			t.Error("closed")
		case <-time.After(3 * 200 * time.Millisecond):
		}
	})
}

// TestAConnectionWithoutATokenSendsLittle writes a gob message that claims to be a gigabyte long, and as much of it as
// the monitor accepts.
func TestAConnectionWithoutATokenSendsLittle(t *testing.T) {
	m := listenWith(t, Config{})
	// Allocations are counted for the whole process: others may add to them, but not each time.
	least := uint64(math.MaxUint64)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		sendMuch(t, m)
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	if least > 16*maxHello {
		t.Errorf("%d MB allocated for a stranger", least>>20)
	}
}

// sendMuch sends the message as a stranger.
func sendMuch(t *testing.T, m *Monitor) {
	t.Helper()
	_, stream := stranger(t, m)
	const length = 1<<30 - 1
	head := binary.BigEndian.AppendUint32([]byte{0xfc}, length) // gob: the negated number of bytes, then the bytes
	if _, err := stream.Write(head); err != nil {
		t.Fatal(err)
	}
	block, sent := make([]byte, 1<<16), 0
	for _ = stream.SetWriteDeadline(time.Now().Add(10 * time.Second)); sent < 64<<20; {
		n, err := stream.Write(block)
		sent += n
		if errors.Is(err, yamux.ErrTimeout) {
			t.Fatalf("still connected after %d bytes", sent)
		}
		if err != nil {
			break
		}
	}
	if sent > 2*maxHello {
		t.Errorf("the monitor took %d bytes, want at most %d plus what is in transit", sent, maxHello)
	}
}

func TestALargeHelloIsRefusedAndALargeObservationIsNot(t *testing.T) {
	m := listenWith(t, Config{})
	_, stream := stranger(t, m)
	encoder := gob.NewEncoder(stream)
	_ = encoder.Encode(struct {
		ServiceMethod string
		Seq           uint64
	}{wire.MonitorService + ".Hello", 1})
	_ = encoder.Encode(wire.Hello{ProtocolVersion: wire.ProtocolVersion, Token: strings.Repeat("x", 2*maxHello),
		Identity: "db"})
	closed(t, stream, 10*time.Second)

	p := monitortest.Dial(t, m.Addr())
	p.Hello(hello("db"))
	next(t, m)
	call := p.Observe(wire.Observation{Call: 1, Object: make([]byte, 2*maxHello)})
	e := next(t, m)
	if len(e.Observation.Object) != 2*maxHello {
		t.Errorf("%d bytes arrived", len(e.Observation.Object))
	}
	e.Release()
	if err := (<-call.Done).Error; err != nil {
		t.Error(err)
	}
}

func TestAProcessThatDoesNotAcknowledgeIsCutOffAndSaidSo(t *testing.T) {
	m := listenWith(t, Config{AckTimeout: 200 * time.Millisecond})
	p := monitortest.Dial(t, m.Addr())
	p.Hello(hello("db"))
	session := next(t, m).Session
	held := p.Observe(wire.Observation{Call: 1})
	next(t, m)
	for range cap(p.Interests) { // then the process accepts no more
		m.SetRules(context.Background(), nil)
	}
	m.SetRules(context.Background(), nil)
	e := next(t, m)
	if want := "it did not acknowledge its reporting rules: no answer within 200ms"; !e.Ended ||
		e.Session != session || e.Lost != want {
		t.Errorf("got %+v, want the session's end: %s", e, want)
	}
	<-held.Done
	<-p.Interests // lets the process exit
}

func TestAProcessThatIsGoneIsNotCutOff(t *testing.T) {
	m := listenWith(t, Config{})
	p := monitortest.Dial(t, m.Addr())
	p.Hello(hello("db"))
	next(t, m)
	p.Close()
	m.SetRules(context.Background(), nil)
	if e := next(t, m); !e.Ended || e.Lost != "" {
		t.Errorf("got %+v", e)
	}
}

func TestWhatHooksLetGoArrives(t *testing.T) {
	limits := wire.Limits{Hold: time.Minute, Silence: time.Minute}
	m := listenWith(t, Config{Limits: limits})
	p := monitortest.Dial(t, m.Addr())
	if w := p.Hello(hello("db")); w.Limits != limits {
		t.Errorf("the process is told %+v", w.Limits)
	}
	next(t, m)
	o := wire.Observation{Call: 1, Phase: wire.Before}
	p.Observe(o)
	observed := next(t, m)
	if err := p.Miss("so it was"); err != nil {
		t.Fatal(err)
	}
	if e := next(t, m); e.Missed == nil || e.Missed.Why != "so it was" {
		t.Errorf("got %+v", e)
	}
	if err := p.LetGo(o, "too long"); err != nil {
		t.Fatal(err)
	}
	if e := next(t, m); e.Abandoned == nil || !e.Abandoned.LetGo || e.Abandoned.Error != "too long" ||
		e.Observation != observed.Observation {
		t.Errorf("got %+v", e)
	}
	observed.Release()
}
