package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/connrotation"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

const (
	// patience is how long an answer of another cluster may take.
	patience = 5 * time.Second
	// defaultLook is how often a cluster is looked at.
	defaultLook = 10 * time.Second
	// deployment is the name of the controllers' Deployment in the other cluster, and their label app.
	deployment = "disruption-controllers"
	// indexRegarding is the index of events in the cache: the UID of what they are about.
	indexRegarding = "regarding"
)

// verdict is what becomes a condition of a RemoteCluster.
type verdict struct {
	ok              bool
	reason, message string
}

func no(reason, format string, args ...any) verdict {
	return verdict{reason: reason, message: fmt.Sprintf(format, args...)}
}

// state is what is known of another cluster.
type state struct {
	known                       bool // it was looked at; the rest says nothing otherwise
	reachable, installed, ready verdict
	version, clusterID          string
	synced                      bool // the cache has its disruptions, and they are up to date
	pending                     bool // the controllers are not yet as the spec wants them
	keep                        bool // whether they are installed is not known yet: nothing has changed
}

// reasonInstalled is that of controllers that are as they should be.
const reasonInstalled = "Installed"

// reasonAnother is that of a kubeconfig that leads to another cluster than before.
const reasonAnother = "AnotherCluster"

// reachesIt reports whether what the cache and the API server say can be relied on.
func (s state) reachesIt() bool { return s.known && s.reachable.ok && s.synced }

// events are the callbacks to the owner of a connection. They do not block.
type events struct {
	changed func()                     // the state
	child   func(types.NamespacedName) // the disruption here with that name: something of its child
	sweep   func(context.Context)      // it is time to look for children without parents
}

// target is what a connection is made from. It does not change.
type target struct {
	name, key string // of the RemoteCluster; what identifies the target
	namespace string
	parent    string // ID of this cluster
	expected  string // ID of the other one; empty: any
	look      time.Duration
	tell      events
	installer controller.Installer // nil: none
	// installing has room for some entries: each installation in progress has one.
	installing chan struct{}
}

// connection is the access to one cluster, from newConnection until stop. It looks at the cluster again and again, and
// has a cache of the disruptions there that belong to this cluster.
type connection struct {
	target target

	to     *rest.Config // of the transport below, for the installer
	http   *http.Client
	hangUp func()        // closes all of its connections
	client client.Client // reads from the API server
	cache  cache.Cache
	poked  chan struct{}
	asked  chan struct{} // the installer has something to do
	cancel context.CancelFunc
	done   chan struct{}

	watching, indexed bool // run's own

	mu    sync.Mutex
	state state // as it was seen when it was looked at
	want  *wish // nil: nothing
	came  outcome
}

// newConnection makes a connection and starts it. It does not wait for the cluster.
func newConnection(made target, to *rest.Config, scheme *runtime.Scheme) (_ *connection, err error) {
	c := &connection{target: made}
	ctx, cancel := context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	c.hangUp = dial(ctx, to)
	if c.http, err = rest.HTTPClientFor(to); err != nil {
		return nil, err
	}
	mapper := knownTypes()
	c.client, err = client.New(to, client.Options{Scheme: scheme, HTTPClient: c.http, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	ours := labels.SelectorFromSet(labels.Set{LabelParentCluster: c.target.parent})
	c.cache, err = cache.New(to, cache.Options{
		Scheme: scheme, HTTPClient: c.http, Mapper: mapper, ReaderFailOnMissingInformer: true,
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&chaos.Disruption{}: {Label: ours},
			&corev1.Event{}:     {Field: fields.OneTermEqualSelector("involvedObject.kind", "Disruption")},
			&corev1.Pod{}: {
				Namespaces: map[string]cache.Config{c.target.namespace: {}},
				Label:      labels.SelectorFromSet(labels.Set{"app": deployment}),
			},
		},
	})
	if err != nil {
		return nil, err
	}
	if c.to, err = sharing(to, c.http); err != nil {
		return nil, err
	}
	c.cancel, c.done = cancel, make(chan struct{})
	c.poked, c.asked = make(chan struct{}, 1), make(chan struct{}, 1)
	go c.run(ctx)
	return c, nil
}

// dial has a client dial until a context ends. hangUp, which is called after that, closes its connections. They would
// stay for a minute and a half otherwise: those of HTTP/2 are not idle yet when their watches have just ended, and what
// is being dialed becomes idle later.
func dial(ctx context.Context, to *rest.Config) (hangUp func()) {
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext)
	to.Dial = func(dialing context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(dialing, network, address)
		if err == nil && ctx.Err() != nil {
			_ = conn.Close()
			return nil, ctx.Err()
		}
		return conn, err
	}
	return dialer.CloseAll
}

