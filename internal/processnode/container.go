package processnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trommel-dev/trommel/internal/child"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/clock/keeper"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/processnode/exits"
)

// container runs one container of a pod, with all its restarts. Fields below "guarded" are guarded by Node.mu.
type container struct {
	pod    *pod
	spec   *corev1.Container // read only
	isInit bool

	program program // set by prepare

	// guarded
	current   *run // nil while no process runs
	last      *run // the last one that has exited
	starts    int
	final     bool // will not start again
	ready     bool
	waiting   string // why it does not start yet; empty: nothing holds it back
	failure   error  // why the last attempt to start failed
	idleSince int    // controller.urgent when the last process exited, or could not be started
	forgiven  int    // how often faults that end it have ended, after which there is no back-off
}

// run is one start of a container.
type run struct {
	process  *child.Process
	record   *cluster.Process // guarded by Node.mu
	message  string           // what it said in the end; guarded by Node.mu
	frozen   bool             // guarded by Node.mu
	failed   bool             // ended by a fault; guarded by Node.mu
	short    bool             // a fault may have let it run out of memory; guarded by Node.mu
	recorded chan struct{}    // closed when the end is in record
}

// Back-off between crashes. The first restart is immediate, as with a kubelet. The further delays are shorter than a
// kubelet's ten seconds, because a test waits for them.
const (
	firstBackoff = time.Second
	maxBackoff   = time.Minute
	// goodRun is how long a process must run before its container's crashes no longer count.
	goodRun = time.Minute
)

var errNotNow = errors.New("must not start now")

