package embedded

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// The package does not import wire, on which a cluster should not depend, but must agree with it.
func TestEnvironmentAgreesWithWire(t *testing.T) {
	for got, want := range map[string]string{
		envCoordinator: wire.EnvCoordinator, envToken: wire.EnvToken, envIdentity: wire.EnvIdentity,
	} {
		if got != want {
			t.Errorf("%q, wire says %q", got, want)
		}
	}
}

func TestReservedPort(t *testing.T) {
	p, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer p.release()
	if l, err := net.Listen("tcp", p.addr()); err == nil {
		l.Close()
		t.Error("a server that does not share got the port")
	}
	shared := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		_ = c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		return err
	}}
	for range 2 { // a server may start and stop repeatedly
		l, err := shared.Listen(context.Background(), "tcp", p.addr())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", p.addr())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		l.Close()
	}
	if _, err := net.Dial("tcp", p.addr()); err == nil {
		t.Error("a reservation alone accepts connections")
	}
}

func TestReservedPortsDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		p, err := reservePort()
		if err != nil {
			t.Fatal(err)
		}
		defer p.release()
		if seen[p.number] {
			t.Fatalf("port %d twice", p.number)
		}
		seen[p.number] = true
	}
}

func TestLockNamesHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockRun("c", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockRun("c", path)
	if want := fmt.Sprintf(`cluster "c" is in use by process %d`, os.Getpid()); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	unlock()
	unlock, err = lockRun("c", path)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestConfigErrors(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := withDefaults(Config{Name: "No Name", APIServers: 6, Binary: plain})
	want := `cluster name "No Name": must be up to 40 lower case letters, digits and dashes
6 API servers: must be 1 to 5
control plane executable: ` + plain + ` is not executable`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	_, err = withDefaults(Config{Binary: "/nonexistent"})
	if err == nil || err.Error() != "control plane executable: stat /nonexistent: no such file or directory" {
		t.Errorf("got %v", err)
	}
}

// The long usage text of a command must not hide its error.
func TestLogTail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for _, tt := range []struct{ name, log, want string }{
		{"nothing", "", ""},
		{"short", "one\ntwo\n", "\tone\n\ttwo"},
		{"long", strings.Repeat("x\n", 100) + "end\n", strings.Repeat("\tx\n", 11) + "\tend"},
		{"usage", "Usage:\n\n  -h help\n\nError: unknown flag: --x\n", "\tError: unknown flag: --x"},
	} {
		if err := os.WriteFile(file, []byte("earlier\n"+tt.log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (&component{logFile: file}).logTail(int64(len("earlier\n")), 12); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
