package processnode

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trommel-dev/trommel/internal/processnode/address"
	"github.com/trommel-dev/trommel/internal/processnode/faults"
	"github.com/trommel-dev/trommel/internal/processnode/volumes"
)

func (n *Node) faultSocket() string { return filepath.Join(n.config.Dir, "faults.sock") }

// startFaults lets injectors disturb the node's pods.
func (n *Node) startFaults() error {
	set, err := faults.New(n.ctx, faults.Config{
		Node: n.config.Name, Socket: n.faultSocket(), Host: address.Host.IP,
		Dir: n.config.Dir, ServiceAccount: volumes.ServiceAccountMount,
		CA: n.config.CA, Certificate: n.config.Certificate, ServiceCIDR: n.config.ServiceCIDR,
		Service: func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
			return n.client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		Headless: n.names.headless,
		Changed: func() <-chan struct{} {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.changed
		},
		Patience: agentTimeout, Logger: n.log,
	})
	if err != nil {
		return err
	}
	n.faults = set
	n.tasks.Go(set.Serve)
	return nil
}

// Ingress returns where an API server has to connect for an address of a pod on this node, host:port: usually to that
// address.
func (n *Node) Ingress(to string) (string, error) { return n.faults.Ingress(to) }

// addToFaults makes the pod known to faults. Its containers exist.
func (p *pod) addToFaults() (*faults.Pod, error) {
	config := faults.PodConfig{
		UID: p.uid, Namespace: p.namespace, Name: p.name, Hostname: p.spec.Hostname, Subdomain: p.spec.Subdomain,
		Labels: func() map[string]string {
			p.node.mu.Lock()
			defer p.node.mu.Unlock()
			return p.object.Labels
		},
		IP: p.address.IP, Loopback: p.address.Loopback,
		DialAPIServer: func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", p.node.config.APIServers[p.node.routeOf(p.controller)])
		},
	}
	for _, c := range slices.Concat(p.containers, p.init) {
		if c.isInit && !c.isSidecar() {
			config.Init = append(config.Init, disturbed{c})
		} else {
			config.Containers = append(config.Containers, disturbed{c})
		}
	}
	return p.node.faults.Add(config)
}

// disturbed is a container as faults see it. It implements faults.Container.
type disturbed struct{ *container }

func (d disturbed) Name() string { return d.spec.Name }

func (d disturbed) Started() bool {
	d.pod.node.mu.Lock()
	defer d.pod.node.mu.Unlock()
	return d.starts > 0
}

func (d disturbed) Hooked() bool { return d.program.hooked }

func (d disturbed) Heeds() (bool, error) { return d.pod.node.heeding.has(d.program.path) }

func (d disturbed) Paths(path string) []string { return d.program.files.Names(path) }

func (d disturbed) PID() int {
	d.pod.node.mu.Lock()
	defer d.pod.node.mu.Unlock()
	if d.current == nil {
		return 0
	}
	return d.current.process.PID()
}

func (d disturbed) End(signal syscall.Signal) {
	d.pod.node.mu.Lock()
	defer d.pod.node.mu.Unlock()
	if r := d.current; r != nil && !r.failed {
		r.failed, r.record.Planned = true, true
		r.process.Signal(signal)
	}
}

func (d disturbed) MemoryLimit() int64 {
	limit := d.spec.Resources.Limits.Memory().Value()
	if whole := d.pod.spec.Resources; whole != nil {
		if all := whole.Limits.Memory().Value(); all > 0 && (limit == 0 || all < limit) {
			limit = all
		}
	}
	return limit
}

func (d disturbed) ShortOfMemory() (pid int) {
	d.pod.node.mu.Lock()
	defer d.pod.node.mu.Unlock()
	r := d.current
	if r == nil {
		return 0
	}
	r.short = true
	return r.process.PID()
}

func (d disturbed) Forgive() {
	d.pod.node.mu.Lock()
	defer d.pod.node.mu.Unlock()
	d.forgiven++
	d.pod.node.broadcastLocked()
}

func (d disturbed) Suspend() (resume func()) {
	n := d.pod.node
	n.mu.Lock()
	r := d.current
	if r == nil || r.frozen {
		n.mu.Unlock()
		return nil
	}
	n.mu.Unlock()
	r.process.Freeze()
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		// Freeze sets frozen before it stops a process, under the same lock.
		if !r.frozen {
			r.process.Thaw()
		}
	}
}
