package processnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/processnode/address"
	"github.com/trommel-dev/trommel/internal/processnode/faults"
	"github.com/trommel-dev/trommel/internal/processnode/volumes"
)

// pod runs one pod. Its fields below "guarded" are guarded by Node.mu; the others are set before it runs.
type pod struct {
	node       *Node
	uid        types.UID
	namespace  string
	name       string
	spec       *corev1.PodSpec // read only
	controller *controller     // nil if the pod does not belong to a controller under test
	faults     *faults.Pod     // its way to the API server and to others
	address    address.Address
	dir        string
	init       []*container
	containers []*container

	dirty   chan struct{} // contains a token when the status must be written
	volumes *volumes.Volumes

	// guarded
	object      *corev1.Pod // newest known; read only
	ending      ending
	gone        bool // the object has been deleted
	started     metav1.Time
	preparing   error // why the pod cannot start yet
	initialized bool
	conditions  conditions
}

// ending is how a pod ends. Node.mu guards its fields below the channels, which everyone may wait for.
type ending struct {
	stopping chan struct{} // closed when the pod must end
	kill     chan struct{} // closed when its grace period is over
	ended    chan struct{} // closed when nothing of it is left

	killOnce sync.Once
	begun    bool           // stopping is closed
	graces   []*clock.Timer // close kill
}

func newEnding() ending {
	return ending{stopping: make(chan struct{}), kill: make(chan struct{}), ended: make(chan struct{})}
}

// begin closes stopping. It returns false if it was closed already.
func (e *ending) begin() bool {
	if e.begun {
		return false
	}
	e.begun = true
	close(e.stopping)
	return true
}

// killAfter closes kill after a grace period. A later call can only shorten it.
func (e *ending) killAfter(ctx context.Context, grace time.Duration) {
	kill := func() { e.killOnce.Do(func() { close(e.kill) }) }
	if grace <= 0 {
		kill()
		return
	}
	e.graces = append(e.graces, clock.AfterFunc(ctx, grace, kill))
}

func (e *ending) stopTimers() {
	for _, t := range e.graces {
		t.Stop()
	}
}

func (n *Node) newPodLocked(object *corev1.Pod) (*pod, error) {
	p := &pod{
		node: n, uid: object.UID, namespace: object.Namespace, name: object.Name, spec: &object.Spec, object: object,
		dir:    filepath.Join(n.config.Dir, string(object.UID)),
		ending: newEnding(), dirty: make(chan struct{}, 1),
		started:    metav1.NewTime(n.now()),
		conditions: conditions{now: n.now, transitions: map[corev1.PodConditionType]corev1.PodCondition{}},
	}
	p.volumes = volumes.New(volumes.Pod{
		Client: n.client, Logger: n.log, UID: p.uid, Namespace: p.namespace, Name: p.name, Spec: p.spec,
		Unregistered: n.config.Unregistered, CA: n.config.CA, Dir: p.dir,
		Claims: filepath.Join(n.config.Dir, "claims"), Field: p.field,
	})
	var err error
	if p.address, err = n.addresses.Take(); err != nil {
		return nil, err
	}
	if name := object.Annotations[cluster.AnnotationController]; name != "" {
		c, err := n.controllerLocked(name)
		if err != nil {
			n.addresses.GiveBack(p.address)
			return nil, err
		}
		if server := object.Annotations[cluster.AnnotationAPIServer]; server == "" ||
			n.config.APIServers[server] != "" {
			c.annotated = server
		} else {
			n.log.Warn("unknown API server in annotation", "pod", p.name, "apiServer", server)
		}
		p.controller = c
	}
	for i := range p.spec.InitContainers {
		p.init = append(p.init, &container{pod: p, spec: &p.spec.InitContainers[i], isInit: true})
	}
	for i := range p.spec.Containers {
		p.containers = append(p.containers, &container{pod: p, spec: &p.spec.Containers[i]})
	}
	if p.faults, err = p.addToFaults(); err != nil {
		n.addresses.GiveBack(p.address)
		return nil, err
	}
	return p, nil
}

// terminateLocked ends the pod's processes: SIGTERM now, SIGKILL after grace. A later call can only shorten the grace.
func (p *pod) terminateLocked(grace time.Duration) {
	if p.ending.begin() {
		p.node.broadcastLocked()
	}
	p.ending.killAfter(p.node.ctx, grace)
}

