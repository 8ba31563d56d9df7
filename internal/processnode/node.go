// Package processnode is a node whose pods run as local processes. It does what a kubelet does, as far as controllers
// under test and the objects around them need it.
//
// The content of a pod's volumes is written to local directories. A program with hooks in its standard library sees the
// files, addresses and names of its pod. Other programs share this machine's; mount paths in their commands, arguments
// and environment values are replaced by the local directories. Not supported: liveness and startup probes, lifecycle
// hooks, resource limits, security contexts.
package processnode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/clock/keeper"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/processnode/address"
	"github.com/trommel-dev/trommel/internal/processnode/faults"
	"github.com/trommel-dev/trommel/internal/processnode/volumes"
)

// DefaultName is the default of Config.Name.
const DefaultName = "process-node"

// Config configures a node. All fields without a default are required, except Route.
type Config struct {
	// Name of the Node object; default DefaultName.
	Name string
	// Unregistered says that the cluster does not know the node: nothing binds pods to it, and neither a Node nor its
	// pods are objects. It runs the pods that are given to Run.
	Unregistered bool
	// RESTConfig is the node's access to the API; it needs all permissions.
	RESTConfig *rest.Config
	// APIServers maps the names of API servers to their addresses, host:port, which do not change.
	APIServers map[string]string
	// First is the API server for a pod's connections if neither its annotation nor Route names another.
	First string
	// CA is the PEM certificate with which pods verify API servers.
	CA []byte
	// Certificate is an API server's, issued by CA, for a proxy that disturbs pods' requests; without it the node
	// cannot do that.
	Certificate *tls.Certificate
	// ServiceCIDR and PodCIDR contain the addresses of Services and of simulated pods. A process with hooks that dials
	// one of them is connected to what Route returns: a loopback address, host:port, or the API server that the pod is
	// connected to. An error of Route says why nothing listens there, and the connection is refused. Without Route the
	// machine handles these addresses.
	ServiceCIDR, PodCIDR netip.Prefix
	Route                func(ctx context.Context, address string) (to string, apiServer bool, err error)
	// Dir is the directory for the pods' files, LogDir for their output.
	Dir, LogDir string
	// Logger receives errors that no method returns; default: none.
	Logger *slog.Logger
	// Keeper keeps the clock of the pods' processes; nil: they run in real time.
	Keeper *keeper.Keeper
	// Clock is the cluster's, by which the node's and its pods' times pass; nil is this machine's.
	Clock *clock.Clock
}

// Node is a running process node. It implements cluster.ProcessNode.
type Node struct {
	config Config
	client kubernetes.Interface
	log    *slog.Logger
	ctx    context.Context // cancelled by Close
	// logging is a context without deadline that carries the logger and the clock; ctx does, too.
	logging context.Context
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	hooked  *hooked // executables with hooks
	heeding *hooked // executables that heed faults that begin while they run

	registration registration
	addresses    *address.Pool
	names        names
	queues       queues
	faults       *faults.Set

	mu          sync.Mutex
	closed      bool
	pods        map[types.UID]*pod
	stopped     map[types.UID]bool // pods that Stop has stopped and whose objects still exist
	controllers map[string]*controller
	changed     chan struct{} // closed and replaced when the fields below mu change
}

var _ cluster.ProcessNode = (*Node)(nil)

// Start registers the node and starts to run its pods. It returns when the Node object exists and pods can be bound to
// it.
func Start(ctx context.Context, config Config) (*Node, error) {
	if config.Name == "" {
		config.Name = DefaultName
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.APIServers[config.First] == "" {
		return nil, fmt.Errorf("process node: no API server %q", config.First)
	}
	for _, dir := range []string{config.Dir, config.LogDir, filepath.Join(config.Dir, "queues")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("process node: %w", err)
		}
	}
	client, err := kubernetes.NewForConfig(config.RESTConfig)
	if err != nil {
		return nil, fmt.Errorf("process node: %w", err)
	}
	n := &Node{
		config: config, client: client, log: config.Logger,
		hooked: newHooked(podMarker), heeding: newHooked(faultsMarker), addresses: address.NewPool(),
		names: names{client}, queues: queues(filepath.Join(config.Dir, "queues")),
		pods: map[types.UID]*pod{}, stopped: map[types.UID]bool{}, controllers: map[string]*controller{},
		changed: make(chan struct{}),
	}
	// client-go logs to standard error unless the context says otherwise.
	logging := klog.NewContext(clock.With(context.Background(), config.Clock),
		logr.FromSlogHandler(config.Logger.Handler()))
	n.ctx, n.cancel = context.WithCancel(logging)
	n.registration = registration{name: config.Name, client: client, log: config.Logger, ctx: n.ctx}
	n.logging = logging
	if err := n.startAgent(); err != nil {
		n.cancel()
		return nil, fmt.Errorf("process node: %w", err)
	}
	if err := n.startFaults(); err != nil {
		n.cancel()
		n.tasks.Wait()
		return nil, fmt.Errorf("process node: %w", err)
	}
	if config.Unregistered {
		return n, nil
	}
	if err := n.registration.register(ctx); err != nil {
		n.cancel()
		n.tasks.Wait()
		return nil, fmt.Errorf("register process node %q: %w", config.Name, err)
	}
	n.tasks.Go(n.registration.heartbeat)
	if err := n.watchPods(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("process node: %w", err), n.Close(context.WithoutCancel(ctx)))
	}
	return n, nil
}

