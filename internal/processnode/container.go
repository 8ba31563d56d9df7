package processnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/child"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/clock/keeper"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/processnode/faults"
)

// container runs one container of a pod, with all its restarts. Fields below "guarded" are guarded by Node.mu.
type container struct {
	pod    *pod
	spec   *corev1.Container // read only
	isInit bool

	// Set by prepare.
	path    string   // of the executable
	argv    []string // with argv[0]
	env     []string
	workDir string
	logFile string
	mounts  []mount
	files   *files
	tmp     string // directory of its /tmp; empty if the pod's spec mounts something there
	hooked  bool   // its executable has hooks in the standard library

	idle bool // it has no program, and does nothing: see runsNothing

	timeless bool // what it does does not depend on the time

	readyFile string // on this machine; empty unless it is an injector that names one
	lastWords string // file on this machine in which a process without hooks may write its termination message

	// guarded
	current  *run // nil while no process runs
	last     *run // the last one that has exited
	starts   int
	final    bool // will not start again
	ready    bool
	waiting  string // reason while it neither runs nor is final
	failure  error  // why the last attempt to start failed
	failedAt int    // controller.urgent at that time
	forgiven int    // how often faults that end it have ended, after which there is no back-off
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

// awaitStart waits until the container may start: it is not held, and the delay is over, Start was called, or its
// container has been forgiven once more. It returns false when the pod must end.
func (c *container) awaitStart(ctx context.Context, delay time.Duration, forgiven int) bool {
	n := c.pod.node
	n.mu.Lock()
	urgent := 0
	if c.pod.controller != nil {
		urgent = c.pod.controller.urgent
	}
	n.mu.Unlock()
	timer := clock.NewTimer(clock.Due(ctx), delay)
	defer timer.Stop()
	over := delay <= 0
	for {
		n.mu.Lock()
		changed := n.changed
		held, hurry := false, c.forgiven > forgiven
		if control := c.pod.controller; control != nil {
			held, hurry = control.held, hurry || control.urgent > urgent
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
	log, err := os.OpenFile(c.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, c.fail(err)
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return nil, c.fail(err)
	}
	if err := c.freshFiles(); err != nil {
		return nil, c.fail(err)
	}
	cmd := &exec.Cmd{Path: c.path, Args: c.argv, Env: c.env, Dir: c.workDir, Stdout: log, Stderr: log}

	n.mu.Lock()
	defer n.mu.Unlock()
	// Kill first holds the container and then looks for processes, so it sees every process that was started under the
	// same lock.
	if control := c.pod.controller; c.pod.terminating || control != nil && control.held {
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
		return nil, c.failLocked(errors.Join(err, missingLoader(c.path)))
	}
	if control := c.pod.controller; control != nil && control.skew != 0 {
		n.config.Keeper.Skew(process.PID(), control.skew)
	}
	r := &run{process: process, recorded: make(chan struct{}), record: &cluster.Process{
		Namespace: c.pod.namespace, Pod: c.pod.name, Container: c.spec.Name,
		PID: process.PID(), Started: now, Log: c.logFile, LogStart: info.Size(),
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
	if !c.timeless {
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
		c.failedAt = control.urgent
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
		case <-c.pod.kill:
			r.process.Kill()
		}
	}
	stopProbing()
	<-probed
	met, message, ranOut := "", readLastWords(c.lastWords), false
	if r.process.ExitCode() != 0 {
		n.mu.Lock()
		short := r.short
		n.mu.Unlock()
		ranOut = short && c.ranOutOfMemory(r.record.LogStart)
		log := c.logEnd(r.record.LogStart)
		met = c.metMachine(log)
		if message == "" && c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
			message = terminationMessage(log)
		}
	}
	n.forgetQueues(r.process.PID())
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
	c.last = r
	c.ready = false
	n.broadcastLocked()
	n.mu.Unlock()
	close(r.recorded)
	c.pod.touch()
}

// prepare determines how the container's processes are started.
func (c *container) prepare(ctx context.Context, volumes map[string]string) error {
	p := c.pod
	annotations := p.annotations()
	// All starts of the container append to one log, and so do those of the next pod with the same name.
	c.logFile = filepath.Join(p.node.config.LogDir, fmt.Sprintf("%s_%s_%s.log", p.namespace, p.name, c.spec.Name))
	c.timeless = annotations[cluster.AnnotationTimeless] == "true"
	c.workDir = annotations[cluster.AnnotationWorkDirPrefix+c.spec.Name]
	binary := annotations[cluster.AnnotationBinaryPrefix+c.spec.Name]
	if c.runsNothing(binary) {
		p.node.mu.Lock()
		defer p.node.mu.Unlock()
		c.idle = true
		return nil
	}
	home := filepath.Join(p.dir, "work", c.spec.Name)
	err := os.MkdirAll(home, 0o700)
	if err != nil {
		return err
	}
	if c.workDir == "" {
		c.workDir = home
		if binary == "" && c.spec.WorkingDir != "" {
			c.workDir = c.spec.WorkingDir
		}
	}
	if c.hooked, err = c.isHooked(binary); err != nil {
		return err
	}
	env, err := c.environment(ctx, home)
	if err != nil {
		return err
	}
	if c.mounts, err = c.findMounts(volumes, env); err != nil {
		return err
	}
	if err := c.findFiles(binary); err != nil {
		return err
	}
	if path := c.spec.TerminationMessagePath; path != "" && !c.hooked {
		c.lastWords = filepath.Join(p.dir, "termination", c.spec.Name)
		c.mounts = sortMounts(append(c.mounts, mount{path: filepath.Clean(path), local: c.lastWords}))
	}
	var argv []string
	for _, s := range slices.Concat(c.spec.Command, c.spec.Args) {
		s = expand(s, env.lookup)
		if !c.hooked {
			s = rewritePaths(s, c.mounts)
		}
		argv = append(argv, s)
	}
	if c.hooked {
		env.set(envPodFiles, c.files.environment())
		page, err := p.faults.Page(c.spec.Name, filepath.Join(p.dir, "faults", c.spec.Name))
		if err != nil {
			return err
		}
		env.set(envPodFaults, page)
	}
	// Components of the control plane have the clock and the queues, too, and others do not look. An injector that is
	// the executable of a controller that was built for it has the clock.
	for _, variable := range c.pod.node.config.Keeper.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		env.set(name, value)
	}
	if !c.pod.isInjector() {
		env.set(wire.QueuesVariable, c.pod.node.queueDir())
	}
	c.env = c.formatEnv(env)
	if file := faults.ReadyFile(annotations); file != "" && c.pod.isInjector() {
		c.readyFile = rewritePaths(file, c.mounts)
	}
	return c.findExecutable(binary, argv, env)
}

// runsNothing reports whether a container beside the controller has no program. As in simulated pods, it counts as
// running, because most controllers do not need what is beside them, such as a proxy for metrics. They need what an
// init container does.
func (c *container) runsNothing(binary string) bool {
	return c.pod.controller != nil && binary == "" && len(c.spec.Command) == 0 && (!c.isInit || c.isSidecar())
}

// isHooked reports whether the container's executable has hooks in its standard library.
func (c *container) isHooked(binary string) (bool, error) {
	if c.pod.isInjector() {
		return false, nil // although our own executable mentions them
	}
	if binary == "" {
		if len(c.spec.Command) == 0 || !filepath.IsAbs(c.spec.Command[0]) {
			return false, nil
		}
		binary = c.spec.Command[0]
	}
	yes, err := c.pod.node.hooked.has(binary)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // starting it will fail
	}
	return yes, err
}

// findFiles determines where the container's files are on this machine.
func (c *container) findFiles(binary string) error {
	c.files = &files{root: filepath.Join(c.pod.dir, "root", c.spec.Name)}
	c.tmp = filepath.Join(c.pod.dir, "tmp", c.spec.Name)
	c.files.add("/tmp", c.tmp)
	for _, m := range slices.Backward(c.mounts) {
		if m.path == "/tmp" {
			c.tmp = ""
		}
		if err := c.files.mount(m.path, m.local); err != nil {
			return fmt.Errorf("mount %s: %w", m.path, err)
		}
	}
	// These paths are the machine's own, even below a mount.
	for _, own := range []string{c.pod.node.config.Dir, c.workDir, binary} {
		if own != "" {
			c.files.add(own, own)
		}
	}
	return nil
}

// freshFiles creates the files of a new container: an empty /tmp, the mount points of its volumes, no readiness file,
// no termination message.
func (c *container) freshFiles() error {
	if c.tmp != "" {
		if err := os.RemoveAll(c.tmp); err != nil {
			return err
		}
		if err := os.MkdirAll(c.tmp, 0o700); err != nil {
			return err
		}
	}
	if c.readyFile != "" {
		// That of an injector that was killed says nothing about the next one.
		if err := os.Remove(c.readyFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if c.lastWords != "" {
		if err := os.MkdirAll(filepath.Dir(c.lastWords), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(c.lastWords, nil, 0o600); err != nil {
			return err
		}
	}
	if !c.hooked {
		return nil
	}
	return c.files.makeMountPoints()
}

// findExecutable sets path and argv. A binary replaces the image: it is run instead of the command's first word, which
// remains argv[0].
func (c *container) findExecutable(binary string, argv []string, env *environment) error {
	set := func(path string, argv []string) error {
		c.pod.node.mu.Lock() // the pod's status has the path, and is written while the pod is prepared
		defer c.pod.node.mu.Unlock()
		c.path, c.argv = path, argv
		return nil
	}
	if binary != "" {
		if len(c.spec.Command) == 0 {
			argv = append([]string{binary}, argv...)
		}
		return set(binary, argv)
	}
	if len(c.spec.Command) == 0 {
		remedy := fmt.Sprintf("name one in the pod's annotation %s%s", cluster.AnnotationBinaryPrefix, c.spec.Name)
		if control := c.pod.controller; control != nil {
			remedy = fmt.Sprintf("name one with `executables:` of the controller %s in the suite", control.name)
		}
		return fmt.Errorf("has no command, and no executable is given for image %q: %s", c.spec.Image, remedy)
	}
	path, err := lookPath(argv[0], c.workDir, env.lookup)
	if err != nil {
		return err
	}
	return set(path, argv)
}

// lookPath finds an executable in the container's own PATH.
func lookPath(name, dir string, lookup func(string) (string, bool)) (string, error) {
	if filepath.Base(name) != name {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, nil
	}
	path, _ := lookup("PATH")
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("command %q is not in PATH", name)
}
