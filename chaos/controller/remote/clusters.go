package remote

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/internal/controllers"
)

// clusters are the connections to other clusters, one for each RemoteCluster. It may be used concurrently.
type clusters struct {
	env    *controller.Env
	scheme *runtime.Scheme

	// installing has an entry for each cluster in which something is being installed.
	installing chan struct{}

	mu          sync.Mutex
	closed      bool
	connections map[string]*connection
	id          string // of this cluster; empty: not read yet
	// The queues of the controllers, once they have started.
	ofClusters, ofDisruptions queue
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// queued is a source of requests that only the connections make.
func (c *clusters) queued(to *queue) source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		*to = q
		return nil
	})
}

// Start is part of manager.Runnable: it ends all connections when the manager ends.
func (c *clusters) Start(ctx context.Context) error {
	<-ctx.Done()
	c.mu.Lock()
	c.closed = true
	all := slices.Collect(maps.Values(c.connections))
	c.connections = map[string]*connection{}
	c.mu.Unlock()
	var stopping sync.WaitGroup
	for _, connection := range all {
		stopping.Go(connection.stop)
	}
	stopping.Wait()
	return nil
}

// get returns the connection to a cluster; nil if there is none.
func (c *clusters) get(name string) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connections[name]
}

// known returns the state of a cluster; the zero value if there is no connection.
func (c *clusters) known(name string) state {
	if connection := c.get(name); connection != nil {
		return connection.now()
	}
	return state{}
}

// remove ends a connection, if there is one. It returns when nothing of it is left.
func (c *clusters) remove(name string) {
	c.mu.Lock()
	connection := c.connections[name]
	delete(c.connections, name)
	c.mu.Unlock()
	if connection != nil {
		connection.stop()
	}
}

// connect ensures that there is a connection to the target. A connection to another one ends.
func (c *clusters) connect(ctx context.Context, want target, to *rest.Config) error {
	if old := c.get(want.name); old != nil && old.target.key == want.key {
		return nil
	}
	id, err := c.clusterID(ctx)
	if err != nil {
		return fmt.Errorf("ID of this cluster: %w", err)
	}
	c.remove(want.name)
	if wrap := c.env.Config.Remote.Wrap; wrap != nil {
		to.Wrap(wrap)
	}
	want.installer, want.installing = c.env.Config.Remote.Installer, c.installing
	want.parent, want.look = id, c.env.Config.Remote.Look
	if want.look == 0 {
		want.look = defaultLook
	}
	name := want.name
	want.tell = events{
		changed: func() { c.changed(name) },
		child:   c.wake,
		sweep:   func(ctx context.Context) { c.sweep(ctx, name) },
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	made, err := newConnection(want, to, c.scheme)
	if err != nil {
		return err
	}
	c.connections[name] = made
	return nil
}

// clusterID identifies this cluster.
func (c *clusters) clusterID(ctx context.Context) (string, error) {
	c.mu.Lock()
	id := c.id
	c.mu.Unlock()
	if id != "" {
		return id, nil
	}
	system := &corev1.Namespace{}
	if err := c.env.Reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id = string(system.UID)
	return c.id, nil
}

// changed wakes the controllers for a RemoteCluster and all disruptions that use it.
func (c *clusters) changed(name string) {
	c.mu.Lock()
	q := c.ofClusters
	c.mu.Unlock()
	if q != nil {
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
	c.wakeUsers(name)
}

// wakeUsers wakes the controller for all disruptions that use a cluster.
func (c *clusters) wakeUsers(name string) {
	c.mu.Lock()
	q := c.ofDisruptions
	c.mu.Unlock()
	if q == nil {
		return
	}
	var list chaos.DisruptionList
	err := c.env.Client.List(context.Background(), &list, client.MatchingFields{indexCluster: name},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return // the cache is closed
	}
	for i := range list.Items {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
}

// wake wakes the controller for a disruption.
func (c *clusters) wake(key types.NamespacedName) {
	c.mu.Lock()
	q := c.ofDisruptions
	c.mu.Unlock()
	if q != nil && key.Name != "" {
		q.Add(reconcile.Request{NamespacedName: key})
	}
}

// sweep deletes the children in a cluster whose parents have gone without them, for instance because the finalizer was
// removed by another client. It touches only what names this cluster and the UID of a disruption that does not exist
// here.
func (c *clusters) sweep(ctx context.Context, name string) {
	connection := c.get(name)
	if connection == nil {
		return
	}
	var list chaos.DisruptionList
	if err := connection.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	for i := range list.Items {
		child := &list.Items[i]
		if child.DeletionTimestamp != nil || child.Annotations[AnnotationParentCluster] != connection.target.parent ||
			child.Annotations[AnnotationParentUID] == "" {
			continue
		}
		exists := func(reader client.Reader) (bool, error) {
			parent, err := controller.Get(ctx, reader, parentOf(child))
			return err != nil || parent != nil && string(parent.UID) == child.Annotations[AnnotationParentUID], err
		}
		if there, _ := exists(c.env.Client); there {
			continue
		}
		if there, _ := exists(c.env.Reader); there { // or it cannot be known
			continue
		}
		deleting, cancel := context.WithTimeout(ctx, patience)
		connection.failed(controllers.Delete(deleting, connection.client, child.DeepCopy()))
		cancel()
	}
}

// lookEvery is how often clusters are looked at.
func (c *clusters) lookEvery() time.Duration {
	if c.env.Config.Remote.Look > 0 {
		return c.env.Config.Remote.Look
	}
	return defaultLook
}
