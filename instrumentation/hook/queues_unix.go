//go:build linux || darwin || freebsd
// +build linux darwin freebsd

package hook

import (
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

func init() {
	defer IgnorePanic()
	if dir := os.Getenv(wire.QueuesVariable); dir != "" {
		t, err := mapQueueTable(filepath.Join(dir, strconv.Itoa(os.Getpid())))
		if err != nil {
			debugf("queues: %v", err)
			return
		}
		atomic.StorePointer(&queues, unsafe.Pointer(newQueueTable(t)))
	}
}

// mapQueueTable creates the file of a table. It replaces one that an earlier process with the same ID has left.
func mapQueueTable(path string) (*wire.QueueTable, error) {
	_ = os.Remove(path)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(wire.QueueTableBytes); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, wire.QueueTableBytes, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*wire.QueueTable)(unsafe.Pointer(&memory[0])), nil
}
