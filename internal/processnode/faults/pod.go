package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/chaos/inject/fault"
)

// PodConfig says what faults need of a pod. All fields are required, except those of a Service.
type PodConfig struct {
	UID             types.UID
	Namespace, Name string
	// Hostname and Subdomain are those of the pod's spec: its name below a headless Service.
	Hostname, Subdomain string
	// Labels returns the pod's labels, which are read-only.
	Labels func() map[string]string
	// IP is the pod's own address, and Loopback the one that it uses as 127.0.0.1; both are Config.Host on a machine
	// with only one loopback address.
	IP, Loopback netip.Addr
	// Containers run as long as the pod does: the main ones, and then the sidecars. Init are the other init containers.
	Containers, Init []Container
	// DialAPIServer connects to the API server that the pod must use at present.
	DialAPIServer func(context.Context) (net.Conn, error)
}

// Container is a container of a pod, with the processes that run one after the other in it. The methods may be called
// at any time.
type Container interface {
	Name() string
	// Started reports whether a process has been started. Before that the next three methods must not be called.
	Started() bool
	// Hooked reports whether the program has hooks in its standard library, and Heeds whether these heed faults that
	// begin while it runs.
	Hooked() bool
	Heeds() (bool, error)
	// Paths returns the paths by which the program may open a file.
	Paths(path string) []string
	// PID returns the ID of the process; 0 if none is running.
	PID() int
	// End sends a signal to the process, once. Its exit counts as planned, and is followed by a back-off all the same.
	// Without a process End is a no-op.
	End(syscall.Signal)
	// Forgive ends the back-off; ends of before count no longer.
	Forgive()
	// MemoryLimit is the limit that the pod's spec gives the container, in bytes; 0: none. The node does not enforce
	// it.
	MemoryLimit() int64
	// ShortOfMemory says that from now on a fault may let the process run out of memory. If that ends it, the exit
	// counts as planned, and is followed by a back-off all the same. It returns the process's ID; 0 if none is running.
	ShortOfMemory() (pid int)
	// Suspend stops the process and returns when it is stopped. Resume lets it go on, unless another one has stopped it
	// meanwhile. If no process runs, or another one has stopped it, resume is nil.
	Suspend() (resume func())
}

// Pod is a pod that can be disturbed: its way to the API server leads through its link, and it asks where to connect
// and what names mean.
type Pod struct {
	set     *Set
	config  PodConfig
	link    *apiLink
	lies    lies
	network connections

	mu    sync.Mutex
	pages map[string]*page // by container; only those with hooks have one
}

// Add makes a pod known, so that faults of it can begin. Close forgets it.
func (s *Set) Add(config PodConfig) (*Pod, error) {
	p := &Pod{set: s, config: config, pages: map[string]*page{}}
	var err error
	if p.link, err = p.newLink(); err != nil {
		return nil, fmt.Errorf("create a proxy: %w", err)
	}
	s.podsMu.Lock()
	defer s.podsMu.Unlock()
	s.pods[config.UID] = p
	return p, nil
}

// Close ends the pod's faults and its connections to API servers. Its processes have exited.
func (p *Pod) Close() {
	s := p.set
	s.podsMu.Lock()
	delete(s.pods, p.config.UID)
	s.podsMu.Unlock()
	p.forgetPages()
	s.forget(p)
	p.link.close()
}

// APIServer returns the address, host:port, at which the pod reaches the API server.
func (p *Pod) APIServer() string { return p.link.proxy.Addr() }

// Cut closes the pod's open connections to the API server.
func (p *Pod) Cut() { p.link.proxy.Cut() }

func (s *Set) pod(uid types.UID) *Pod {
	s.podsMu.Lock()
	defer s.podsMu.Unlock()
	return s.pods[uid]
}

func (s *Set) allPods() []*Pod {
	s.podsMu.Lock()
	defer s.podsMu.Unlock()
	all := make([]*Pod, 0, len(s.pods))
	for _, p := range s.pods {
		all = append(all, p)
	}
	return all
}

// findPod returns a pod that satisfies the condition, or nil.
func (s *Set) findPod(is func(*Pod) bool) *Pod {
	all := s.allPods()
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return nil
}

// hasOwnAddress reports whether the pod's address is not also the machine's and every other pod's.
func (p *Pod) hasOwnAddress() bool { return p.config.IP != p.set.config.Host }

// targets returns the containers that a fault is about.
func (p *Pod) targets(f fault.Fault) ([]Container, error) {
	all := p.config.Containers
	if len(f.Containers) == 0 {
		return all, nil
	}
	var of []Container
	for _, name := range f.Containers {
		i := slices.IndexFunc(all, func(c Container) bool { return c.Name() == name })
		if i < 0 {
			return nil, fmt.Errorf("%w: pod %s/%s has no container %q", errInvalid, p.config.Namespace, p.config.Name,
				name)
		}
		of = append(of, all[i])
	}
	return of, nil
}

// wholePod returns an error unless the fault is about all containers of the pod.
func (p *Pod) wholePod(f fault.Fault) error {
	of, err := p.targets(f)
	if err != nil {
		return err
	}
	if len(of) < len(p.config.Containers) {
		return unsupported("it does not see which container of a pod a connection comes from; leave containers out")
	}
	return nil
}

// asksNode returns an error unless the pod's programs ask the node before they connect and look names up.
func (p *Pod) asksNode() error {
	if !p.hasOwnAddress() {
		return unsupported("this machine has only one loopback address, so pods have none of their own")
	}
	for _, c := range p.config.Containers {
		switch {
		case !c.Started():
			return fmt.Errorf("container %q has not started", c.Name())
		case !c.Hooked():
			return unsupported("the program of container %q has no hooks in its standard library, so it does not ask "+
				"the node for names and addresses: build it with `build:`, or `trommel build`", c.Name())
		}
	}
	return nil
}

// heedsFaults returns an error unless the containers' programs heed faults that begin while they run.
func (p *Pod) heedsFaults(containers []Container) error {
	var errs []error
	for _, c := range containers {
		if !c.Started() {
			errs = append(errs, fmt.Errorf("container %q has not started", c.Name()))
			continue
		}
		heeds := false
		if c.Hooked() {
			var err error
			if heeds, err = c.Heeds(); err != nil {
				errs = append(errs, err)
			}
		}
		if !heeds {
			errs = append(errs, unsupported("the program of container %q has no hooks for faults in its standard "+
				"library: build it with `build:`, or `trommel build`, by this version of Trommel", c.Name()))
		}
	}
	return errors.Join(errs...)
}
