package processnode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

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

// podMarker is in executables with these hooks, see points.StandardMarker, and faultsMarker in those that heed
// faults, see points.FaultsMarker. They are concatenated here, because otherwise this program would contain
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

func newHooked(marker string) *hooked { return &hooked{marker: marker, known: map[string]bool{}} }

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
