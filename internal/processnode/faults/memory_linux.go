package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// machineMemory is the memory of this machine in bytes.
func machineMemory() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("ask for this machine's memory: %w", err)
	}
	return int64(info.Totalram) * int64(info.Unit), nil
}

// processMemory is the limit of a process's data (RLIMIT_DATA): what it has mapped to write into, and no file.
// Processes that it starts inherit the limit.
type processMemory struct {
	pid  int
	own  *unix.Rlimit // that it had; nil: it has not been changed
	sets []uint64     // limits that were set
}

// use returns how much memory the process uses; nil: it has ended.
func (m *processMemory) use() (*memoryUse, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var now memoryUse
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		into := map[string]*int64{"VmRSS": &now.used, "VmData": &now.data}[name]
		if into == nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("memory of process %d: %w", m.pid, err)
		}
		*into = n << 10
	}
	if now.data == 0 {
		return nil, nil // it is a zombie
	}
	return &now, nil
}

// set limits how much memory the process may map to write into, in bytes. It does nothing if the process has ended.
func (m *processMemory) set(soft uint64) error {
	var own unix.Rlimit
	if err := unix.Prlimit(m.pid, unix.RLIMIT_DATA, nil, &own); errors.Is(err, unix.ESRCH) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read the memory limit of process %d: %w", m.pid, err)
	}
	if m.own == nil {
		m.own = &own
	}
	// Not more than it had. Its hard limit stays, because the soft one could not be set back otherwise.
	soft = min(soft, m.own.Cur)
	m.sets = append(m.sets, soft)
	err := unix.Prlimit(m.pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: soft, Max: m.own.Max}, nil)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("limit the memory of process %d: %w", m.pid, err)
	}
	return nil
}

// restore sets the limits of the process and of those in its group back that have one of ours.
func (m *processMemory) restore() {
	if m.own == nil {
		return
	}
	// One that is started meanwhile by another of them inherits what that one has.
	for again := true; again; {
		again = false
		for _, pid := range group(m.pid) {
			var now unix.Rlimit
			if unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &now) != nil || now.Max != m.own.Max || now.Cur == m.own.Cur {
				continue // it has ended, or is not ours
			}
			for _, set := range m.sets {
				if now.Cur == set {
					again = unix.Prlimit(pid, unix.RLIMIT_DATA, m.own, nil) == nil || again
					break
				}
			}
		}
	}
}

// group lists the processes of a process group.
func group(leader int) (pids []int) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// PID (name) state parent group
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 3 || fields[2] != strconv.Itoa(leader) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