// knownTypes knows where the types are that are used, without asking a cluster which may not answer. As the API
// server's own discovery, it has their lists, which a cache of one namespace asks for.
func knownTypes() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, gvk := range []schema.GroupVersionKind{
		chaos.GroupVersion.WithKind("Disruption"), corev1.SchemeGroupVersion.WithKind("Event"),
		corev1.SchemeGroupVersion.WithKind("Pod"), appsv1.SchemeGroupVersion.WithKind("Deployment"),
	} {
		mapper.Add(gvk, meta.RESTScopeNamespace)
		mapper.Add(gvk.GroupVersion().WithKind(gvk.Kind+"List"), meta.RESTScopeNamespace)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), meta.RESTScopeRoot)
	return mapper
}

// stop ends the connection. It returns when nothing of it is left.
func (c *connection) stop() {
	c.cancel()
	<-c.done
}

// now returns what is known.
func (c *connection) now() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.came.on(c.state, c.want)
}

// seen returns what was seen when the cluster was looked at last.
func (c *connection) seen() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *connection) set(s state) {
	c.mu.Lock()
	before := c.state
	c.state = s
	c.mu.Unlock()
	if before != s {
		c.target.tell.changed()
	}
	if !before.reachable.ok && s.reachable.ok || before.installed.ok && !s.installed.ok {
		c.ask()
	}
}

// failed records an error of a request in the connection. If the API server did not answer, it is not asked any more
// until it does.
func (c *connection) failed(err error) {
	var answered apierrors.APIStatus
	if err == nil || errors.As(err, &answered) || errors.Is(err, context.Canceled) {
		return
	}
	s := c.seen()
	s.known, s.reachable = true, no("Unreachable", "%v", err)
	s.ready = no("Unreachable", "the cluster is unreachable")
	c.set(s)
	c.poke()
}

// poke has the cluster looked at now.
func (c *connection) poke() {
	select {
	case c.poked <- struct{}{}:
	default:
	}
}

func (c *connection) run(ctx context.Context) {
	defer close(c.done)
	defer c.hangUp()
	var beside sync.WaitGroup
	defer beside.Wait()
	if c.target.installer != nil {
		beside.Go(func() { c.install(ctx) })
	}
	started, failures := false, 0
	for {
		s := c.lookAt(ctx)
		if ctx.Err() != nil {
			return
		}
		if s.reachable.ok && c.watching && !started {
			started = true
			beside.Go(func() { _ = c.cache.Start(ctx) }) // it returns an error only if it was started before
		}
		if started && !s.synced && s.installed.ok {
			if s.synced = c.sync(ctx); s.synced {
				c.readiness(ctx, &s)
			}
		}
		if ctx.Err() != nil {
			return
		}
		c.set(s)
		if s.reachesIt() {
			c.target.tell.sweep(ctx)
		}
		wait := c.target.look
		if s.reachable.ok {
			failures = 0
		} else {
			// From a tenth of the usual time up to six times of it, and never all clusters at once.
			wait = min(c.target.look/10<<min(failures, 10), 6*c.target.look)
			wait += rand.N(wait/4 + 1)
			failures++
		}
		select {
		case <-ctx.Done():
			return
		case <-c.poked:
			if !s.reachable.ok { // not more often than it is looked at anyway
				select {
				case <-ctx.Done():
					return
				case <-time.After(wait):
				}
			}
		case <-time.After(wait):
		}
	}
}

// sync waits a while for the cache.
func (c *connection) sync(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.cache.WaitForCacheSync(ctx)
}

// lookAt asks the cluster for all that its state says.
func (c *connection) lookAt(life context.Context) (s state) {
	ctx, cancel := context.WithTimeout(life, patience)
	defer cancel()
	before := c.seen()
	s = state{known: true, version: before.version, clusterID: before.clusterID}
	s.installed, s.ready = before.installed, no("Unreachable", "the cluster is unreachable")
	if !before.known {
		s.installed = no("Unknown", "the cluster is unreachable")
	}
	system := &corev1.Namespace{}
	err := c.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system)
	switch {
	case apierrors.IsUnauthorized(err):
		s.reachable = no("Unauthorized", "the API server does not accept the credentials of the kubeconfig")
		return s
	case apierrors.IsForbidden(err):
		s.reachable = no("Forbidden", "the kubeconfig's user lacks rights: %v", err)
		return s
	case err != nil:
		s.reachable = no("Unreachable", "%v", err)
		return s
	}
	if c.target.expected != "" && c.target.expected != string(system.UID) {
		s.reachable = no(reasonAnother, "the kubeconfig leads to another cluster (%s) than the one that is in use "+
			"(%s)", system.UID, c.target.expected)
		return s
	}
	s.clusterID, s.reachable = string(system.UID), verdict{true, "Answers", "the API server answers"}
	s.installed, s.ready = no("NotInstalled", ""), no("NotInstalled", "the controllers are not installed")
	if err := c.mayWatch(ctx); err != nil {
		s.installed = c.judge(err)
		return s
	}
	d := &appsv1.Deployment{}
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: c.target.namespace, Name: deployment}, d); err != nil {
		s.installed = c.judge(err)
		return s
	}
	s.version = versionOf(d)
	s.installed = verdict{true, reasonInstalled,
		fmt.Sprintf("Deployment %s/%s is there", c.target.namespace, deployment)}
	if !c.watching {
		if err := c.watch(ctx, life); err != nil {
			s.installed = c.judge(err)
			return s
		}
		c.watching = true
	}
	s.ready = no("Starting", "the disruptions there are being read")
	if s.synced = before.synced; s.synced {
		c.readiness(ctx, &s)
	}
	return s
}

