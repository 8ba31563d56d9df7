// Package exits finds out why a pod's process has exited: what the process says at its end, and whether it used a port,
// a file or a name of this machine instead of its pod's.
package exits

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/trommel-dev/trommel/internal/cluster/dynamic"
	"github.com/trommel-dev/trommel/internal/processnode/address"
	"github.com/trommel-dev/trommel/internal/processnode/volumes"
)

var (
	portTaken   = regexp.MustCompile(`listen (?:tcp|udp)[46]? (\S+): bind: address already in use`)
	noSuchFile  = regexp.MustCompile(`(/[^\s:"']+): no such file or directory`)
	noSuchHost  = regexp.MustCompile(`lookup (\S+?)(?: on \S+)?: no such host`)
	clusterName = regexp.MustCompile(`(?i)\.svc(\.cluster\.local)?\.?$`)
)

// tailBytes is how much of a log's end is searched for the cause.
const tailBytes = 16 << 10

// Process is a process that has exited.
type Process struct {
	Log      string // its file
	LogStart int64  // where its output begins in Log
	Hooked   bool   // its executable has hooks in the standard library
	Mounts   []volumes.Mount
	Address  address.Address // of its pod
	Files    *volumes.Files  // of its container
	// Beginner is the controller that it is of, if none of its processes has done anything yet; otherwise empty.
	Beginner string
}

// MetMachine explains the exit of a process that used this machine's port, file or name instead of its pod's, or did
// not find it on this machine, or that has reached the machine's limits, and how to solve that. It is empty if the end
// of its log mentions nothing of this kind. A process with hooks is affected by the machine only by the limits, if a
// port is in use on all of the machine's addresses, or if the machine has only one loopback address. A controller that
// ends before it has done anything may miss files of its image. Disturbed reports whether a fault may be why it has
// reached limits, or misses files.
func (p Process) MetMachine(log string, disturbed func() bool) string {
	if met := explainLimits(log, limitsNow); met != "" && !disturbed() {
		return met
	}
	met := ""
	if p.Hooked {
		met = explainPort(log, p.Address)
	} else {
		met = explainMachine(log, p.Mounts)
	}
	if met != "" || p.Beginner == "" {
		return met
	}
	if met = explainImage(p.Beginner, log, p.Files); met != "" && disturbed() {
		return ""
	}
	return met
}

// LogEnd returns the end of the log, tailBytes at most; empty if it cannot be read.
func (p Process) LogEnd() string {
	f, err := os.Open(p.Log)
	if err != nil {
		return ""
	}
	defer f.Close()
	start := p.LogStart
	if info, err := f.Stat(); err == nil && info.Size()-start > tailBytes {
		start = info.Size() - tailBytes
	}
	text, err := io.ReadAll(io.NewSectionReader(f, start, tailBytes))
	if err != nil {
		return ""
	}
	return string(text)
}

// noMemory is what Go's runtime says at the beginning of its end when the system gives it no more memory, and no more
// threads, whose stacks are memory. The stacks of all goroutines follow, so it need not be at the log's end. Programs
// without hooks may be in any language.
var (
	noMemory = regexp.MustCompile(`^(fatal error|runtime(/cgo)?): .*(out of memory|cannot allocate memory|newosproc|` +
		`failed to create new OS thread|pthread_create failed)`)
	// In its garbage collection the runtime uses memory that it did not get. In Go's code that would be a panic; in C's
	// code, runtime.cgocall is on top.
	runtimeFault     = regexp.MustCompile(`^SIGSEGV: segmentation violation`)
	runtimeOnTop     = regexp.MustCompile(`^runtime\.(\(\*|[^c]|c[^g])`)
	noMemoryAnywhere = regexp.MustCompile(`(?i)out ?of ?memory|cannot allocate memory|memoryerror|bad_alloc`)
)

