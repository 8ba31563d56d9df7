// Package child starts processes that end when this one ends, even if this one is killed.
//
// A small shell, the guard, waits for the end of this process and then kills the process groups of its children. On
// Linux the kernel kills the children themselves even before that (PR_SET_PDEATHSIG). That signal is sent when the
// *thread* that forked ends, so every process is started from one operating system thread, which lives as long as any
// of them.
//
// A child has a variable in its environment by which the guard finds it and what it has started, in case this process
// is killed at the moment at which it starts one.
package child

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// EnvParentFD is the file descriptor of a pipe whose other end only the parent holds. A process that supports it
// watches the pipe and exits when it is closed.
const EnvParentFD = "TROMMEL_PARENT_FD"

// Process is a started child, the leader of its own process group.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	code int
	err  error // of exec.Cmd.Wait

	// mu prevents signals to a process ID that another process has got.
	mu     sync.Mutex
	reaped bool
}

// Start starts the command in its own process group. The command's streams must be files or nil, unless it has a
// WaitDelay, and its SysProcAttr is overwritten. The caller need not wait for it: when the process exits, it is reaped
// and the rest of its group is killed.
func Start(cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = sysProcAttr()
	p := &Process{cmd: cmd, done: make(chan struct{})}
	s, err := acquire()
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Environ(), s.guard.mark)
	started := make(chan error)
	s.forks <- func() {
		err := cmd.Start()
		if err == nil {
			afterFork()
			s.guard.tell("+", p.PID())
		}
		started <- err
	}
	if err := <-started; err != nil {
		release()
		return nil, err
	}
	go func() {
		p.reap()
		s.guard.tell("-", p.PID())
		release()
		close(p.done)
	}()
	return p, nil
}

// Run is like the command's own Run: it waits until the process has exited, and returns the same errors. If the command
// has a context, its Cancel must end the whole group.
func Run(cmd *exec.Cmd) error {
	p, err := Start(cmd)
	if err != nil {
		return err
	}
	<-p.done
	return p.err
}

// afterFork is called between the start of a process and the message to the guard; tests replace it.
var afterFork = func() {}

// WatchParent makes the command itself watch for the end of this process, for executables that support EnvParentFD.
// Call it before Start, at most once per command.
func WatchParent(cmd *exec.Cmd) error {
	lifeline, err := lifeline()
	if err != nil {
		return fmt.Errorf("create a pipe for child processes: %w", err)
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", EnvParentFD, 3+len(cmd.ExtraFiles)))
	cmd.ExtraFiles = append(cmd.ExtraFiles, lifeline.read)
	return nil
}

// lifeline is a pipe that nothing writes to; children see its end when this process ends.
var lifeline = sync.OnceValues(func() (l struct{ read, write *os.File }, err error) {
	l.read, l.write, err = os.Pipe()
	return l, err
})

// PID returns the process ID, also after the end.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has exited and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode returns the exit code, or 128+n for signal n. It is valid once Done is closed.
func (p *Process) ExitCode() int { return p.code }

// Signal sends the signal to the process or, with SIGKILL, to its whole group. After the end it is a no-op.
func (p *Process) Signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	pid := p.PID()
	if sig == syscall.SIGKILL {
		pid = -pid
	}
	_ = syscall.Kill(pid, sig)
}

// Freeze sends SIGSTOP to the group and returns when all threads of the process have stopped, or when it has exited. On
// a process that is stopped it is a no-op.
func (p *Process) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.PID(), syscall.SIGSTOP)
		p.awaitStop()
	}
}

// Thaw sends SIGCONT to the group.
func (p *Process) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.PID(), syscall.SIGCONT)
	}
}

// Kill sends SIGKILL to the group and waits until the process has exited.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

func exitCode(s *os.ProcessState) int {
	if s == nil {
		return -1
	}
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// spawner is shared by all living children.
type spawner struct {
	forks chan func() // run on one thread
	guard *guard
}

var current struct {
	sync.Mutex
	children int
	spawner  *spawner // nil without children
}

// acquire adds a child and creates the spawner for the first one.
func acquire() (*spawner, error) {
	current.Lock()
	defer current.Unlock()
	if current.children == 0 {
		g, err := newGuard()
		if err != nil {
			return nil, fmt.Errorf("start the guard of child processes: %w", err)
		}
		s := &spawner{forks: make(chan func()), guard: g}
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for fork := range s.forks {
				fork()
			}
		}()
		current.spawner = s
	}
	current.children++
	return current.spawner, nil
}

// release removes a child and stops the spawner with the last one.
func release() {
	current.Lock()
	defer current.Unlock()
	current.children--
	if current.children == 0 {
		close(current.spawner.forks)
		current.spawner.guard.close()
		current.spawner = nil
	}
}
