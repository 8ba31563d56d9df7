package points

import (
	"bytes"
	"fmt"
	goversion "go/version"
	"os"
	"path/filepath"
	"sync"
)

// ClockMarker is contained in executables whose runtime is patched: such a process takes the time from its run's clock,
// and signals to the clock's keeper when it is idle (package internal/clock).
const ClockMarker = "trommel.dev/clock=v2"

// oldestClockGo is the first version of Go whose runtime the points of the clock are known to fit.
const oldestClockGo = "go1.26"

// replaces is the point that replaces an expression in a function.
func replaces(file, receiver, function, expression, by string) standardPoint {
	return standardPoint{point: point{
		module: Standard, file: file, receiver: receiver, function: function,
		insert: insertion{do: expression, replaces: by},
	}}
}

func onAMD64(_, goarch string) bool { return goarch == "amd64" }
func onARM64(_, goarch string) bool { return goarch == "arm64" }

// clockPoints are the points of the run's clock. What they call is in the template standard_clock.
var clockPoints = []standardPoint{
	replaces("runtime/time_nofake.go", "", "nanotime", "nanotime1()", "trommelNano()"),
	{point: point{
		module: Standard, file: "runtime/timeasm.go", function: "time_now",
		insert: insertion{body: "return trommelNow()"},
	}, system: onAMD64},
	{point: replaces("runtime/timestub.go", "", "time_now", "walltime()", "trommelWallTime()").point, system: onARM64},
	{point: point{
		module: Standard, file: "runtime/proc.go", function: "main", insert: insertion{enter: "trommelStart()"},
	}},
	replaces("runtime/proc.go", "", "pidleput", "sched.npidle.Add(1)", "trommelIdle(sched.npidle.Add(1))"),
	replaces("runtime/proc.go", "", "pidleget", "sched.npidle.Add(-1)", "trommelBusy(sched.npidle.Add(-1))"),
	{point: point{
		module: Standard, file: "runtime/netpoll_epoll.go", function: "netpoll",
		insert: insertion{enter: "if epfd != -1 { {{.Param 0}} = trommelPoll({{.Param 0}}) }"},
	}},
	{point: point{
		module: Standard, file: "runtime/mgcscavenge.go", receiver: "*scavengerState", function: "ready",
		insert: insertion{enter: "if trommelOwn != nil { return }"},
	}},
	replaces("runtime/cgocall.go", "", "cgocall", "entersyscall()", "trommelCall(1); entersyscall()"),
	replaces("runtime/cgocall.go", "", "cgocall", "exitsyscall()", "exitsyscall(); trommelCall(-1)"),
	replaces("syscall/syscall_linux.go", "", "Syscall", "runtime_entersyscall()",
		"trommelEnterSyscall({{.Param 0}}); runtime_entersyscall()"),
	replaces("syscall/syscall_linux.go", "", "Syscall", "runtime_exitsyscall()",
		"runtime_exitsyscall(); trommelExitSyscall({{.Param 0}})"),
	replaces("syscall/syscall_linux.go", "", "Syscall6", "runtime_entersyscall()",
		"trommelEnterSyscall({{.Param 0}}); runtime_entersyscall()"),
	replaces("syscall/syscall_linux.go", "", "Syscall6", "runtime_exitsyscall()",
		"runtime_exitsyscall(); trommelExitSyscall({{.Param 0}})"),
}

var clockHelpers = []standardHelper{
	{dir: "runtime", template: "standard_clock.go.tmpl", name: "zz_trommel_clock.go", needs: []string{
		"allp", "sched", "gomaxprocs", "maxWhen", "forcegcperiod", "netpollGenericInit", "netpollEventFd", "epfd",
		"mmap", "gogetenv", "nanotime",
	}},
	{dir: "runtime", template: "standard_now.go.tmpl", name: "zz_trommel_now.go", system: onAMD64},
	{dir: "runtime", template: "standard_walltime.go.tmpl", name: "zz_trommel_walltime.go", system: onARM64},
	{dir: "syscall", template: "standard_clockcalls.go.tmpl", name: "zz_trommel_clock.go"},
}

// On amd64 the function time.now is written in assembly. It gets another name, so that it can be called.
const (
	realNow     = "trommelRealNow"
	nowAssembly = "runtime/time_linux_amd64.s"
	nowSymbol   = "TEXT time·now<ABIInternal>"
)

// hasClock reports whether the runtime of this Go installation can be given the run's clock.
func (g *GoRoot) hasClock() bool {
	return !g.noClock && g.GOOS == "linux" && (g.GOARCH == "amd64" || g.GOARCH == "arm64") &&
		(!goversion.IsValid(g.Version) || goversion.Compare(g.Version, oldestClockGo) >= 0)
}

// tryClock finds out whether the points of the clock fit. A runtime that they do not fit has no clock: its programs run
// in real time, and nothing else is missing.
func (g *GoRoot) tryClock() {
	if !g.hasClock() {
		return
	}
	if _, err := g.applyAll(map[string]*source{}, clockPoints); err != nil {
		g.noClock = true
		return
	}
	for _, h := range clockHelpers {
		if err := g.provides(h); err != nil {
			g.noClock = true
			return
		}
	}
	_, err := g.assembly()
	g.noClock = err != nil
}

// assembly returns the patched files that are not Go's, by name.
func (g *GoRoot) assembly() (map[string][]byte, error) {
	if !g.hasClock() || g.GOARCH != "amd64" {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(g.Dir, "src", filepath.FromSlash(nowAssembly)))
	if err != nil {
		return nil, err
	}
	if bytes.Count(text, []byte(nowSymbol)) != 1 {
		return nil, &NotFoundError{Module: Standard, Version: g.Version, File: nowAssembly, Function: "time·now",
			Reason: "no such function", Dir: g.Dir}
	}
	return map[string][]byte{nowAssembly: bytes.Replace(text, []byte(nowSymbol),
		[]byte("TEXT ·"+realNow+"<ABIInternal>"), 1)}, nil
}

// HasClock reports whether an executable was built such that it can be given a run's clock. It knows files that have
// not changed.
func HasClock(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	key := fmt.Sprint(path, info.Size(), info.ModTime().UnixNano())
	if has, ok := clocks.Load(key); ok {
		return has.(bool), nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	// Trommel itself contains the source that contains the marker.
	has := bytes.Contains(text, []byte(ClockMarker)) && !bytes.Contains(text, []byte(`TrommelClock = "trommel.dev`))
	clocks.Store(key, has)
	return has, nil
}

var clocks sync.Map // what HasClock knows: by path, size and time of change
