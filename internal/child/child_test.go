package child

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// envHelper makes the test executable start children and wait. With envAtOnce it is killed when it has started them,
// before it reports to the guard.
const (
	envHelper = "TROMMEL_TEST_CHILD_HELPER"
	envAtOnce = "TROMMEL_TEST_CHILD_AT_ONCE"
)

func TestMain(m *testing.M) {
	if os.Getenv(envHelper) != "" {
		helper()
	}
	goleak.VerifyTestMain(m)
}

// helper starts a shell with a child process, writes their process IDs and waits to be killed.
func helper() {
	file := os.Getenv(envHelper)
	out, err := os.Create(file)
	if err != nil {
		panic(err)
	}
	if os.Getenv(envAtOnce) != "" {
		afterFork = func() {
			for size := int64(0); size == 0; time.Sleep(time.Millisecond) {
				if info, err := out.Stat(); err == nil {
					size = info.Size()
				}
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	p, err := Start(&exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", "sleep 1000 & echo $$ $!; wait"},
		Stdout: out})
	if err != nil {
		panic(err)
	}
	<-p.Done()
	os.Exit(0)
}

func sh(script string) *exec.Cmd {
	return &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: os.Environ()}
}

func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		script string
		want   int
	}{
		{"exit 0", 0},
		{"exit 7", 7},
		{"kill -9 $$", 137},
		{"kill -TERM $$", 143},
	} {
		p, err := Start(sh(tt.script))
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if p.ExitCode() != tt.want {
			t.Errorf("%s: exit code %d, want %d", tt.script, p.ExitCode(), tt.want)
		}
	}
}

// Run is exec.Cmd.Run for what must end with this process.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, tt := range []struct {
		script, stdout, err string
		cancel              bool
	}{
		{script: "echo out; echo bad >&2", stdout: "out\nbad\n"},
		{script: "echo out; exit 7", stdout: "out\n", err: "exit status 7"},
		{script: "kill -9 $$", err: "signal: killed"},
		// Run returns although a process that the script has started keeps the output open.
		{script: "sleep 1000 & echo out", stdout: "out\n"},
		{script: "trap '' INT; sleep 1000", err: "signal: terminated", cancel: true},
	} {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, "sh", "-c", tt.script)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, 5*time.Second
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
		if tt.cancel {
			time.AfterFunc(50*time.Millisecond, cancel)
		}
		began := time.Now()
		err := Run(cmd)
		if text := fmt.Sprint(err); out.String() != tt.stdout || (err != nil || tt.err != "") && text != tt.err {
			t.Errorf("%s: %q, %v", tt.script, &out, err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("%s: took %s", tt.script, took)
		}
	}
	if err := Run(exec.Command("no-such-command")); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestStartError(t *testing.T) {
	if _, err := Start(&exec.Cmd{Path: "/nonexistent"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestKillEndsGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	p, err := Start(
		sh("trap '' TERM; sleep 1000 & echo $$ $! >" + file + ".new; mv " + file + ".new " + file +
			"; while :; do wait; done"))
	if err != nil {
		t.Fatal(err)
	}
	pids := awaitPIDs(t, file, 2)
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.Done():
		t.Fatal("the process did not ignore SIGTERM")
	case <-time.After(50 * time.Millisecond):
	}
	p.Kill()
	awaitGone(t, pids)
	p.Signal(syscall.SIGKILL) // no-op after the end
}

// When a child exits, its own children are killed.
func TestEndTakesGroupAlong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	p, err := Start(sh("sleep 1000 & echo $$ $! >" + file))
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	awaitGone(t, awaitPIDs(t, file, 2))
}

// startParent starts this executable with a child, which has a child, and returns the process IDs of both children.
func startParent(t *testing.T) (parent *exec.Cmd, pids []int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pids")
	parent = exec.Command(self)
	parent.Env = append(os.Environ(), envHelper+"="+file)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	return parent, awaitPIDs(t, file, 2)
}

func TestParentKilled(t *testing.T) {
	parent, pids := startParent(t)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	awaitGone(t, pids)
}

// Regression: a child's descendants were left if this process was killed before it reported the child to the guard.
func TestParentKilledAtOnce(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip(err)
	}
	t.Setenv(envAtOnce, "true")
	parent, pids := startParent(t)
	_ = parent.Wait()
	awaitGone(t, pids)
}

func TestWatchParent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	cmd := sh(fmt.Sprintf("echo $%s > %s; [ -p /dev/fd/$%s ]", EnvParentFD, file, EnvParentFD))
	if err := WatchParent(cmd); err != nil {
		t.Fatal(err)
	}
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if text, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(text)) != "3" || p.ExitCode() != 0 {
		t.Errorf("descriptor %q (%v), exit code %d", text, err, p.ExitCode())
	}
}

// A frozen process does nothing until it is thawed, and neither do its children. It can be killed all the same.
func TestFreeze(t *testing.T) {
	file := filepath.Join(t.TempDir(), "count")
	size := func() int64 {
		info, err := os.Stat(file)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	grows := func(from int64) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); size() <= from; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the process does nothing")
			}
		}
	}
	p, err := Start(sh("while :; do echo x >>" + file + "; done & while :; do echo y >>" + file + "; done"))
	if err != nil {
		t.Fatal(err)
	}
	grows(0)
	for range 3 {
		p.Freeze()
		p.Freeze() // no-op
		if state := stateOf(t, p.PID()); !strings.HasPrefix(state, "T") {
			t.Fatalf("the process is in state %s", state)
		}
		// Its child has got the signal too, and stops a moment later.
		time.Sleep(20 * time.Millisecond)
		before := size()
		time.Sleep(50 * time.Millisecond)
		if after := size(); after != before {
			t.Fatalf("it has written %d more bytes", after-before)
		}
		p.Thaw()
		grows(before)
	}
	p.Freeze()
	p.Kill()
	if p.ExitCode() != 137 {
		t.Errorf("exit code %d", p.ExitCode())
	}
	p.Freeze() // no-ops after the end
	p.Thaw()
}

// The end of this process ends frozen children too.
func TestParentKilledWhileAChildIsFrozen(t *testing.T) {
	parent, pids := startParent(t)
	if err := syscall.Kill(-pids[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	awaitGone(t, pids)
}

func TestManyAtOnce(t *testing.T) {
	var all []*Process
	for i := range 30 {
		p, err := Start(sh("exit " + strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	for i, p := range all {
		<-p.Done()
		if p.ExitCode() != i {
			t.Errorf("exit code %d, want %d", p.ExitCode(), i)
		}
	}
}

func awaitPIDs(t *testing.T, file string, n int) []int {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		if f, err := os.Open(file); err == nil {
			var pids []int
			words := bufio.NewScanner(f)
			words.Split(bufio.ScanWords)
			for words.Scan() {
				pid, err := strconv.Atoi(words.Text())
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, pid)
			}
			f.Close()
			if len(pids) == n {
				return pids
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the child did not write its process IDs")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func awaitGone(t *testing.T, pids []int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for _, pid := range pids {
		for alive(pid) {
			if time.Now().After(deadline) {
				t.Fatalf("process %d is still running", pid)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// alive ignores zombie processes, which another process has to reap.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		_, rest, _ := strings.Cut(string(text), ") ")
		return !strings.HasPrefix(rest, "Z")
	}
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}

// stateOf is the state that ps shows of a process: T if it is stopped.
func stateOf(t *testing.T, pid int) string {
	t.Helper()
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
