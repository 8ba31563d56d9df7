package kind

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/pki"
)

// bench is a gate on loopback, with launchers that are processes of this machine.
type bench struct {
	*processes
	gate     *gate
	launcher string
	dir      string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	launcher, err := buildLauncher(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.New("test")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := issueCertificate(ca, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := newProcesses("node", filepath.Join(dir, "logs"))
	p.first = "apiserver-1"
	p.listen = func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }
	g, err := openGate("127.0.0.1", certificate, "secret", filepath.Join(dir, "c.sock"), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.close(); g.close() })
	return &bench{p, g, launcher, dir}
}

// launch starts a launcher for a shell script.
func (b *bench) launch(t *testing.T, controller, pod, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(b.launcher, "--", "/bin/sh", "sh", "-c", script)
	c := b.gate.config()
	cmd.Env = []string{
		"PATH=/usr/bin:/bin", "TROMMEL_GATE=" + c.Address, "TROMMEL_GATE_TOKEN=" + c.Token,
		"TROMMEL_GATE_FINGERPRINT=" + c.Fingerprint,
		"TROMMEL_GATE_NAME=" + string(mustJSON(caller{
			Controller: controller, Namespace: "ns", Pod: pod, Container: "main", Init: pod == "init",
		})),
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// await waits until the controller's processes are as wanted.
func (b *bench) awaitStatus(t *testing.T, controller string, ok func([]cluster.Process) bool) []cluster.Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var all []cluster.Process
	err := b.await(ctx, func() (bool, error) {
		all = nil
		if c := b.controllers[controller]; c != nil {
			for _, p := range c.history {
				all = append(all, *p)
			}
		}
		return ok(all), nil
	})
	if err != nil {
		t.Fatalf("processes of %s: %+v", controller, all)
	}
	return all
}

func running(n int) func([]cluster.Process) bool {
	return func(all []cluster.Process) bool {
		for _, p := range all {
			if p.Running() {
				n--
			}
		}
		return n == 0
	}
}

func TestExitByItself(t *testing.T) {
	b := newBench(t)
	cmd := b.launch(t, "op", "p", "echo hello; echo bad >&2; env | grep TROMMEL_GATE; exit 3")
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Fatalf("the launcher ended with %v, and not as its program did", err)
	}
	all := b.awaitStatus(t, "op", func(all []cluster.Process) bool { return len(all) == 1 && !all[0].Running() })
	p := all[0]
	if p.ExitCode != 3 || p.Planned || p.Namespace != "ns" || p.Pod != "p" || p.Container != "main" || p.PID == 0 {
		t.Errorf("process %+v", p)
	}
	log, err := b.OpenLog(p)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	text, err := io.ReadAll(log)
	if err != nil {
		t.Fatal(err)
	}
	// The two streams have no order.
	if s := string(text); !strings.Contains(s, "hello\n") || !strings.Contains(s, "bad\n") || len(s) != 10 {
		t.Errorf("log %q", text)
	}
}

// An init container that has done its work has not failed.
func TestInitContainer(t *testing.T) {
	b := newBench(t)
	for code, planned := range []bool{true, false} {
		name := fmt.Sprint("op-", code)
		_ = b.launch(t, name, "init", fmt.Sprint("exit ", code)).Wait()
		p := b.awaitStatus(t, name, func(all []cluster.Process) bool { return len(all) == 1 && !all[0].Running() })[0]
		if p.ExitCode != code || p.Planned != planned {
			t.Errorf("process %+v", p)
		}
	}
}

