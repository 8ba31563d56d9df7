// Package cputime measures how much processor time processes have used, and lets tests use some.
package cputime

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ErrUnknown is the error of systems without Linux' account of each thread.
var ErrUnknown = errors.New("the processor time of processes is not known on this system")

// Burn starts a process that computes until the test ends, and returns its PID.
func Burn(t testing.TB) int {
	t.Helper()
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// Of returns how much processor time a process has used. What threads used that have ended is not counted.
func Of(pid int) (time.Duration, error) {
	// The scheduler's own account of each thread; /proc/PID/stat counts in hundredths of a second.
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	if len(files) == 0 {
		return 0, fmt.Errorf("process %d: %w", pid, ErrUnknown)
	}
	var all time.Duration
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended meanwhile
		}
		spent, _, _ := strings.Cut(string(data), " ")
		n, err := strconv.ParseInt(spent, 10, 64)
		if err != nil {
			return 0, err
		}
		all += time.Duration(n)
	}
	return all, nil
}

// Descendants returns the processes that this one has started, and those that they have started, which all live: the
// names of their programs, by process ID.
func Descendants() (map[int]string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, ErrUnknown
	}
	children := map[int][]int{}
	for _, f := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			return nil, err
		}
		if data, err := os.ReadFile(f); err == nil { // else it has ended meanwhile
			// The name, in parentheses, may contain anything; after it come the state and the parent.
			after := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
			parent, err := strconv.Atoi(after[1])
			if err != nil {
				return nil, err
			}
			children[parent] = append(children[parent], pid)
		}
	}
	all := map[int]string{}
	for left := children[os.Getpid()]; len(left) > 0; {
		pid := left[0]
		left = append(left[1:], children[pid]...)
		if data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil {
			program, _, _ := strings.Cut(string(data), "\x00")
			all[pid] = filepath.Base(program)
		}
	}
	return all, nil
}
