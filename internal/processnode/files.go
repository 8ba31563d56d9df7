package processnode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// files maps a container's paths to paths on this machine. Paths that it does not contain are the machine's own.
type files struct {
	list []mount // longest paths first
	root string  // directory for parents of mounts that the machine does not have
}

// add replaces an earlier entry for the same path.
func (f *files) add(path, local string) {
	f.list = slices.DeleteFunc(f.list, func(m mount) bool { return m.path == path })
	f.list = append(f.list, mount{path, local})
	slices.SortStableFunc(f.list, func(a, b mount) int { return len(b.path) - len(a.path) })
}

// local returns where a clean absolute path is on this machine, and whether that differs from the path.
func (f *files) local(path string) (string, bool) {
	for _, m := range f.list {
		if rest, ok := strings.CutPrefix(path, m.path); ok && (rest == "" || rest[0] == '/') {
			return m.local + rest, m.local != m.path
		}
	}
	return path, false
}

// mount adds a path that the pod's spec names, and the path to it: parents that the machine does not have, and the
// path's real name if a parent is a symbolic link on this machine, as /var/run often is.
func (f *files) mount(path, local string) error {
	parent := filepath.Dir(path)
	existing, names := f.existing(parent)
	rest, err := filepath.Rel(existing, path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, moved := f.local(name); !moved && parent != existing {
			first, _, _ := strings.Cut(rest, "/")
			missing := filepath.Join(name, first)
			f.add(missing, filepath.Join(f.root, missing))
		}
		f.add(filepath.Join(name, rest), local)
	}
	return nil
}

// existing returns the longest part of a path that exists, and its names: itself and, if it is a symbolic link on this
// machine, the real one.
func (f *files) existing(path string) (existing string, names []string) {
	existing = path
	for existing != "/" {
		if _, err := os.Stat(existing); err == nil {
			break
		}
		if _, ok := f.local(existing); ok {
			break
		}
		existing = filepath.Dir(existing)
	}
	names = []string{existing}
	if _, moved := f.local(existing); !moved {
		if real, err := filepath.EvalSymlinks(existing); err == nil && real != existing {
			names = append(names, real)
		}
	}
	return existing, names
}

// names returns the paths by which a program may open a file: that path and, if a part of it is a symbolic link on this
// machine, the real one.
func (f *files) names(path string) []string {
	existing, names := f.existing(path)
	for i := range names {
		names[i] = filepath.Join(names[i], strings.TrimPrefix(path, existing))
	}
	return names
}

// makeMountPoints creates the entries that a listing of a mount's parent shows, if that parent is not the machine's
// own.
func (f *files) makeMountPoints() error {
	for _, m := range slices.Backward(f.list) {
		if m.path == m.local || strings.HasPrefix(m.local, f.root+"/") {
			continue
		}
		point, moved := f.local(filepath.Dir(m.path))
		if !moved {
			continue
		}
		if err := os.MkdirAll(point, 0o700); err != nil {
			return err
		}
		point = filepath.Join(point, filepath.Base(m.path))
		if _, err := os.Lstat(point); err == nil {
			continue
		}
		if info, err := os.Stat(m.local); err == nil && !info.IsDir() {
			if err := os.WriteFile(point, nil, 0o600); err != nil {
				return err
			}
		} else if err := os.Mkdir(point, 0o700); err != nil {
			return err
		}
	}
	for _, m := range f.list {
		if strings.HasPrefix(m.local, f.root+"/") {
			if err := os.MkdirAll(m.local, 0o700); err != nil {
				return err
			}
		}
	}
	return nil
}

// moved lists the paths whose files are elsewhere on this machine, longest first.
func (f *files) moved() []mount {
	return slices.DeleteFunc(slices.Clone(f.list), func(m mount) bool { return m.path == m.local })
}

// environment returns the value of envPodFiles, which the hooks in the standard library read.
func (f *files) environment() string {
	var b strings.Builder
	for _, m := range f.list {
		if strings.ContainsAny(m.path+m.local, "\t\n") {
			continue
		}
		fmt.Fprintf(&b, "%s\t%s\n", m.path, m.local)
	}
	return b.String()
}

// Environment variables that the hooks in the standard library read, see package instrumentation.
const (
	envPodFiles    = "TROMMEL_POD_FILES"
	envPodHostname = "TROMMEL_POD_HOSTNAME"
	envPodIP       = "TROMMEL_POD_IP"
	envPodLoopback = "TROMMEL_POD_LOOPBACK"
	envPodID       = "TROMMEL_POD_ID"
	envPodAgent    = "TROMMEL_POD_AGENT"
	envPodFaults   = "TROMMEL_POD_FAULTS"
)

// podMarker is in executables with these hooks, see instrumentation.StandardMarker, and faultsMarker in those that heed
// faults, see instrumentation.FaultsMarker. They are concatenated here, because otherwise this program would contain
// them too.
var (
	podMarker    = strings.Join([]string{"trommel.dev/pod-environment", "v1"}, "=")
	faultsMarker = strings.Join([]string{"trommel.dev/pod-faults", "v1"}, "=")
)

// hooked caches which executables have hooks in their standard library: those that contain the marker.
type hooked struct {
	marker string

	mu    sync.Mutex
	known map[string]bool // by path, size and time of change
}

func (h *hooked) has(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	if own, err := ownExecutable(); err == nil && os.SameFile(own, info) {
		return false, nil // it contains the marker because it looks for it
	}
	id := fmt.Sprintf("%s %d %d", path, info.Size(), info.ModTime().UnixNano())
	h.mu.Lock()
	defer h.mu.Unlock()
	if yes, ok := h.known[id]; ok {
		return yes, nil
	}
	yes, err := contains(path, []byte(h.marker))
	if err == nil {
		h.known[id] = yes
	}
	return yes, err
}

// ownExecutable describes the file of this program, which chaos pods also run.
var ownExecutable = sync.OnceValues(func() (os.FileInfo, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.Stat(path)
})

// contains reports whether a file contains the bytes.
func contains(path string, want []byte) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	buffer := make([]byte, 1<<20)
	kept := 0
	for {
		n, err := io.ReadFull(f, buffer[kept:])
		if bytes.Contains(buffer[:kept+n], want) {
			return true, nil
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		kept = copy(buffer, buffer[kept+n-len(want)+1:kept+n])
	}
}
