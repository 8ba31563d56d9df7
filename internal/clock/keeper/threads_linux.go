//go:build amd64 || arm64

package keeper

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// threadStates shows what the kernel does with a process's threads. The files stay open: to look one up by its name
// costs the kernel much more than to read it.
type threadStates struct {
	pid    int
	except int    // a thread that does not count; 0: all do
	dir    int    // of the threads, open
	links  uint64 // the directory's link count at the last look, which grows with each thread; 0: not looked at
	files  []int
}

// watchThreads returns the threads of a process, except one; nil if the process has ended, or this one has too many
// open files.
func watchThreads(pid, except int) *threadStates {
	dir, err := unix.Open(taskDir(pid), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &threadStates{pid: pid, except: except, dir: dir}
}

func taskDir(pid int) string { return fmt.Sprintf("/proc/%d/task", pid) }

// runs reports whether a thread has a processor or waits for one, or is in the kernel and cannot be interrupted, as
// while it writes to a slow disk. If that is unknown, it is true.
func (t *threadStates) runs() bool {
	var dir unix.Stat_t
	if err := unix.Fstat(t.dir, &dir); err != nil {
		return true
	}
	if uint64(dir.Nlink) != t.links {
		t.close()
		if err := t.open(); err != nil {
			return true
		}
		t.links = uint64(dir.Nlink)
	}
	var data [512]byte
	for i, fd := range t.files {
		n, err := unix.Pread(fd, data[:], 0)
		if err != nil { // it has ended, and another one may have begun
			t.links = 0
			return true
		}
		if state := stateIn(data[:n]); state == 'R' || state == 'D' {
			// It is likely to be the one that works at the next look, too.
			t.files[0], t.files[i] = t.files[i], t.files[0]
			return true
		}
	}
	return false
}

func (t *threadStates) open() error {
	tasks, err := os.ReadDir(taskDir(t.pid))
	if err != nil {
		return err
	}
	for _, task := range tasks {
		thread, err := strconv.Atoi(task.Name())
		if err != nil || thread == t.except {
			continue
		}
		fd, err := unix.Open(taskDir(t.pid)+"/"+task.Name()+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.files = append(t.files, fd)
	}
	return nil
}

// close closes the threads' files, which the next look opens again.
func (t *threadStates) close() {
	for _, fd := range t.files {
		_ = unix.Close(fd)
	}
	t.files, t.links = nil, 0
}

// leave closes all files.
func (t *threadStates) leave() {
	t.close()
	_ = unix.Close(t.dir)
}