// Something else kills a container: an injector that the plan has asked for, or an unknown process.
func TestKillsThatAreExpected(t *testing.T) {
	b := newBench(t)
	ended := func(pod, script string, kill bool) cluster.Process {
		t.Helper()
		cmd := b.launch(t, pod, pod, script)
		b.awaitStatus(t, pod, func(all []cluster.Process) bool { return len(all) == 1 })
		if kill {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		return b.awaitStatus(t, pod, func(all []cluster.Process) bool {
			return len(all) == 1 && !all[0].Running()
		})[0]
	}
	const long = "exec sleep 1000"
	if p := ended("before", long, true); p.Planned || p.ExitCode != 137 {
		t.Errorf("nobody expects it: %+v", p)
	}
	one, other := b.ExpectKills(), b.ExpectKills()
	if p := ended("killed", long, true); !p.Planned || p.ExitCode != 137 {
		t.Errorf("expected: %+v", p)
	}
	if p := ended("terminated", "kill -TERM $$", false); !p.Planned || p.ExitCode != 143 {
		t.Errorf("expected: %+v", p)
	}
	if p := ended("failed", "exit 1", false); p.Planned {
		t.Errorf("it exits by itself: %+v", p)
	}
	one()
	one()
	if p := ended("again", long, true); !p.Planned {
		t.Errorf("another one still expects it: %+v", p)
	}
	other()
	if p := ended("after", long, true); p.Planned {
		t.Errorf("nobody expects it any more: %+v", p)
	}
}

func TestKilledStaysDown(t *testing.T) {
	b := newBench(t)
	b.launch(t, "op", "p", "echo up; exec sleep 1000")
	first := b.awaitStatus(t, "op", running(1))[0]
	err := poll(t.Context(), func(context.Context) error {
		if text, _ := os.ReadFile(first.Log); string(text) != "up\n" {
			return fmt.Errorf("log: %q", text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Kill(t.Context(), "op"); err != nil {
		t.Fatal(err)
	}
	// Another pod of the controller waits, too.
	b.launch(t, "op", "q", "exec sleep 1000")
	both := func() (bool, error) { return len(b.controllers["op"].running) == 2, nil }
	if err := b.await(t.Context(), both); err != nil {
		t.Fatal(err)
	}
	all, err := b.Status(t.Context(), "op")
	if err != nil || len(all) != 1 || all[0].Running() || !all[0].Planned || all[0].ExitCode != 128+9 {
		t.Fatalf("killed: %+v, %v", all, err)
	}
	if err := b.Start(t.Context(), "op"); err != nil {
		t.Fatal(err)
	}
	all = b.awaitStatus(t, "op", running(2))
	if len(all) != 3 || all[1].LogStart != int64(len("up\n")) && all[2].LogStart != int64(len("up\n")) {
		t.Errorf("started: %+v after %+v", all, first)
	}
}

// No object shows the variables and arguments of a plan: the gate sends them to the launcher of one container. The
// launcher keeps its own address of the coordinator.
func TestGive(t *testing.T) {
	b := newBench(t)
	given := cluster.Given{Container: "main", Env: map[string]string{
		"PATH": "/given", "TROMMEL_COORDINATOR": "unix:///of/this/machine",
	}, Args: []string{"--gate"}}
	if err := b.Give(t.Context(), "op", given); err != nil {
		t.Fatal(err)
	}
	b.launch(t, "op", "p", `echo $PATH ${TROMMEL_COORDINATOR%%-*} $0; exec /bin/sleep 1000`)
	first := b.awaitStatus(t, "op", running(1))[0]
	says := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := poll(ctx, func(context.Context) error {
			if text, _ := os.ReadFile(first.Log); string(text) != want {
				return fmt.Errorf("log %q", text)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	log := "/given unix://@trommel --gate\n"
	says(log)
	if err := b.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Kill(t.Context(), "op"); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context(), "op"); err != nil {
		t.Fatal(err)
	}
	says(log + "/usr/bin:/bin unix://@trommel sh\n")
	given.Container = "another"
	if err := b.Give(t.Context(), "other", given); err != nil {
		t.Fatal(err)
	}
	b.launch(t, "other", "q", `echo $PATH; exec /bin/sleep 1000`)
	first = b.awaitStatus(t, "other", running(1))[0]
	says("/usr/bin:/bin\n")
}

func TestFreeze(t *testing.T) {
	b := newBench(t)
	b.launch(t, "op", "p", "sleep 1000 & wait")
	p := b.awaitStatus(t, "op", running(1))[0]
	state := func() string {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), ") ")
		return rest[:1]
	}
	if err := b.Freeze(t.Context(), "op", p.PID); err != nil {
		t.Fatal(err)
	}
	if s := state(); s != "T" {
		t.Errorf("frozen: state %s", s)
	}
	if n, err := b.Thaw(t.Context(), "op", false); n != 1 || err != nil {
		t.Fatalf("thawed %d, %v", n, err)
	}
	if s := state(); s == "T" {
		t.Error("thawed: still stopped")
	}
	if err := b.Freeze(t.Context(), "op", 0); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Thaw(t.Context(), "op", true); n != 1 || err != nil {
		t.Fatalf("killed %d, %v", n, err)
	}
	all := b.awaitStatus(t, "op", running(1)) // it starts again
	if len(all) != 2 || !all[0].Planned {
		t.Errorf("%+v", all)
	}
	err := b.Freeze(t.Context(), "op", 1)
	if want := `freeze controller "op": it has no process 1 any more`; err == nil || err.Error() != want {
		t.Errorf("another process: %v", err)
	}
}

func TestNothingStaysStoppedWithoutTheGate(t *testing.T) {
	b := newBench(t)
	marker := filepath.Join(b.dir, "started")
	b.launch(t, "frozen", "p", "exec sleep 1000")
	p := b.awaitStatus(t, "frozen", running(1))[0]
	if err := b.Freeze(t.Context(), "frozen", 0); err != nil {
		t.Fatal(err)
	}
	b.launch(t, "held", "p", "echo x >> "+marker+"; exec sleep 1000")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	started := func(n int) func(context.Context) error {
		return func(context.Context) error {
			if starts, _ := os.ReadFile(marker); len(starts) != 2*n {
				return fmt.Errorf("starts: %q", starts)
			}
			return nil
		}
	}
	if err := poll(ctx, started(1)); err != nil {
		t.Fatal(err)
	}
	if err := b.Kill(t.Context(), "held"); err != nil {
		t.Fatal(err)
	}
	b.gate.close()
	if err := poll(ctx, started(2)); err != nil {
		t.Error(err)
	}
	err := poll(ctx, func(context.Context) error {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
		if bytes.Contains(stat, []byte(") T ")) {
			return fmt.Errorf("still stopped: %s", stat)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestWrongToken(t *testing.T) {
	b := newBench(t)
	b.gate.token = "another"
	c := b.gate.config()
	c.Token = "secret"
	cmd := b.launch(t, "op", "p", "exit 0")
	_ = cmd.Process.Kill()
	if all, _ := b.Status(t.Context(), "op"); all != nil {
		t.Errorf("%+v", all)
	}
}

// TestTunnel: what a program's hooks send to the coordinator's address arrives at the coordinator, encrypted on the
// way.
func TestTunnel(t *testing.T) {
	b := newBench(t)
	listener, err := net.Listen("unix", b.gate.coordinator)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var serving sync.WaitGroup
	serving.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
	})
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no Python")
	}
	cmd := b.launch(t, "op", "p", `exec `+python+` -c '
import os, socket
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["TROMMEL_COORDINATOR"].removeprefix("unix://").replace("@", "\0"))
s.sendall(b"ping")
assert s.recv(4) == b"ping", "another answer"
assert os.environ["TROMMEL_TOKEN"] == "secret"
'`)
	if err := cmd.Wait(); err != nil {
		all := b.awaitStatus(t, "op", func(all []cluster.Process) bool { return len(all) == 1 })
		text, _ := os.ReadFile(all[0].Log)
		t.Errorf("%v\n%s", err, text)
	}
	serving.Wait()
}

func TestRouteAndCut(t *testing.T) {
	b := newBench(t)
	dialed := make(chan string, 2)
	b.dial = func(_ context.Context, apiServer string) (net.Conn, error) {
		dialed <- apiServer
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		return near, nil
	}
	host, port, err := b.proxyFor("op", "")
	if err != nil {
		t.Fatal(err)
	}
	connect := func() net.Conn {
		conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	conn := connect()
	if to := <-dialed; to != "apiserver-1" {
		t.Errorf("connected to %s", to)
	}
	if err := b.Route(t.Context(), "op", "apiserver-3"); err != nil {
		t.Fatal(err)
	}
	connect()
	if to := <-dialed; to != "apiserver-3" {
		t.Errorf("routed to %s", to)
	}
	if err := b.CutConnections(t.Context(), "op"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("not cut")
	}
	if err := b.Route(t.Context(), "nobody", "apiserver-3"); err == nil {
		t.Error("routed nobody")
	}
}
