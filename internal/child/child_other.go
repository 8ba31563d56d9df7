//go:build !linux

package child

import "syscall"

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitStop does nothing: here a process has stopped when the signal is sent.
func (p *Process) awaitStop() {}

// reap waits for the end of the process and kills the rest of its group.
func (p *Process) reap() {
	p.err = p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	p.reaped = true
	p.code = exitCode(p.cmd.ProcessState)
}