// judge says why something that was asked for is not there.
func (c *connection) judge(err error) verdict {
	switch {
	case errors.Is(err, errNoDefinition):
		return no("NotInstalled", "the definition of Disruption (%s) is not there", chaos.GroupVersion)
	case apierrors.IsNotFound(err):
		return no("NotInstalled", "there is no Deployment %s/%s", c.target.namespace, deployment)
	case apierrors.IsForbidden(err):
		return no("Forbidden", "the kubeconfig's user lacks rights: %v", err)
	}
	return no("Unknown", "%v", err)
}

var errNoDefinition = errors.New("the definition of Disruption is not there")

// mayWatch lists what is watched, once: an informer would not say in words what is wrong.
func (c *connection) mayWatch(ctx context.Context) error {
	one := client.Limit(1)
	if err := c.client.List(ctx, &chaos.DisruptionList{}, one); err != nil {
		if apierrors.IsNotFound(err) {
			return errNoDefinition
		}
		return err
	}
	if c.watching {
		return nil
	}
	if err := c.client.List(ctx, &corev1.EventList{}, one); err != nil {
		return err
	}
	return c.client.List(ctx, &corev1.PodList{}, one, client.InNamespace(c.target.namespace))
}

// watch adds the informers. What they wake may wait until the connection ends.
func (c *connection) watch(ctx, life context.Context) error {
	on := func(o client.Object, f func(any)) error {
		informer, err := c.cache.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: f, UpdateFunc: func(_, o any) { f(o) },
			DeleteFunc: func(o any) {
				if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
					o = last.Obj
				}
				f(o)
			},
		})
		return err
	}
	if !c.indexed { // a second time would be an error
		err := c.cache.IndexField(ctx, &corev1.Event{}, indexRegarding, func(o client.Object) []string {
			if e, ok := o.(*corev1.Event); ok {
				return []string{string(e.InvolvedObject.UID)}
			}
			return nil
		})
		if err != nil {
			return err
		}
		c.indexed = true
	}
	if err := on(&chaos.Disruption{}, func(o any) {
		if d, ok := o.(*chaos.Disruption); ok {
			c.target.tell.child(parentOf(d))
		}
	}); err != nil {
		return err
	}
	if err := on(&corev1.Event{}, func(o any) {
		e, ok := o.(*corev1.Event)
		if !ok {
			return
		}
		d := &chaos.Disruption{}
		key := client.ObjectKey{Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}
		// A child that the cache does not have yet wakes its parent itself.
		if c.cache.Get(life, key, d) == nil && d.UID == e.InvolvedObject.UID {
			c.target.tell.child(parentOf(d))
		}
	}); err != nil {
		return err
	}
	return on(&corev1.Pod{}, func(any) { c.poke() })
}

// readiness judges the controllers' pods.
func (c *connection) readiness(ctx context.Context, s *state) {
	d := &appsv1.Deployment{}
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: c.target.namespace, Name: deployment}, d); err != nil {
		s.ready = no("Unknown", "%v", err)
		return
	}
	var pods corev1.PodList
	if err := c.cache.List(ctx, &pods, client.InNamespace(c.target.namespace)); err != nil {
		s.ready = no("Unknown", "%v", err)
		return
	}
	wanted, ready := 1, 0
	if d.Spec.Replicas != nil {
		wanted = int(*d.Spec.Replicas)
	}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil && controller.PodReady(&pods.Items[i]) {
			ready++
		}
	}
	switch {
	case wanted == 0:
		s.ready = no("NoReplicas", "Deployment %s/%s has no replicas", c.target.namespace, deployment)
	case ready < wanted:
		s.ready = no("PodsNotReady", "%d of %d pods of the controllers are ready", ready, wanted)
	default:
		s.ready = verdict{true, "PodsReady", fmt.Sprintf("all pods of the controllers are ready (%d)", wanted)}
	}
}

// versionOf is the tag or digest of the controllers' image.
func versionOf(d *appsv1.Deployment) string {
	containers := d.Spec.Template.Spec.Containers
	if len(containers) == 0 {
		return ""
	}
	image := containers[0].Image
	if _, digest, ok := strings.Cut(image, "@"); ok {
		return digest
	}
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[i+1:]
	}
	return "latest"
}
