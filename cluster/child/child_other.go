//go:build !linux

package child

import (
	"os/exec"
	"strconv"
	"syscall"
)

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// guard starts a shell that blocks in a read from this process and kills the group when the read ends without a line.
func guard(pid int) (stop func(), err error) {
	sh := exec.Command("/bin/sh", "-c", `read -r line || kill -9 -- "-$1"`, "trommel-guard", strconv.Itoa(pid))
	sh.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := sh.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := sh.Start(); err != nil {
		return nil, err
	}
	return func() {
		_, _ = in.Write([]byte("\n"))
		_ = in.Close()
		_ = sh.Wait()
	}, nil
}

// reap waits for the end of the process and ends what is left of its group.
func (p *Process) reap() {
	_ = p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	p.reaped = true
	p.code = exitCode(p.cmd.ProcessState)
}
