package child

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStop waits until the process has stopped or exited. It leaves its status to reap.
func (p *Process) awaitStop() {
	_ = waitid(unix.P_PID, p.PID(), unix.WSTOPPED|unix.WEXITED)
}

// reap waits for the end of the process, kills the rest of its group, and only then frees the process ID.
func (p *Process) reap() {
	if !awaitExit(p.PID()) {
		_ = waitid(unix.P_PID, p.PID(), unix.WEXITED)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	p.err = p.cmd.Wait()
	p.reaped = true
	p.code = exitCode(p.cmd.ProcessState)
}

// awaitExit waits until the process has exited. It blocks no thread: each thread costs a look at rest, see package
// keeper. It returns false at once if the kernel cannot do that (Linux before 5.10).
func awaitExit(pid int) bool {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return false
	}
	file := os.NewFile(uintptr(fd), "pidfd") // the runtime polls it, since it does not block
	defer file.Close()
	conn, err := file.SyscallConn()
	if err != nil {
		return false
	}
	var status error
	err = conn.Read(func(fd uintptr) bool {
		status = waitid(unix.P_PIDFD, int(fd), unix.WEXITED)
		return !errors.Is(status, unix.EAGAIN)
	})
	return err == nil && status == nil
}

// waitid waits for a change of a process, which it leaves to others.
func waitid(idType, id, options int) error {
	for {
		err := unix.Waitid(idType, id, nil, options|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
