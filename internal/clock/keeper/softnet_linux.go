//go:build amd64 || arm64

package keeper

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// softnet looks at the packets that the kernel has accepted and not delivered yet. On a busy machine it leaves them to
// a thread, ksoftirqd, which waits for its turn like any other thread. The zero value sees none.
type softnet struct {
	fd   int    // of /proc/net/softnet_stat; 0: it is not there
	data []byte // what was last read
}

// backlog is the column with the number of packets that wait, from 0 (Linux, net/core/net-procfs.c, since 5.10).
const backlog = 11

func (s *softnet) open() {
	if fd, err := unix.Open("/proc/net/softnet_stat", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		s.fd, s.data = fd, make([]byte, 16<<10) // a line of 135 bytes for each processor
	}
}

func (s *softnet) close() {
	if s.fd > 0 {
		_ = unix.Close(s.fd)
	}
	s.fd = 0
}

// delayed reports whether packets wait for delivery. It does not know whose they are.
func (s *softnet) delayed() bool {
	if s.fd == 0 {
		return false
	}
	n, err := unix.Pread(s.fd, s.data, 0)
	return err == nil && anyBacklog(s.data[:n])
}

// anyBacklog reports whether a line of softnet_stat has a backlog. Older kernels have no such column.
func anyBacklog(stat []byte) bool {
	for line := range bytes.Lines(stat) {
		columns := bytes.Fields(line)
		if len(columns) <= backlog {
			continue
		}
		if n, err := strconv.ParseUint(string(columns[backlog]), 16, 32); err == nil && n > 0 {
			return true
		}
	}
	return false
}
