package kind

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/passthrough"
)

// processes are the programs in containers that Trommel observes, each behind a launcher. It is the cluster's process
// node: the node on which they run is a real one.
type processes struct {
	nodeName string
	logDir   string
	listen   func() (net.Listener, error)                                  // in the node's network
	dial     func(ctx context.Context, apiServer string) (net.Conn, error) // to an API server
	first    string                                                        // API server

	mu          sync.Mutex
	controllers map[string]*controller
	changed     chan struct{} // closed and replaced when something below controllers has changed
	closed      bool
	expected    int // who expects that containers are killed
}

// controller is what has a name: a controller under test, another program of Trommel's, or an API server.
type controller struct {
	held    bool // its programs wait until Start
	given   cluster.Given
	route   string
	proxy   *passthrough.Proxy // to its API server; nil: it has needed none yet
	running []*container       // in the order in which they came; also those that are held
	history []*cluster.Process
}

// container is the connection of a launcher.
type container struct {
	caller  caller
	conn    net.Conn
	encoder *json.Encoder
	orders  int                // the last order's ID
	waiting map[int]chan error // for what an order has led to
	current *cluster.Process   // nil: its program does not run
	frozen  bool
	log     *os.File
}

// order and report are the launcher's.
type order struct {
	ID int    `json:"id"`
	Do string `json:"do"`
	// Env and Args are what a program that starts gets besides its container's.
	Env  []string `json:"env,omitempty"`
	Args []string `json:"args,omitempty"`
}

type report struct {
	Done    int    `json:"done"`
	Error   string `json:"error"`
	Started int    `json:"started"`
	Exited  *int   `json:"exited"`
	Log     []byte `json:"log"`
}

func newProcesses(nodeName, logDir string) *processes {
	return &processes{
		nodeName: nodeName, logDir: logDir, controllers: map[string]*controller{}, changed: make(chan struct{}),
	}
}

func (p *processes) broadcastLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *processes) controllerLocked(name string) *controller {
	c := p.controllers[name]
	if c == nil {
		c = &controller{}
		p.controllers[name] = c
	}
	return c
}