// NodeName returns the Node object's name.
func (n *Node) NodeName() string { return n.config.Name }

// now is the cluster's time.
func (n *Node) now() time.Time { return n.config.Clock.Now() }

// closeGrace is the time between SIGTERM and SIGKILL when the node closes.
const closeGrace = 300 * time.Millisecond

// Close ends all processes and waits until they have exited. The Node object remains.
func (n *Node) Close(context.Context) error {
	n.mu.Lock()
	n.closed = true
	pods := make([]*pod, 0, len(n.pods))
	for _, p := range n.pods {
		p.terminateLocked(closeGrace)
		pods = append(pods, p)
	}
	n.broadcastLocked()
	n.mu.Unlock()
	n.cancel()
	for _, p := range pods {
		<-p.ending.ended
	}
	n.tasks.Wait()
	n.addresses.Close()
	return nil
}

// broadcastLocked wakes all goroutines that wait for a change.
func (n *Node) broadcastLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// watchPods watches the pods that are bound to this node.
func (n *Node) watchPods(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(n.client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", n.config.Name).String()
			volumes.WatchOn(o)
		}))
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { n.observe(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { n.observe(o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if p, ok := o.(*corev1.Pod); ok {
				n.forget(p.UID)
			}
		},
	})
	if err != nil {
		return err
	}
	n.tasks.Go(func() { informer.RunWithContext(n.ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("list pods: %w", context.Cause(ctx))
	}
	return nil
}

// observe handles a pod's current object.
func (n *Node) observe(object *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.stopped[object.UID] {
		return
	}
	p := n.pods[object.UID]
	if p == nil {
		if object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed {
			if object.DeletionTimestamp == nil {
				return
			}
		}
		var err error
		if p, err = n.newPodLocked(object); err != nil {
			// The next event of the pod tries again.
			n.log.Error("run pod", "namespace", object.Namespace, "pod", object.Name, "error", err)
			return
		}
		n.pods[object.UID] = p
		go p.run()
	}
	if !maps.Equal(p.object.Labels, object.Labels) || !maps.Equal(p.object.Annotations, object.Annotations) {
		p.volumes.Changed()
	}
	p.object = object
	if object.DeletionTimestamp != nil {
		grace := int64(0)
		if object.DeletionGracePeriodSeconds != nil {
			grace = *object.DeletionGracePeriodSeconds
		}
		p.terminateLocked(time.Duration(grace) * time.Second)
	}
}

// Run runs a pod of which there is no object, until Stop; see Config.Unregistered. Its UID must be unique. Its tokens
// are those of its service account, and its volumes are as its spec says: nothing is added to it.
func (n *Node) Run(pod *corev1.Pod) { n.observe(pod) }

// forget ends a pod whose object has been deleted.
func (n *Node) forget(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.stopped, uid)
	if p := n.pods[uid]; p != nil {
		p.gone = true
		p.terminateLocked(0)
	}
}

// Stop ends all pods except those with the given UIDs and waits until their processes have exited, and then all faults.
// It does not report this to the API server, and the pods do not start again: the caller must delete their objects.
func (n *Node) Stop(ctx context.Context, keep []types.UID) error {
	n.mu.Lock()
	var ending []*pod
	for uid, p := range n.pods {
		if slices.Contains(keep, uid) {
			continue
		}
		n.stopped[uid] = true
		p.gone = true
		p.terminateLocked(0)
		ending = append(ending, p)
	}
	n.mu.Unlock()
	for _, p := range ending {
		select {
		case <-p.ending.ended:
		case <-ctx.Done():
			return fmt.Errorf("stop pod %s/%s: %w", p.namespace, p.name, ctx.Err())
		}
	}
	// Their injectors have exited.
	return n.EndFaults(ctx)
}