// RanOutOfMemory reports whether the process says in its log that it ended for want of memory.
func (p Process) RanOutOfMemory() bool {
	f, err := os.Open(p.Log)
	if err != nil {
		return false
	}
	defer f.Close()
	if _, err := f.Seek(p.LogStart, io.SeekStart); err != nil {
		return false
	}
	says := noMemoryAnywhere
	if p.Hooked {
		says = noMemory
	}
	lines := bufio.NewReader(f)
	// After a fault of the runtime, the line after the first goroutine's is the function on top.
	fault, top := false, false
	for {
		// Of a line that is longer than the buffer each part is looked at by itself.
		line, err := lines.ReadSlice('\n')
		switch {
		case says.Match(line):
			return true
		case p.Hooked && runtimeFault.Match(line):
			fault, top = true, false
		case fault && top:
			if runtimeOnTop.Match(line) {
				return true
			}
			fault = false
		case fault:
			top = bytes.HasPrefix(line, []byte("goroutine "))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return false
		}
	}
}

// ReadMessage reads a termination message, of which a kubelet takes 4096 bytes. There may be none.
func ReadMessage(file string) string {
	const longest = 4096
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, longest))
	if err != nil {
		return ""
	}
	return string(text)
}

// MessageFromLog is what a kubelet makes of a log with the policy FallbackToLogsOnError: its last 80 lines, 2048
// bytes at most.
func MessageFromLog(log string) string {
	lines := strings.Split(log, "\n")
	log = strings.Join(lines[max(len(lines)-80, 0):], "\n")
	return log[max(len(log)-2048, 0):]
}

// explainPort is for a process with hooks. It distinguishes a port that the process has opened twice, which is its own
// bug, from one that is in use on the machine.
func explainPort(log string, pod address.Address) string {
	m := portTaken.FindStringSubmatch(log)
	if m == nil {
		return ""
	}
	if !pod.Own() {
		return fmt.Sprintf("port %s is already in use, perhaps by another run: this machine has only one loopback "+
			"address, which all pods share. Give the controller another port with `args:` or `env:`", m[1])
	}
	_, port, err := net.SplitHostPort(m[1])
	if err != nil {
		return ""
	}
	// No pod has this address.
	nobody := pod.IP.As4()
	nobody[3] = 1
	listener, err := net.Listen("tcp4", net.JoinHostPort(netip.AddrFrom4(nobody).String(), port))
	if err == nil {
		_ = listener.Close()
		return ""
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return ""
	}
	return fmt.Sprintf("port %s is already in use: a program outside this run listens on it on all addresses of "+
		"this machine, including the pod's. Stop that program, make it listen on 127.0.0.1 only, or give the "+
		"controller another port with `args:` or `env:`",
		m[1])
}

func explainMachine(log string, mounts []volumes.Mount) string {
	const why = "the executable has no hooks for its pod's files, address and names, so it uses this machine's: %s. " +
		"Build it with `build:`, or %s"
	if m := portTaken.FindStringSubmatch(log); m != nil {
		return fmt.Sprintf(why, "port "+m[1]+" is already in use, perhaps by another run",
			"give it another port with `args:` or `env:`")
	}
	for _, m := range noSuchFile.FindAllStringSubmatch(log, -1) {
		path := filepath.Clean(m[1])
		switch {
		case strings.HasPrefix(path, volumes.ServiceAccountMount):
			return fmt.Sprintf(why, path+" exists in the pod but not on this machine",
				"make it take its configuration from KUBECONFIG")
		default:
			for _, mount := range mounts {
				if path == mount.Path || strings.HasPrefix(path, mount.Path+"/") {
					return fmt.Sprintf(why,
						path+" exists in the pod below "+mount.Path+" but not on this machine",
						"give it the path with `args:` or `env:`, where mount paths are replaced by their paths on "+
							"this machine")
				}
			}
		}
	}
	for _, m := range noSuchHost.FindAllStringSubmatch(log, -1) {
		if clusterName.MatchString(m[1]) {
			return fmt.Sprintf(why, "the name "+m[1]+" exists in the cluster but not on this machine",
				"give it a reachable address with `args:` or `env:`")
		}
	}
	return ""
}

// MissingLoader returns an error if a program is linked with libraries of a machine unlike this one.
func MissingLoader(path string) error {
	loader, err := dynamic.Loader(path)
	if err != nil || loader == "" {
		return nil //nolint:nilerr // then something else is wrong with it
	}
	if _, err := os.Stat(loader); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("it is linked dynamically, and this machine has no %s: build it with CGO_ENABLED=0", loader)
	}
	return nil
}