// run runs the pod until it has ended.
func (p *pod) run() {
	ctx, cancel := context.WithCancel(p.node.logging)
	var tasks sync.WaitGroup
	tasks.Go(func() { p.writeStatuses(ctx) })
	stopped, stop := context.WithCancel(ctx)
	tasks.Go(func() {
		select {
		case <-p.ending.stopping:
		case <-ctx.Done():
		}
		stop()
	})
	if p.prepare(stopped) {
		tasks.Go(func() { p.volumes.Follow(stopped) })
		p.runContainers(stopped)
	}
	p.touch()
	// A pod that has completed stays until it is deleted.
	<-p.ending.stopping
	cancel()
	tasks.Wait()
	p.finish()
	_ = os.RemoveAll(p.dir)
	n := p.node
	n.mu.Lock()
	delete(n.pods, p.uid)
	p.ending.stopTimers()
	n.broadcastLocked()
	n.mu.Unlock()
	p.faults.Close()
	n.addresses.GiveBack(p.address)
	close(p.ending.ended)
}

// prepare prepares what the containers need. It retries until it succeeds or the pod must end.
func (p *pod) prepare(ctx context.Context) bool {
	delay := 100 * time.Millisecond
	for {
		err := p.prepareOnce(ctx)
		if ctx.Err() != nil {
			return false
		}
		p.node.mu.Lock()
		p.preparing = err
		p.node.mu.Unlock()
		if err == nil {
			if !p.isInjector() { // see writeStatuses
				p.touch()
			}
			return true
		}
		p.touch()
		p.node.log.Warn("prepare pod", "namespace", p.namespace, "pod", p.name, "error", err)
		if clock.Sleep(ctx, delay) != nil {
			return false
		}
		delay = min(2*delay, 5*time.Second)
	}
}

func (p *pod) prepareOnce(ctx context.Context) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	folders, err := p.volumes.Write(ctx, p.faults.APIServer())
	if err != nil {
		return err
	}
	for _, c := range append(append([]*container{}, p.init...), p.containers...) {
		if err := c.prepare(ctx, folders); err != nil {
			return fmt.Errorf("container %q: %w", c.spec.Name, err)
		}
	}
	return nil
}

// runContainers runs the init containers one after the other, then the others, and waits until none of them will run
// again. It starts init containers with restart policy Always in their turn and leaves them running.
func (p *pod) runContainers(ctx context.Context) {
	var main, sidecars sync.WaitGroup
	sidecarCtx, stopSidecars := context.WithCancel(ctx)
	defer sidecars.Wait()
	defer stopSidecars()
	for _, c := range p.init {
		if c.program.idle {
			continue
		}
		if c.isSidecar() {
			sidecars.Go(func() { c.runLoop(sidecarCtx) })
			continue
		}
		c.runLoop(ctx)
		if !c.succeeded() {
			return
		}
	}
	p.node.mu.Lock()
	p.initialized = true
	p.node.mu.Unlock()
	for _, c := range p.containers {
		if c.program.idle {
			main.Go(func() { <-ctx.Done() })
			continue
		}
		main.Go(func() { c.runLoop(ctx) })
	}
	main.Wait()
}

// finish reports to the API server that a deleted pod's processes have exited. Only then is the object deleted.
func (p *pod) finish() {
	n := p.node
	delay := 50 * time.Millisecond
	for {
		n.mu.Lock()
		skip := p.gone || n.closed || n.config.Unregistered
		n.mu.Unlock()
		if skip {
			return
		}
		ctx, cancel := clock.WithTimeout(n.ctx, 10*time.Second)
		err := p.writeStatus(ctx)
		if err == nil || !apierrors.IsNotFound(err) {
			zero := int64(0)
			err = n.client.CoreV1().Pods(p.namespace).Delete(ctx, p.name, metav1.DeleteOptions{
				GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &p.uid},
			})
		}
		cancel()
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		if !errors.Is(err, context.Canceled) {
			n.log.Warn("delete pod", "namespace", p.namespace, "pod", p.name, "error", err)
		}
		if clock.Sleep(n.ctx, delay) != nil {
			return
		}
		delay = min(2*delay, 5*time.Second)
	}
}

// touch causes the pod's status to be written soon.
func (p *pod) touch() {
	select {
	case p.dirty <- struct{}{}:
	default:
	}
}

// objects reads objects of the pod's namespace.
func (p *pod) objects() volumes.Objects {
	return volumes.Objects{Client: p.node.client, Namespace: p.namespace}
}
