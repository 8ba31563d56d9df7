package points

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/buildcache"
	"github.com/trommel-dev/trommel/internal/clock/keeper"
	"github.com/trommel-dev/trommel/internal/testing/cputime"
)

// clockProgram builds testdata/clock, with flags of go build or without, so that it has the run's clock.
func clockProgram(t testing.TB, flags ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "clock")
	goBuild(t, "clock", runtime.GOARCH, binary, append([]string{clockOverlay(t, runtime.GOARCH)}, flags...)...)
	return binary
}

// clockOverlay returns the flag of go build that gives programs for a processor the run's clock.
func clockOverlay(t testing.TB, goarch string) string {
	t.Helper()
	g := testGoRoot(t, runtime.GOOS, goarch)
	if !g.hasClock() {
		t.Skipf("%s on %s/%s cannot have the run's clock", g.Version, g.GOOS, g.GOARCH)
	}
	c, err := buildcache.Open("")
	if err != nil {
		t.Fatal(err)
	}
	overlay, _, err := g.Overlay(c)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return "-overlay=" + file
}

// goBuild builds a program of testdata with these flags.
func goBuild(t testing.TB, program, goarch, binary string, flags ...string) {
	t.Helper()
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", binary, ".")...)
	cmd.Dir = filepath.Join("testdata", program)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOARCH="+goarch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// BenchmarkClock measures what the clock costs a process, in nanoseconds: reading the time, a system call, and a sleep
// of a microsecond, without the patched lines, with them but without a clock, and with one that stands still.
func BenchmarkClock(b *testing.B) {
	patched := clockProgram(b)
	plain := filepath.Join(b.TempDir(), "plain")
	goBuild(b, "clock", runtime.GOARCH, plain)
	dir, err := os.MkdirTemp("", "clock")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	k, err := keeper.Start(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer k.Close()
	for _, of := range []struct {
		name, binary string
		env          []string
	}{{"plain", plain, nil}, {"patched", patched, nil}, {"clock", patched, k.Environ()}} {
		b.Run(of.name, func(b *testing.B) {
			for b.Loop() {
				cmd := exec.Command(of.binary, "cost")
				cmd.Env = append(os.Environ(), of.env...)
				out, err := cmd.Output()
				if err != nil {
					b.Fatal(err)
				}
				for line := range strings.Lines(string(out)) {
					var name string
					var ns float64
					if _, err := fmt.Sscan(line, &name, &ns); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(ns, "ns/"+name)
				}
			}
		})
	}
}

// timedRun is a set of processes that have one clock.
type timedRun struct {
	*testing.T
	binary string
	keeper *keeper.Keeper
	dir    string
}

func newTimedRun(t *testing.T, binary string) *timedRun {
	dir, err := os.MkdirTemp("", "clock") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	k, err := keeper.Start(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k.Close()
		os.RemoveAll(dir)
	})
	return &timedRun{t, binary, k, dir}
}

// timedProcess is one of them.
type timedProcess struct {
	*exec.Cmd
	out  bytes.Buffer
	done chan struct{}
	err  error
}

func (p *timedProcess) PID() int              { return p.Process.Pid }
func (p *timedProcess) Done() <-chan struct{} { return p.done }

func (r *timedRun) start(args ...string) *timedProcess {
	r.Helper()
	p, err := keeper.Adopt(r.keeper, func() (*timedProcess, error) {
		p := &timedProcess{Cmd: exec.Command(r.binary, args...), done: make(chan struct{})}
		p.Env = append(os.Environ(), r.keeper.Environ()...)
		p.Stdout, p.Stderr = &p.out, &p.out
		if err := p.Start(); err != nil {
			return nil, err
		}
		go func() {
			p.err = p.Wait()
			close(p.done)
		}()
		return p, nil
	})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
	})
	return p
}

