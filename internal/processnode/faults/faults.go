// Package faults disturbs pods that run as processes of this machine: their connections and requests, the names that
// they look up, their files and the processes themselves. Injectors begin and end faults over a socket, see package
// fault. Whoever runs the pods knows no kind of fault: it makes its pods known (Set.Add), gives each of them the
// address of its link as its API server (Pod.APIServer), and passes on what their programs ask (Pod.Resolve, Pod.Dial).
package faults

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
)

// Config says what faults need of the node. All fields are required, except Certificate and ServiceCIDR.
type Config struct {
	// Node is the Node object's name.
	Node string
	// Socket is the path of the socket for injectors.
	Socket string
	// Host is the machine's own loopback address.
	Host netip.Addr
	// Dir contains the node's own files, and ServiceAccount is the path in each pod of what it needs to be a client.
	// Faults of files spare both.
	Dir, ServiceAccount string
	// CA is the PEM certificate of API servers, and Certificate one of them, issued by CA. Without it requests to API
	// servers cannot be disturbed.
	CA          []byte
	Certificate *tls.Certificate
	// ServiceCIDR contains the addresses of Services. The first one is the API servers'.
	ServiceCIDR netip.Prefix
	// Service gets a Service, and Headless lists the addresses of the pods of a headless one, or only that of the pod
	// with the given host name.
	Service  func(ctx context.Context, namespace, name string) (*corev1.Service, error)
	Headless func(ctx context.Context, service *corev1.Service, host string) ([]string, error)
	// Changed returns a channel that is closed when a process has started or exited.
	Changed func() <-chan struct{}
	// Patience is how long a program waits for an answer to Pod.Resolve, and an injector may take to send its request.
	Patience time.Duration
	Logger   *slog.Logger
}

// Set is the faults at the pods of one node. All its methods can be called at any time.
type Set struct {
	ctx      context.Context // carries the clock, and closes connections that are left after the end
	config   Config
	log      *slog.Logger
	listener net.Listener
	pages    pages

	// mu may be held while a container or podsMu is locked, but not the other way round.
	mu     sync.Mutex
	active map[string]*activeFault // by ID

	podsMu sync.Mutex
	pods   map[types.UID]*Pod
}

type activeFault struct {
	fault.Listed
	pod   *Pod
	end   func()        // undoes the fault and returns when nothing of it is left
	timer *clock.Timer  // ends it in case no injector does
	ended chan struct{} // closed at the end of end
	// ending is set when a caller has begun to end it. Guarded by Set.mu.
	ending bool
}

// New listens for injectors. Serve must be called; the set ends with the context, by whose clock the faults last.
func New(ctx context.Context, config Config) (*Set, error) {
	s := &Set{
		ctx: ctx, config: config, log: config.Logger, active: map[string]*activeFault{}, pods: map[types.UID]*Pod{},
	}
	s.pages.all = map[*page]struct{}{}
	if err := s.listen(); err != nil {
		return nil, fmt.Errorf("listen for injectors: %w", err)
	}
	return s, nil
}

// begin begins a fault, or replaces the one with this ID if it is another. It returns when the fault is in effect.
func (s *Set) begin(ctx context.Context, id string, f fault.Fault) error {
	p, begin, err := s.prepare(ctx, f)
	if err != nil {
		return err
	}
	for {
		s.mu.Lock()
		old := s.active[id]
		if old == nil {
			break
		}
		same := !old.ending && sameFault(old.Fault, f)
		s.mu.Unlock()
		if same {
			return nil
		}
		if err := s.end(ctx, id); err != nil {
			return err
		}
	}
	defer s.mu.Unlock()
	// A pod forgets its faults after it has left the list.
	if s.pod(f.Pod) != p {
		return fmt.Errorf("%w: %s", errNoTarget, f.Pod)
	}
	active := &activeFault{
		Listed: fault.Listed{ID: id, Fault: f, Began: clock.Now(s.ctx)}, pod: p, ended: make(chan struct{}),
	}
	if active.end, err = begin(); err != nil {
		return err
	}
	if !f.EndsAt.IsZero() {
		active.timer = clock.AfterFunc(clock.Due(s.ctx), clock.Until(s.ctx, f.EndsAt), func() {
			s.log.Warn("end a fault whose injector has not ended it", "disruption", f.Disruption, "kind", f.Kind)
			s.finish(active)
		})
	}
	s.active[id] = active
	return nil
}

func sameFault(a, b fault.Fault) bool {
	return a.Kind == b.Kind && a.Pod == b.Pod && bytes.Equal(a.Spec, b.Spec) &&
		slices.Equal(a.Containers, b.Containers) && a.EndsAt.Equal(b.EndsAt)
}

// end ends a fault and returns when nothing of it is left.
func (s *Set) end(ctx context.Context, id string) error {
	s.mu.Lock()
	f := s.active[id]
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	go s.finish(f)
	select {
	case <-f.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end fault %s: %w", id, ctx.Err())
	}
}

// finish ends a fault once.
func (s *Set) finish(f *activeFault) {
	s.mu.Lock()
	again := f.ending
	f.ending = true
	s.mu.Unlock()
	if again {
		return
	}
	if f.timer != nil {
		f.timer.Stop()
	}
	f.end()
	s.mu.Lock()
	delete(s.active, f.ID)
	s.mu.Unlock()
	close(f.ended)
}

// forget ends the faults of a pod that has ended.
func (s *Set) forget(p *Pod) {
	s.mu.Lock()
	var of []*activeFault
	for _, f := range s.active {
		if f.pod == p {
			of = append(of, f)
		}
	}
	s.mu.Unlock()
	for _, f := range of {
		s.finish(f)
	}
}

// list lists the faults by their IDs.
func (s *Set) list() []*activeFault {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*activeFault, 0, len(s.active))
	for _, f := range s.active {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b *activeFault) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// List lists the faults that injectors have begun and not ended.
func (s *Set) List() []cluster.Fault {
	var list []cluster.Fault
	for _, f := range s.list() {
		list = append(list, cluster.Fault{
			ID: f.ID, Disruption: f.Disruption, Kind: string(f.Kind),
			Namespace: f.pod.config.Namespace, Pod: f.pod.config.Name, Began: f.Began,
		})
	}
	return list
}

// EndAll ends all faults and returns when nothing of them is left.
func (s *Set) EndAll(ctx context.Context) error {
	var errs []error
	for _, f := range s.list() {
		errs = append(errs, s.end(ctx, f.ID))
	}
	return errors.Join(errs...)
}
