package hook

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	real "github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation/wire"
)

const silence = 500 * time.Millisecond

// The roles in which the tests start their own binary, to stop it.
const (
	childMonitor    = "monitor"    // a coordinator that releases nothing and prints what it receives
	childController = "controller" // writes in an endless loop
)

func runChild(role string) {
	switch role {
	case childMonitor:
		serveMonitor()
	case childController:
		for n := 0; ; n++ {
			_ = Begin(write(fmt.Sprintf("web-%d", n))).Before([]byte(`{}`), nil)
			fmt.Println(n)
			time.Sleep(time.Millisecond)
		}
	}
}

func serveMonitor() {
	m, err := real.Listen(real.Config{
		Address: os.Getenv("TROMMEL_TEST_LISTEN"), Token: "secret",
		Limits: wire.Limits{Silence: silence}, HelloTimeout: time.Minute,
	})
	if err != nil {
		panic(err)
	}
	m.SetRules(context.Background(), map[string][]wire.Rule{"db": {podWrites}})
	out := json.NewEncoder(os.Stdout)
	said := func(what, detail string) {
		if err := out.Encode([]string{what, detail}); err != nil {
			os.Exit(1)
		}
	}
	said("listens", "")
	for e := range m.Events() {
		switch {
		case e.Abandoned != nil:
			said("let go", fmt.Sprint(e.Abandoned.LetGo, " ", e.Abandoned.Error))
		case e.Missed != nil:
			said("missed", e.Missed.Why)
		case e.Observation != nil:
			said("observed", e.Observation.Name)
		case e.Started:
			said("started", "")
		case e.Ended:
			said("ended", e.Lost)
		case e.Silent > 0:
			said("silent", "")
		}
	}
}

// child is this test's binary in one of its roles.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines chan string
}

func startChild(t testing.TB, role string, env ...string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childEnv+"="+role), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: cmd, lines: make(chan string, 1<<16)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	return c
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// stop returns when the process is stopped.
func (c *child) stop() {
	c.t.Helper()
	c.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		c.t.Fatalf("not stopped: %v, %v", status, err)
	}
}

// says waits for a line of the monitor and returns its detail.
func (c *child) says(what string) string {
	c.t.Helper()
	for {
		var line []string
		if err := json.Unmarshal([]byte(receive(c.t, what, c.lines)), &line); err != nil {
			c.t.Fatal(err)
		}
		if line[0] == what {
			return line[1]
		}
	}
}

func startMonitor(t testing.TB) (m *child, address string) {
	t.Helper()
	address = socket(t)
	m = startChild(t, childMonitor, "TROMMEL_TEST_LISTEN="+address)
	m.says("listens")
	return m, address
}

// TestAStoppedCoordinatorHoldsNobody stops a real coordinator while it holds callers: a few small ones, and more than
// the connection can buffer.
func TestAStoppedCoordinatorHoldsNobody(t *testing.T) {
	for name, test := range map[string]struct{ callers, size int }{"few": {3, 10},
		"more than the connection takes": {100, 1 << 17}} {
		t.Run(name, func(t *testing.T) {
			m, address := startMonitor(t)
			start(t, address)
			m.says("started")
			done := make(chan error, 2*test.callers)
			object := []byte(`"` + strings.Repeat("x", test.size) + `"`)
			call := func(name string) {
				go func() { done <- Begin(write(name)).Before(object, nil) }()
			}
			call("web-held")
			m.says("observed")
			m.stop()
			for range test.callers {
				call("web-0")
			}
			began := time.Now()
			for range test.callers + 1 {
				if err := receive(t, "return of a held call", done); err != nil {
					t.Errorf("the caller gets %v", err)
				}
			}
			if took := time.Since(began); took < silence/2 || took > 10*silence {
				t.Errorf("released after %s, want about %s", took, silence)
			}
			if Connected() || Begin(write("web-1")) != nil {
				t.Error("a call is reported to a coordinator that does not answer")
			}

			m.signal(syscall.SIGCONT)
			const why = "the coordinator did not answer for 500ms"
			if got := m.says("missed"); got != why {
				t.Errorf("missed: %s", got)
			}
			if got := m.says("let go"); got != "true "+why {
				t.Errorf("released: %s", got)
			}
			eventually(t, "listening again", Connected)
			call("web-again")
			for m.says("observed") != "web-again" {
			}
			select {
			case <-done:
				t.Error("not held after the coordinator is back")
			case <-time.After(50 * time.Millisecond):
			}
		})
	}
}