func (c *container) isSidecar() bool {
	return c.isInit && c.spec.RestartPolicy != nil && *c.spec.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func (c *container) succeeded() bool {
	c.pod.node.mu.Lock()
	defer c.pod.node.mu.Unlock()
	return c.final && c.last != nil && c.last.record.ExitCode == 0
}

// runLoop restarts the container, as its restart policy says, until the pod must end.
func (c *container) runLoop(ctx context.Context) {
	n := c.pod.node
	defer func() {
		n.mu.Lock()
		c.final = true
		c.ready = false
		n.broadcastLocked()
		n.mu.Unlock()
		c.pod.touch()
	}()
	crashes, forgiven := 0, 0
	var delay time.Duration
	for c.awaitStart(ctx, delay, forgiven) {
		r, err := c.start()
		if errors.Is(err, errNotNow) {
			delay = 0
			continue
		}
		c.pod.touch()
		if err != nil {
			delay = min(firstBackoff<<min(crashes, 10), maxBackoff)
			crashes++
			continue
		}
		c.supervise(ctx, r)
		n.mu.Lock()
		record, failed := *r.record, r.failed
		if c.forgiven > forgiven {
			crashes, forgiven = 0, c.forgiven
		}
		n.mu.Unlock()
		if !c.restarts(record.ExitCode) {
			return
		}
		switch {
		case record.Planned && !failed || record.Ended.Sub(record.Started) >= goodRun:
			crashes, delay = 0, 0
		case crashes == 0:
			crashes, delay = 1, 0
		default:
			delay = min(firstBackoff<<min(crashes-1, 10), maxBackoff)
			crashes++
		}
	}
}

func (c *container) restarts(exitCode int) bool {
	policy := c.pod.spec.RestartPolicy
	if c.isInit && !c.isSidecar() {
		return exitCode != 0 && policy != corev1.RestartPolicyNever
	}
	if c.isSidecar() {
		return true
	}
	return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && exitCode != 0
}

// awaitStart waits until the container may start: it is not held, and the delay is over, Start was called since the
// last process exited, or its container has been forgiven once more. It returns false when the pod must end.
func (c *container) awaitStart(ctx context.Context, delay time.Duration, forgiven int) bool {
	n := c.pod.node
	timer := clock.NewTimer(clock.Due(ctx), delay)
	defer timer.Stop()
	over := delay <= 0
	for {
		n.mu.Lock()
		changed := n.changed
		held, hurry := false, c.forgiven > forgiven
		if control := c.pod.controller; control != nil {
			held, hurry = control.held, hurry || control.urgent > c.idleSince
		}
		reason := ""
		switch {
		case held:
			reason = "Held"
		case !over && !hurry:
			reason = "CrashLoopBackOff"
		}
		news := c.waiting != reason
		c.waiting = reason
		n.mu.Unlock()
		if news {
			c.pod.touch()
		}
		if ctx.Err() != nil {
			return false
		}
		if reason == "" {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			over = true
		case <-ctx.Done():
			return false
		}
	}
}

// start starts the process and its record.
func (c *container) start() (*run, error) {
	n := c.pod.node
	log, err := os.OpenFile(c.program.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, c.fail(err)
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return nil, c.fail(err)
	}
	if err := c.program.freshFiles(); err != nil {
		return nil, c.fail(err)
	}
	cmd := c.program.command()
	cmd.Stdout, cmd.Stderr = log, log

	n.mu.Lock()
	defer n.mu.Unlock()
	// Kill first holds the container and then looks for processes, so it sees every process that was started under the
	// same lock.
	if control := c.pod.controller; c.pod.ending.begun || control != nil && control.held {
		return nil, errNotNow
	}
	if control := c.pod.controller; control != nil {
		env, args := control.given.To(c.spec.Name)
		// Of several values of a variable, the last one counts.
		cmd.Env, cmd.Args = slices.Concat(cmd.Env, env), slices.Concat(cmd.Args, args)
	}
	now := n.now()
	process, err := c.adopt(func() (*child.Process, error) { return child.Start(cmd) })
	if err != nil {
		return nil, c.failLocked(errors.Join(err, exits.MissingLoader(c.program.path)))
	}
	if control := c.pod.controller; control != nil && control.skew != 0 {
		n.config.Keeper.Skew(process.PID(), control.skew)
	}
	r := &run{process: process, recorded: make(chan struct{}), record: &cluster.Process{
		Namespace: c.pod.namespace, Pod: c.pod.name, Container: c.spec.Name,
		PID: process.PID(), Started: now, Log: c.program.logFile, LogStart: info.Size(),
	}}
	if control := c.pod.controller; control != nil {
		r.record.Controller = control.name
		control.processes = append(control.processes, r.record)
	}
	c.current = r
	c.starts++
	c.failure = nil
	c.ready = c.spec.ReadinessProbe == nil
	n.broadcastLocked()
	return r, nil
}

// adopt starts a process that has the run's clock, or for which time is real, unless it is said not to care for time.
func (c *container) adopt(start func() (*child.Process, error)) (*child.Process, error) {
	k := c.pod.node.config.Keeper
	if !c.program.timeless {
		return keeper.Adopt(k, start)
	}
	defer k.Clock().Hold()()
	return start()
}

func (c *container) fail(err error) error {
	c.pod.node.mu.Lock()
	defer c.pod.node.mu.Unlock()
	return c.failLocked(err)
}

func (c *container) failLocked(err error) error {
	c.failure = fmt.Errorf("start container %q of pod %s/%s: %w", c.spec.Name, c.pod.namespace, c.pod.name, err)
	if control := c.pod.controller; control != nil {
		c.idleSince = control.urgent
	}
	c.pod.node.log.Warn("start container", "error", c.failure)
	c.pod.node.broadcastLocked()
	return c.failure
}

// supervise waits until the process has exited and its end is recorded. When the pod must end, supervise ends the
// process.
func (c *container) supervise(ctx context.Context, r *run) {
	n := c.pod.node
	probing, stopProbing := context.WithCancel(ctx)
	probed := make(chan struct{})
	go func() {
		defer close(probed)
		c.probe(probing, r)
	}()
	select {
	case <-r.process.Done():
	case <-ctx.Done():
		n.mu.Lock()
		r.record.Planned = true
		n.mu.Unlock()
		r.process.Signal(syscall.SIGTERM)
		select {
		case <-r.process.Done():
		case <-c.pod.ending.kill:
			r.process.Kill()
		}
	}
	stopProbing()
	<-probed
	met, message, ranOut := "", exits.ReadMessage(c.program.lastWords), false
	if r.process.ExitCode() != 0 {
		n.mu.Lock()
		short := r.short
		n.mu.Unlock()
		exited := exits.Process{
			Log: c.program.logFile, LogStart: r.record.LogStart, Hooked: c.program.hooked, Mounts: c.program.mounts,
			Address: c.pod.address, Files: c.program.files, Beginner: c.beginner(r),
		}
		ranOut = short && exited.RanOutOfMemory()
		log := exited.LogEnd()
		met = exited.MetMachine(log, func() bool { return len(n.faults.List()) > 0 })
		if message == "" && c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
			message = exits.MessageFromLog(log)
		}
	}
	n.queues.forget(r.process.PID())
	n.mu.Lock()
	r.record.Ended = n.now()
	r.record.ExitCode = r.process.ExitCode()
	r.message = message
	if ranOut && !r.record.Planned {
		r.failed, r.record.Planned = true, true
	}
	if c.isInit && !c.isSidecar() && r.record.ExitCode == 0 {
		r.record.Planned = true // it has done its work
	}
	if !r.record.Planned {
		r.record.MetMachine = met
	}
	c.current = nil
	if control := c.pod.controller; control != nil {
		c.idleSince = control.urgent
	}
	c.last = r
	c.ready = false
	n.broadcastLocked()
	n.mu.Unlock()
	close(r.recorded)
	c.pod.touch()
}

// beginner returns the controller of a process that has exited if none of its container's processes has done anything
// before: each has exited by itself, and soon. Otherwise, and without a controller, it is empty.
func (c *container) beginner(exited *run) string {
	control := c.pod.controller
	if control == nil {
		return ""
	}
	n := c.pod.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range control.processes {
		ended := p.Ended
		if p.Running() {
			ended = n.now()
		}
		if p.Container == c.spec.Name && (p.Planned && p != exited.record || ended.Sub(p.Started) >= goodRun) {
			return ""
		}
	}
	return control.name
}
