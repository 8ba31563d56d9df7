package child

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStop waits until the process has stopped or exited. It leaves its status to reap.
func (p *Process) awaitStop() {
	for {
		err := unix.Waitid(unix.P_PID, p.PID(), nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// reap waits for the end of the process, kills the rest of its group, and only then frees the process ID.
func (p *Process) reap() {
	for {
		err := unix.Waitid(unix.P_PID, p.PID(), nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	p.err = p.cmd.Wait()
	p.reaped = true
	p.code = exitCode(p.cmd.ProcessState)
}
