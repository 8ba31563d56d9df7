package processnode

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/trommel-dev/trommel/internal/cluster"
)

// controller is the state shared by all pods of a controller under test. Node.mu guards it.
type controller struct {
	name string
	// held prevents its containers from starting.
	held bool
	// urgent counts the calls of Start: a container that has been waiting since before the last call skips its
	// back-off.
	urgent int
	// route is the API server to which new connections go, as set by Route; annotated is the one of the newest pod's
	// annotation, used if route is empty.
	route, annotated string
	processes        []*cluster.Process // in order of start
	given            cluster.Given
	// skew is how far the wall clock of its processes is ahead.
	skew time.Duration
}

func (n *Node) controllerLocked(name string) (*controller, error) {
	if c := n.controllers[name]; c != nil {
		return c, nil
	}
	if n.closed {
		return nil, fmt.Errorf("controller %q: the process node is closed", name)
	}
	c := &controller{name: name}
	n.controllers[name] = c
	return c, nil
}

// routeOf returns the API server for new connections of a controller's pods, or of a pod without one.
func (n *Node) routeOf(c *controller) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case c == nil:
	case c.route != "":
		return c.route
	case c.annotated != "":
		return c.annotated
	}
	return n.config.First
}

// containersLocked returns the containers of the controller's pods that are not terminating, but for those that run
// nothing.
func (n *Node) containersLocked(c *controller) []*container {
	var all []*container
	for _, p := range n.pods {
		if p.controller == c && !p.ending.begun {
			all = append(all, p.containers...)
		}
	}
	return slices.DeleteFunc(all, func(c *container) bool { return c.program.idle })
}

// Kill sends SIGKILL to every process of the controller and waits until they have exited. None starts again before
// Start.
func (n *Node) Kill(ctx context.Context, name string) error {
	n.mu.Lock()
	c, err := n.controllerLocked(name)
	if err != nil {
		n.mu.Unlock()
		return err
	}
	c.held = true
	var running []*run
	for _, container := range n.runningLocked(name) {
		container.current.record.Planned = true
		running = append(running, container.current)
	}
	n.broadcastLocked()
	n.mu.Unlock()
	for _, r := range running {
		go r.process.Kill()
	}
	for _, r := range running {
		select {
		case <-r.recorded:
		case <-ctx.Done():
			return fmt.Errorf("kill controller %q: process %d has not exited: %w", name, r.process.PID(), ctx.Err())
		}
	}
	return nil
}

// Freeze stops a process of the controller, with its children, and returns when it is stopped. A process ID of 0 means
// the controller's only one. The pod is not ready until Thaw. Freezing it again is a no-op.
func (n *Node) Freeze(_ context.Context, name string, pid int) error {
	n.mu.Lock()
	var running []*container
	for _, container := range n.runningLocked(name) {
		if pid == 0 || container.current.process.PID() == pid {
			running = append(running, container)
		}
	}
	switch {
	case len(running) == 1:
	case pid != 0:
		n.mu.Unlock()
		return fmt.Errorf("freeze controller %q: it has no process %d any more", name, pid)
	case len(running) == 0:
		n.mu.Unlock()
		return fmt.Errorf("freeze controller %q: it is not running", name)
	default:
		n.mu.Unlock()
		return fmt.Errorf("freeze controller %q: it has %d processes, and none of them was observed", name,
			len(running))
	}
	c := running[0]
	r := c.current
	r.frozen = true
	n.mu.Unlock()
	r.process.Freeze()
	c.pod.touch()
	return nil
}

// Thaw lets the frozen processes of the controller go on, or kills them: then they start again, and their exits count
// as planned. It returns when killed ones have exited, and reports how many were frozen.
func (n *Node) Thaw(ctx context.Context, name string, kill bool) (int, error) {
	n.mu.Lock()
	var frozen []*container
	var runs []*run
	for _, container := range n.runningLocked(name) {
		if r := container.current; r.frozen {
			frozen, runs = append(frozen, container), append(runs, r)
			r.frozen = false
			r.record.Planned = r.record.Planned || kill
		}
	}
	n.mu.Unlock()
	for _, r := range runs {
		if kill {
			r.process.Signal(syscall.SIGKILL)
		} else {
			r.process.Thaw()
		}
	}
	for i, r := range runs {
		frozen[i].pod.touch()
		if !kill {
			continue
		}
		select {
		case <-r.recorded:
		case <-ctx.Done():
			return len(runs), fmt.Errorf("kill frozen controller %q: process %d has not exited: %w", name,
				r.process.PID(), ctx.Err())
		}
	}
	return len(runs), nil
}