// await waits until done, which is called with mu held, returns true or an error.
func (p *processes) await(ctx context.Context, done func() (bool, error)) error {
	for {
		p.mu.Lock()
		ok, err := done()
		changed := p.changed
		p.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// serve talks to a launcher until its connection ends.
func (p *processes) serve(from caller, conn net.Conn, reader *bufio.Reader) {
	k := &container{caller: from, conn: conn, encoder: json.NewEncoder(conn), waiting: map[int]chan error{}}
	if err := p.openLog(k); err != nil {
		return // the disk is full: the program starts without us when we hang up
	}
	defer k.log.Close()
	p.mu.Lock()
	c := p.controllerLocked(from.Controller)
	c.running = append(c.running, k)
	if !c.held && !p.closed {
		_ = c.startLocked(k)
	}
	p.broadcastLocked()
	p.mu.Unlock()

	decoder := json.NewDecoder(reader)
	for {
		var r report
		if decoder.Decode(&r) != nil {
			break
		}
		p.note(c, k, r)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c.running = slices.DeleteFunc(c.running, func(other *container) bool { return other == k })
	if k.current != nil {
		// The container was killed, with its launcher.
		p.endLocked(c, k, 128+9)
	}
	for _, done := range k.waiting {
		done <- errors.New("its container has ended")
	}
	p.broadcastLocked()
}

// note takes in what a launcher reports.
func (p *processes) note(c *controller, k *container, r report) {
	if len(r.Log) > 0 {
		_, _ = k.log.Write(r.Log)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.Started != 0:
		offset, _ := k.log.Seek(0, io.SeekEnd)
		k.frozen = false
		k.current = &cluster.Process{
			Controller: k.caller.Controller, Namespace: k.caller.Namespace, Pod: k.caller.Pod,
			Container: k.caller.Container, PID: r.Started, Started: time.Now(), Log: k.log.Name(), LogStart: offset,
		}
		c.history = append(c.history, k.current)
	case r.Exited != nil && k.current != nil:
		p.endLocked(c, k, *r.Exited)
	case r.Done != 0:
		if done := k.waiting[r.Done]; done != nil {
			delete(k.waiting, r.Done)
			var err error
			if r.Error != "" {
				err = errors.New(r.Error)
			}
			done <- err
		}
	}
	p.broadcastLocked()
}

// endLocked records that a program has exited. After an exit that was planned its launcher waits for the next order; it
// is held, or starts again at once, as in a new container.
func (p *processes) endLocked(c *controller, k *container, code int) {
	k.current.Ended, k.current.ExitCode = time.Now(), code
	again := k.current.Planned && !c.held && !p.closed
	if p.expected > 0 && (code == 128+9 || code == 128+15) {
		k.current.Planned = true // its container ends, too: another one starts it again
	}
	if k.caller.Init && code == 0 {
		k.current.Planned = true // it has done its work
	}
	k.current, k.frozen = nil, false
	if again {
		_ = c.startLocked(k)
	}
}

// startLocked orders a container to start its program with what the controller is given.
func (c *controller) startLocked(k *container) <-chan error {
	env, args := c.given.To(k.caller.Container)
	return k.sendLocked(order{Do: "start", Env: env, Args: args})
}

func (k *container) orderLocked(do string) <-chan error { return k.sendLocked(order{Do: do}) }

// sendLocked sends an order; the channel receives its outcome. A launcher that reads nothing is cut off.
func (k *container) sendLocked(o order) <-chan error {
	k.orders++
	o.ID = k.orders
	done := make(chan error, 1)
	_ = k.conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
	if err := k.encoder.Encode(o); err != nil {
		_ = k.conn.Close()
		done <- err
		return done
	}
	k.waiting[k.orders] = done
	return done
}

// openLog opens the log to which all starts of a container append.
func (p *processes) openLog(k *container) error {
	if err := os.MkdirAll(p.logDir, 0o700); err != nil {
		return err
	}
	name := fmt.Sprintf("%s_%s_%s.log", k.caller.Namespace, k.caller.Pod, k.caller.Container)
	if strings.ContainsRune(name, os.PathSeparator) {
		return fmt.Errorf("log of container %q: not a file name", name)
	}
	f, err := os.OpenFile(filepath.Join(p.logDir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	k.log = f
	return err
}

// proxyFor returns the address at which a controller finds its API server. The first caller says which one that is at
// first; "" is the first of all.
func (p *processes) proxyFor(name, apiServer string) (host, port string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.controllerLocked(name)
	if c.proxy == nil {
		listener, err := p.listen()
		if err != nil {
			return "", "", err
		}
		if apiServer == "" {
			apiServer = p.first
		}
		if c.route == "" {
			c.route = apiServer
		}
		c.proxy = passthrough.Serve(listener, nil, func(ctx context.Context) (net.Conn, error) {
			p.mu.Lock()
			to := c.route
			p.mu.Unlock()
			return p.dial(ctx, to)
		})
	}
	return net.SplitHostPort(c.proxy.Addr())
}

// ExpectKills counts exits by SIGKILL and SIGTERM as planned until done is called; see cluster.ContainerKillExpecter.
func (p *processes) ExpectKills() (done func()) {
	expect := func(n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.expected += n
	}
	expect(1)
	return sync.OnceFunc(func() { expect(-1) })
}

// NodeName returns the Node object's name.
func (p *processes) NodeName() string { return p.nodeName }

// Kill sends SIGKILL to every process of the controller and waits until they have exited; see cluster.ProcessNode.
func (p *processes) Kill(ctx context.Context, name string) error {
	p.mu.Lock()
	c := p.controllers[name]
	if c == nil {
		p.mu.Unlock()
		return unknown(name)
	}
	c.held = true
	p.broadcastLocked()
	return p.killLocked(ctx, name, slices.Clone(c.running))
}

// killLocked kills programs and waits. It unlocks mu.
func (p *processes) killLocked(ctx context.Context, name string, all []*container) error {
	for _, k := range all {
		if k.current != nil {
			k.current.Planned = true
			_ = k.orderLocked("kill")
		}
	}
	p.mu.Unlock()
	err := p.await(ctx, func() (bool, error) {
		return !slices.ContainsFunc(all, func(k *container) bool {
			return k.current != nil && k.current.Planned
		}), nil
	})
	if err != nil {
		return fmt.Errorf("kill %q: it has not exited: %w", name, err)
	}
	return nil
}

// Freeze stops a process of the controller, with its children, and returns when it is stopped.
func (p *processes) Freeze(ctx context.Context, name string, pid int) error {
	p.mu.Lock()
	var hits []*container
	if c := p.controllers[name]; c != nil {
		for _, k := range c.running {
			if k.current != nil && (pid == 0 || k.current.PID == pid) {
				hits = append(hits, k)
			}
		}
	}
	switch {
	case len(hits) == 0 && pid != 0:
		p.mu.Unlock()
		return fmt.Errorf("freeze controller %q: it has no process %d any more", name, pid)
	case len(hits) == 0:
		p.mu.Unlock()
		return fmt.Errorf("freeze controller %q: it is not running", name)
	case len(hits) > 1:
		// Each container counts its processes by itself, so two may have the same number.
		p.mu.Unlock()
		return fmt.Errorf("freeze controller %q: it has %d processes, and it is not known which one was observed", name,
			len(hits))
	}
	hits[0].frozen = true
	done := hits[0].orderLocked("freeze")
	p.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("freeze controller %q: %w", name, context.Cause(ctx))
	}
}

// Thaw lets the controller's frozen processes go on, or kills them.
func (p *processes) Thaw(ctx context.Context, name string, kill bool) (frozen int, err error) {
	p.mu.Lock()
	var all []*container
	var outcomes []<-chan error
	if c := p.controllers[name]; c != nil {
		for _, k := range c.running {
			if k.current != nil && k.frozen {
				all = append(all, k)
			}
		}
	}
	if kill {
		return len(all), p.killLocked(ctx, name, all)
	}
	for _, k := range all {
		k.frozen = false
		outcomes = append(outcomes, k.orderLocked("thaw"))
	}
	p.mu.Unlock()
	for _, done := range outcomes {
		select {
		case <-done: //nolint:errcheck // an error says that the container has ended
		case <-ctx.Done():
			return len(all), fmt.Errorf("thaw controller %q: %w", name, context.Cause(ctx))
		}
	}
	return len(all), nil
}

// Start lets a killed controller start again and waits until it runs.
func (p *processes) Start(ctx context.Context, name string) error {
	p.mu.Lock()
	c := p.controllers[name]
	if c == nil {
		p.mu.Unlock()
		return unknown(name)
	}
	c.held = false
	for _, k := range c.running {
		if k.current == nil {
			_ = c.startLocked(k)
		}
	}
	p.mu.Unlock()
	err := p.await(ctx, func() (bool, error) {
		return len(c.running) > 0 &&
			!slices.ContainsFunc(c.running, func(k *container) bool { return k.current == nil }), nil
	})
	if err != nil {
		return fmt.Errorf("start %q: it does not run: %w", name, err)
	}
	return nil
}

// Give sets what the controller's processes get besides what their pods say, from their next start on. Where their
// hooks find the coordinator is the launcher's to say.
func (p *processes) Give(_ context.Context, name string, given cluster.Given) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.controllerLocked(name).given = given
	return nil
}

// Route makes new connections of the controller go to the API server.
func (p *processes) Route(_ context.Context, name, apiServer string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.controllers[name]
	if c == nil {
		return unknown(name)
	}
	c.route = apiServer
	return nil
}

// CutConnections closes every open connection of the controller to the API server.
func (p *processes) CutConnections(_ context.Context, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.controllers[name]
	if c == nil {
		return unknown(name)
	}
	if c.proxy != nil {
		c.proxy.Cut()
	}
	return nil
}

// Status returns the controller's processes, running and exited, oldest first.
func (p *processes) Status(_ context.Context, name string) ([]cluster.Process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.controllers[name]
	if c == nil {
		return nil, nil
	}
	all := make([]cluster.Process, len(c.history))
	for i, process := range c.history {
		all[i] = *process
	}
	return all, nil
}

// OpenLog opens the log of a process.
func (p *processes) OpenLog(of cluster.Process) (io.ReadCloser, error) {
	if of.Log == "" {
		return nil, fmt.Errorf("log of container %q of pod %s/%s: %w", of.Container, of.Namespace, of.Pod,
			fs.ErrNotExist)
	}
	return os.Open(of.Log)
}

// Stop ends all programs except API servers and lets none start again.
func (p *processes) Stop(ctx context.Context, _ []types.UID) error {
	p.mu.Lock()
	names := slices.Sorted(maps.Keys(p.controllers))
	p.mu.Unlock()
	var errs []error
	for _, name := range names {
		if !isAPIServer(name) {
			errs = append(errs, p.Kill(ctx, name))
		}
	}
	return errors.Join(errs...)
}

// Faults lists the faults that injectors have begun: none here, since they are in pods that the node's API shows.
func (p *processes) Faults(context.Context) ([]cluster.Fault, error) { return nil, nil }

// EndFaults ends the faults that injectors have begun.
func (p *processes) EndFaults(context.Context) error { return nil }

// Reset lets held controllers start and frozen processes go on, undoes every Route and Give and forgets exited
// processes.
func (p *processes) Reset(ctx context.Context) error {
	p.mu.Lock()
	names := slices.Sorted(maps.Keys(p.controllers))
	p.mu.Unlock()
	for _, name := range names {
		if _, err := p.Thaw(ctx, name, false); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.controllers {
		c.route, c.given = p.first, cluster.Given{}
		c.history = slices.DeleteFunc(c.history, func(r *cluster.Process) bool { return !r.Running() })
		if c.held {
			c.held = false
			for _, k := range c.running {
				if k.current == nil {
					_ = c.startLocked(k)
				}
			}
		}
	}
	return nil
}

// close ends the controllers' proxies. What runs goes on without us until the node is removed.
func (p *processes) close() {
	p.mu.Lock()
	p.closed = true
	var proxies []*passthrough.Proxy
	for _, c := range p.controllers {
		if c.proxy != nil {
			proxies = append(proxies, c.proxy)
		}
	}
	p.mu.Unlock()
	for _, proxy := range proxies {
		proxy.Close()
	}
}

func unknown(name string) error { return fmt.Errorf("no process of %q has been seen yet", name) }