// end waits for the end of processes; a long time would be real time.
func (r *timedRun) end(processes ...*timedProcess) {
	r.Helper()
	deadline := time.After(30 * time.Second)
	for _, p := range processes {
		select {
		case <-p.done:
			if p.err != nil {
				r.Fatalf("%s: %v\n%s", p.Args[1:], p.err, p.out.String())
			}
		case <-deadline:
			r.Fatalf("%s does not end; the keeper sees %+v\n%s", p.Args[1:], r.keeper.State(), p.out.String())
		}
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	binary := clockProgram(t)
	run := func(name string, f func(r *timedRun)) {
		t.Run(name, func(t *testing.T) {
			r := newTimedRun(t, binary)
			f(r)
		})
	}

	// Timers of several processes fire in their order, and none is late.
	run("order", func(r *timedRun) {
		begin := r.keeper.Clock().Now()
		r.keeper.Rest() // so that they begin together
		all := []*timedProcess{
			r.start("sleep", "1h", "1h", "1h"), r.start("sleep", "90m", "20m"), r.start("sleep", "61m", "2h", "720h"),
		}
		r.keeper.Run()
		r.end(all...)
		for _, p := range all {
			due := begin
			for line := range strings.Lines(p.out.String()) {
				var text string
				var at int64
				if _, err := fmt.Sscan(line, &text, &at); err != nil {
					t.Fatal(err)
				}
				d, err := time.ParseDuration(text)
				if err != nil {
					t.Fatal(err)
				}
				due = due.Add(d)
				if late := time.Unix(0, at).Sub(due); late < 0 || late > 5*time.Second {
					t.Errorf("%s: %s late after %s", p.Args[1:], late, text)
				}
			}
		}
	})

	// A request in flight, and work for it, is not overtaken by the clock.
	run("requests", func(r *timedRun) {
		socket := filepath.Join(r.dir, "server")
		server := r.start("serve", socket)
		for _, err := os.Stat(socket); err != nil; _, err = os.Stat(socket) {
			time.Sleep(time.Millisecond)
		}
		r.keeper.Run()
		r.end(r.start("ask", socket), r.start("ask", socket), r.start("ask", socket))
		_ = server.Process.Kill()
	})

	run("a blocking read", func(r *timedRun) {
		r.keeper.Run()
		r.end(r.start("wait"))
	})

	// A program that does not have the clock lives in real time, and so does everything else meanwhile.
	run("a child without the clock", func(r *timedRun) {
		r.keeper.Run()
		begin := time.Now()
		r.end(r.start("child"))
		if took := time.Since(begin); took < 300*time.Millisecond {
			t.Errorf("the child had %s", took)
		}
		if moved := r.keeper.State().Moved; moved > time.Minute {
			t.Errorf("the clock has moved by %s beside the child", moved)
		}
	})

	run("another program in the process", func(r *timedRun) {
		r.keeper.Run()
		r.end(r.start("exec"))
	})

	// The clock does not wait for a process that was stopped by a signal. When it goes on, its time is the others'.
	run("a stopped process", func(r *timedRun) {
		stopped := r.start("sleep", "1h")
		for r.keeper.State().Processes < 1 {
			time.Sleep(time.Millisecond)
		}
		if err := syscall.Kill(stopped.PID(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		r.keeper.Run()
		r.end(r.start("sleep", "2h", "10m"))
		if err := syscall.Kill(stopped.PID(), syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		r.end(stopped)
	})

	// Nor for what others have sent it, which it cannot take.
	run("a stopped process that is asked", func(r *timedRun) {
		socket := filepath.Join(r.dir, "server")
		server := r.start("serve", socket)
		for _, err := os.Stat(socket); err != nil; _, err = os.Stat(socket) {
			time.Sleep(time.Millisecond)
		}
		for !r.keeper.State().Idle {
			time.Sleep(time.Millisecond)
		}
		if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		r.keeper.Run()
		r.end(r.start("sleep", "2h", "10m"))
		if err := syscall.Kill(server.PID(), syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		r.end(r.start("ask", socket))
	})

	run("our own timers", func(r *timedRun) {
		p := r.start("sleep", "720h")
		c := r.keeper.Clock()
		begin := c.Now()
		r.keeper.Run()
		<-c.After(time.Hour)
		if passed := c.Since(begin); passed < time.Hour || passed > time.Hour+5*time.Second {
			t.Errorf("an hour took %s", passed)
		}
		r.end(p)
		release := c.Hold()
		real := time.Now()
		<-c.After(100 * time.Millisecond)
		if took := time.Since(real); took < 100*time.Millisecond {
			t.Errorf("while the clock was held, 100 ms took %s", took)
		}
		release()
	})

	// A wrong wall clock is that of one process, until it is right again. Its timers are not concerned, nor is the time
	// that it measures, nor any other process.
	run("a wrong wall clock", func(r *timedRun) {
		const wrong = -40 * 24 * time.Hour
		begin := r.keeper.Clock().Now()
		all := []*timedProcess{r.start("dates", "1h", "1h", "1h"), r.start("dates", "1h", "1h", "1h")}
		for !r.keeper.State().Idle || r.keeper.State().Processes < len(all) {
			time.Sleep(time.Millisecond)
		}
		skewed := all[0]
		r.keeper.Skew(skewed.PID(), wrong)
		right := r.keeper.Clock().After(150 * time.Minute)
		r.keeper.Run()
		<-right
		r.keeper.Skew(skewed.PID(), 0)
		r.end(all...)
		for _, p := range all {
			for i, want := range []time.Duration{0, wrong, wrong, 0} {
				if p != skewed {
					want = 0
				}
				var wall int64
				var passed time.Duration
				if _, err := fmt.Fscan(&p.out, &wall, &passed); err != nil {
					t.Fatal(err)
				}
				due := time.Duration(i) * time.Hour
				if ahead := time.Unix(0, wall).Sub(begin.Add(due)) - want; ahead < 0 || ahead > 5*time.Second {
					t.Errorf("process %d, after %s: the wall clock is %s ahead, want %s", p.PID(), due, ahead+want,
						want)
				}
				if late := passed - due; late < 0 || late > 5*time.Second {
					t.Errorf("process %d: %s seemed to be %s", p.PID(), due, passed)
				}
			}
		}
	})

	run("a wrong wall clock of a process that starts", func(r *timedRun) {
		p := r.start("dates", "1h")
		begin := r.keeper.Clock().Now()
		r.keeper.Skew(p.PID(), time.Hour) // it need not have joined
		r.keeper.Run()
		r.end(p)
		var first, second int64
		var passed time.Duration
		if _, err := fmt.Fscan(&p.out, &first, &passed, &second, &passed); err != nil {
			t.Fatal(err)
		}
		if ahead := time.Unix(0, second).Sub(begin.Add(passed)); ahead < time.Hour-5*time.Second ||
			ahead > time.Hour+5*time.Second {
			t.Errorf("the wall clock is %s ahead", ahead)
		}
	})

	// What the kernel does for this process, such as writing to a slow disk, is work.
	run("our own system calls", func(r *timedRun) {
		random, err := syscall.Open("/dev/urandom", syscall.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(random)
		r.start("sleep", "720h")
		r.keeper.Run()
		c := r.keeper.Clock()
		<-c.After(time.Hour)
		data := make([]byte, 128<<20)
		before := c.Offset()
		for left := data; len(left) > 0; {
			n, err := syscall.Read(random, left)
			if err != nil {
				t.Fatal(err)
			}
			left = left[n:]
		}
		if moved := c.Offset() - before; moved > 0 {
			t.Errorf("the clock has moved by %s during a system call of this process", moved)
		}
	})

	// Without the keeper, processes go on in real time.
	run("the keeper ends", func(r *timedRun) {
		p := r.start("sleep", "50ms", "50ms")
		r.keeper.Jump(time.Hour)
		r.keeper.Rest()
		r.end(p)
	})

	// The clock of a run goes slower while others have the processors.
	run("too few processors", func(r *timedRun) {
		r.keeper.Run()
		r.keeper.Clock().Pace(true)
		for range 4 * runtime.NumCPU() {
			cputime.Burn(r)
		}
		began := time.Now()
		p := r.start("compute", "500ms")
		r.end(p)
		took := time.Since(began)
		ns, err := strconv.ParseInt(strings.TrimSpace(p.out.String()), 10, 64)
		if passed := time.Duration(ns); err != nil || passed > took*2/3 {
			r.Errorf("%s of %s have passed, %v", passed, took, err)
		}
		// That ends with the lack.
		began, now := time.Now(), r.keeper.Clock().Now()
		r.keeper.Rest()
		time.Sleep(500 * time.Millisecond)
		if passed := r.keeper.Clock().Since(now); passed < time.Since(began)*9/10 {
			r.Errorf("%s of %s have passed at rest", passed, time.Since(began))
		}
	})

	run("many at once", func(r *timedRun) {
		r.keeper.Run()
		var all sync.WaitGroup
		for range 8 {
			p := r.start("tick")
			all.Go(func() { <-p.done })
		}
		all.Wait()
	})
}

// Race detector and cgo add calls to the functions that are patched.
func TestClockBuildsWithRaceDetector(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the standard library once more")
	}
	r := newTimedRun(t, clockProgram(t, "-race"))
	r.keeper.Run()
	r.end(r.start("sleep", "1h"), r.start("wait"), r.start("child"))
}

// The points of each processor fit together with its assembly.
func TestClockBuildsForOtherProcessor(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the standard library once more")
	}
	goarch := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	if goarch == "" {
		t.Skip("no clock on this processor")
	}
	binary := filepath.Join(t.TempDir(), "clock")
	goBuild(t, "clock", goarch, binary, clockOverlay(t, goarch))
	if has, err := HasClock(binary); err != nil || !has {
		t.Errorf("has a clock: %t, %v", has, err)
	}
}

// Go code of a program with C code lives by the run's clock, its C code in real time; while a C function runs, time is
// real for everybody.
func TestClockOfCgoProgram(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	binary := filepath.Join(t.TempDir(), "clock")
	flag := clockOverlay(t, runtime.GOARCH)
	goBuild(t, "cgoclock", runtime.GOARCH, binary, flag)
	r := newTimedRun(t, binary)
	other := newTimedRun(t, clockProgram(t))
	other.keeper = r.keeper
	other.start("dates", "24h", "24h", "24h") // could move the clock at any time
	p := r.start()
	r.keeper.Run()
	r.end(p)
	var slept, inC, cSlept time.Duration
	if _, err := fmt.Fscan(&p.out, &slept, &cSlept, &inC); err != nil {
		t.Fatal(err)
	}
	if slept < time.Hour || slept > time.Hour+5*time.Second {
		t.Errorf("an hour of Go code was %s", slept)
	}
	if cSlept < 0 || cSlept > time.Minute {
		t.Errorf("meanwhile %s passed for C code", cSlept)
	}
	if inC < 300*time.Millisecond || inC > time.Minute {
		t.Errorf("300 ms in a C function were %s for Go code", inC)
	}
}