func TestRulesArriveWhileTheCoordinatorIsSilent(t *testing.T) {
	m := listen(t, socket(t), podWrites)
	m.limits.Silence = time.Hour
	start(t, m.address)
	s := receive(t, "session", m.sessions)
	session := (*interests)(atomic.LoadPointer(&current)).session
	session.suspend()
	receive(t, "report", s.missed)
	s.configure(2, wire.Rule{Point: Reconcile, Phase: wire.Before})
	if Connected() {
		t.Error("connected to a silent coordinator")
	}
	session.resume()
	if !Listening(Reconcile) || Listening(ControllerWrite) {
		t.Error("the newer rules are not in force")
	}
}

func TestAHookLetsGoAtItsLimit(t *testing.T) {
	m := listen(t, socket(t), podWrites)
	m.limits.Hold = 100 * time.Millisecond
	start(t, m.address)
	s := receive(t, "session", m.sessions)
	for range 3 {
		began := time.Now()
		if err := Begin(write("web-0")).Before(nil, nil); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < m.limits.Hold || took > 50*m.limits.Hold {
			t.Errorf("held for %s", took)
		}
		h := receive(t, "observation", s.arrived)
		a := receive(t, "report", s.abandoned)
		if a.Call != h.Call || a.Phase != wire.Before || !a.LetGo ||
			a.Error != "the coordinator did not release it within 100ms" {
			t.Errorf("%+v of %+v", a, h.Observation)
		}
		h.release()
	}
	if !Connected() {
		t.Error("the session has ended")
	}
}

// TestAStoppedProcessTrustsItsCoordinator: time in which the process itself is stopped does not count as silence.
func TestAStoppedProcessTrustsItsCoordinator(t *testing.T) {
	address := socket(t)
	m, err := real.Listen(real.Config{Address: address, Token: "secret", Limits: wire.Limits{Silence: silence},
		AckTimeout: silence})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.SetRules(context.Background(), map[string][]wire.Rule{"db": {podWrites}})
	c := startChild(t, childController, wire.EnvCoordinator+"="+address, wire.EnvToken+"=secret",
		wire.EnvIdentity+"=db")
	next := func(what string, is func(real.Event) bool) real.Event {
		t.Helper()
		for {
			e := receive(t, what, m.Events())
			e.Release()
			if e.Missed != nil || e.Abandoned != nil {
				t.Fatalf("reported: %+v", e)
			}
			if is(e) {
				return e
			}
		}
	}
	observed := func(e real.Event) bool { return e.Observation != nil }
	for range 2 {
		for range 100 { // by then it answers pings too
			next("observation", observed)
		}
		c.stop()
		if e := next("silence", func(e real.Event) bool { return e.Silent > 0 }); e.Silent != silence {
			t.Errorf("silent for %s", e.Silent)
		}
		c.signal(syscall.SIGCONT)
	}
	for range 100 {
		next("observation", observed)
	}

	// A process that must take new rules meanwhile is disconnected, and reconnects.
	c.stop()
	for len(m.Events()) > 0 {
		(<-m.Events()).Release()
	}
	m.SetRules(context.Background(), map[string][]wire.Rule{"db": {podWrites}})
	e := next("end", func(e real.Event) bool { return e.Ended })
	if e.Lost != "it did not acknowledge its reporting rules: no answer within 500ms" {
		t.Errorf("disconnected: %q", e.Lost)
	}
	c.signal(syscall.SIGCONT)
	next("new session", func(e real.Event) bool { return e.Started })
	next("observation", observed)
}

// TestACoordinatorThatAnswersLateIsTold stops the coordinator before the process connects: the process begins without
// it.
func TestACoordinatorThatAnswersLateIsTold(t *testing.T) {
	m, address := startMonitor(t)
	m.stop()
	began := time.Now()
	start(t, address)
	if took := time.Since(began); took < helloTimeout || Connected() {
		t.Errorf("after %s, connected: %t", took, Connected())
	}
	m.signal(syscall.SIGCONT)
	m.says("started")
	if got, want := m.says("missed"),
		"the coordinator took longer than 5s to answer when the process connected"; got != want {
		t.Errorf("missed: %q", got)
	}
	eventually(t, "listening", Connected)
}
