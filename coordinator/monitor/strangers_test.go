//go:build unix

package monitor

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/coordinator/monitor/monitortest"
	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// TestManyStrangers holds connections open that say nothing: 10,000 with TROMMEL_TEST_LONG. A process gets in as
// before, and when the strangers' time is over nothing of them is left.
func TestManyStrangers(t *testing.T) {
	timeout, number := 2*time.Second, 1000
	if os.Getenv("TROMMEL_TEST_LONG") != "" {
		timeout, number = 5*time.Second, 10_000
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if most := int(limit.Cur)/2 - 100; most < number { // both ends are in this process
		number = most
		t.Logf("with %d connections: more exceed the limit of open files", number)
	}
	m := listenWith(t, Config{HelloTimeout: timeout})
	goroutines, before := runtime.NumGoroutine(), memory()
	strangers := make([]net.Conn, 0, number)
	defer func() {
		for _, conn := range strangers {
			_ = conn.Close()
		}
	}()
	for range number {
		conn, err := net.Dial("tcp", strings.TrimPrefix(m.Addr(), "tcp://"))
		if err != nil {
			t.Fatal(err)
		}
		strangers = append(strangers, conn)
	}
	p := monitortest.Dial(t, m.Addr())
	if w := p.Hello(hello("db")); w.Reject != "" {
		t.Fatal(w.Reject)
	}
	next(t, m)
	call := p.Observe(wire.Observation{Call: 1})
	next(t, m).Release()
	<-call.Done
	const most = 64 << 10 // bytes for each
	if each := (memory() - before) / int64(number); each > most {
		t.Errorf("%d bytes for each stranger, want at most %d", each, most)
	} else {
		t.Logf("%d bytes for each of %d strangers", each, number)
	}
	for _, conn := range strangers {
		_ = conn.SetReadDeadline(time.Now().Add(10 * timeout))
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a stranger is still connected")
		}
	}
	p.Close()
	for deadline := time.Now().Add(10 * timeout); runtime.NumGoroutine() > goroutines; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		}
	}
}

// memory returns the bytes of heap and stacks in use.
func memory() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc + s.StackInuse)
}

// Regression: when there was no file descriptor for a connection, the monitor accepted none any more, even when there
// was one again. The next controller to start was not observed.
func TestAcceptsAgainWithFileDescriptors(t *testing.T) {
	m := listenWith(t, Config{})
	address := strings.TrimPrefix(m.Addr(), "tcp://")
	monitortest.Dial(t, m.Addr()).Close() // what a first connection needs besides is open now
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	lower := limit
	lower.Cur = min(limit.Cur, 256)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lower); err != nil {
		t.Fatal(err)
	}
	var files []io.Closer
	restore := func() {
		for _, f := range files {
			_ = f.Close()
		}
		files = nil
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}
	defer func() { restore() }()
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	_ = files[len(files)-1].Close() // for this end of the connection, not for the monitor's
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	files[len(files)-1] = conn
	// The monitor has tried to accept it when it does so again: no event shows it.
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection was accepted: %v", err)
	}
	restore()
	p := monitortest.Dial(t, m.Addr())
	if w := p.Hello(hello("db")); w.Reject != "" {
		t.Fatal(w.Reject)
	}
	next(t, m)
}

// TestReplayedSession sends what a process of an earlier run has sent, byte for byte. It is refused: each run has a
// token of its own.
func TestReplayedSession(t *testing.T) {
	sent := framed(encoded(t, call{".Hello", hello("db")}))
	replay := func(t *testing.T, m *Monitor) {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(m.Addr(), "tcp://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := conn.Write(sent); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("still connected")
		}
	}
	first := listenWith(t, Config{})
	replay(t, first)
	if e := next(t, first); e.Session == nil || e.Session.Identity != "db" {
		t.Fatalf("the recorded session is none: %+v", e)
	}
	later, err := Listen(Config{Address: "tcp://127.0.0.1:0", Token: "another"})
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	replay(t, later)
	select {
	case e := <-later.Events():
		t.Errorf("the session was accepted: %+v", e)
	default:
	}
}