// Skew puts the wall clock of a controller's processes ahead, or behind, also of those that start later, and reports
// how far it was ahead before. It fails if a process does not run by the keeper's clock. The node has a
// keeper.
func (n *Node) Skew(name string, by time.Duration) (before time.Duration, err error) {
	if by != 0 {
		if err := n.CheckClock(name); err != nil {
			return 0, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c, err := n.controllerLocked(name)
	if err != nil {
		return 0, err
	}
	before, c.skew = c.skew, by
	for _, container := range n.runningLocked(name) {
		n.config.Keeper.Skew(container.current.process.PID(), by)
	}
	return before, nil
}

// CheckClock returns an error if a process of the controller, or of any if the name is empty, does not run by the
// keeper's clock.
func (n *Node) CheckClock(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range slices.Sorted(maps.Keys(n.controllers)) {
		if name != "" && name != c {
			continue
		}
		for _, container := range n.runningLocked(c) {
			if pid := container.current.process.PID(); !n.config.Keeper.Has(pid) {
				return fmt.Errorf("process %d of controller %q runs in real time: only what Trommel builds, with Go "+
					"1.26 or later, runs by the cluster's clock", pid, c)
			}
		}
	}
	return nil
}

// runningLocked returns the containers of the controller's pods that have a process, terminating or not.
func (n *Node) runningLocked(name string) []*container {
	var all []*container
	for _, p := range n.pods {
		if p.controller == nil || p.controller.name != name {
			continue
		}
		for _, container := range slices.Concat(p.init, p.containers) {
			if container.current != nil {
				all = append(all, container)
			}
		}
	}
	return all
}

// Start lets a killed controller start again, without back-off; it waits until all its containers are running. On a
// running controller it is a no-op.
func (n *Node) Start(ctx context.Context, name string) error {
	n.mu.Lock()
	c, err := n.controllerLocked(name)
	if err != nil {
		n.mu.Unlock()
		return err
	}
	c.held = false
	c.urgent++
	before := map[*container]int{}
	for _, container := range n.containersLocked(c) {
		if container.current == nil {
			before[container] = container.starts
		}
	}
	n.broadcastLocked()
	n.mu.Unlock()
	err = n.await(ctx, func() (bool, error) {
		containers := n.containersLocked(c)
		for _, container := range containers {
			if container.current == nil && container.starts <= before[container] {
				if container.failure != nil && container.idleSince >= c.urgent {
					return false, container.failure
				}
				return false, nil
			}
		}
		return len(containers) > 0, nil
	})
	if err != nil {
		return fmt.Errorf("start controller %q: %w", name, err)
	}
	return nil
}

// await waits until done returns true or an error; it calls done with mu held, after every change.
func (n *Node) await(ctx context.Context, done func() (bool, error)) error {
	for {
		n.mu.Lock()
		ok, err := done()
		changed, closed := n.changed, n.closed
		n.mu.Unlock()
		switch {
		case ok || err != nil:
			return err
		case closed:
			return fmt.Errorf("the process node is closed")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("none of its pods is running on %s: %w", n.config.Name, ctx.Err())
		}
	}
}

// Give sets what the controller's processes get besides what their pods say, from their next start on.
func (n *Node) Give(_ context.Context, name string, given cluster.Given) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, err := n.controllerLocked(name)
	if err != nil {
		return err
	}
	c.given = given
	return nil
}

// Route makes new connections of the controller go to the API server; existing connections do not move.
func (n *Node) Route(_ context.Context, name, apiServer string) error {
	if n.config.APIServers[apiServer] == "" {
		return fmt.Errorf("route controller %q: no API server %q (there are %s)",
			name, apiServer, strings.Join(slices.Sorted(maps.Keys(n.config.APIServers)), ", "))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c, err := n.controllerLocked(name)
	if err != nil {
		return err
	}
	c.route = apiServer
	return nil
}

// CutConnections closes every open connection of the controller to the API server.
func (n *Node) CutConnections(_ context.Context, name string) error {
	n.mu.Lock()
	c, err := n.controllerLocked(name)
	var of []*pod
	for _, p := range n.pods {
		if p.controller == c {
			of = append(of, p)
		}
	}
	n.mu.Unlock()
	if err != nil {
		return err
	}
	for _, p := range of {
		p.faults.Cut()
	}
	return nil
}

// Status returns the controller's processes, running and exited, oldest first.
func (n *Node) Status(_ context.Context, name string) ([]cluster.Process, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.controllers[name]
	if c == nil {
		return nil, nil
	}
	all := make([]cluster.Process, len(c.processes))
	for i, p := range c.processes {
		all[i] = *p
	}
	return all, nil
}

// OpenLog opens the log of a process of any process node on this machine.
func OpenLog(p cluster.Process) (io.ReadCloser, error) {
	if p.Log == "" {
		return nil, fmt.Errorf("log of container %q of pod %s/%s: %w", p.Container, p.Namespace, p.Pod, fs.ErrNotExist)
	}
	return os.Open(p.Log)
}

// OpenLog opens the log of a process.
func (n *Node) OpenLog(p cluster.Process) (io.ReadCloser, error) { return OpenLog(p) }

// Faults lists the faults that injectors have begun and not ended.
func (n *Node) Faults(context.Context) ([]cluster.Fault, error) { return n.faults.List(), nil }

// EndFaults ends all faults and returns when nothing of them is left.
func (n *Node) EndFaults(ctx context.Context) error { return n.faults.EndAll(ctx) }

// Reset ends every fault, lets every held controller start and every frozen process go on, undoes every Route and Give
// and forgets exited processes.
func (n *Node) Reset(ctx context.Context) error {
	if err := n.EndFaults(ctx); err != nil {
		return err
	}
	n.mu.Lock()
	names := slices.Collect(maps.Keys(n.controllers))
	n.mu.Unlock()
	for _, name := range names {
		if _, err := n.Thaw(ctx, name, false); err != nil {
			return err
		}
		if n.config.Keeper == nil {
			continue
		}
		if _, err := n.Skew(name, 0); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	used := map[*controller]bool{}
	for _, p := range n.pods {
		used[p.controller] = true
	}
	for name, c := range n.controllers {
		c.held = false
		c.route, c.given = "", cluster.Given{}
		c.processes = slices.DeleteFunc(c.processes, func(p *cluster.Process) bool { return !p.Running() })
		if !used[c] {
			delete(n.controllers, name)
		}
	}
	n.broadcastLocked()
	return nil
}
