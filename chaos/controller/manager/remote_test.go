package manager

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kube "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/config"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/controller/remote"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// child is another cluster, with the manifests of a child: simulated pods replace its controllers' pods,
// and the tests run the controllers.
type child struct {
	*embedded.Cluster
	client      client.Client
	controllers *clustertest.Account
	kubeconfig  []byte // of the account of the parent
}

var (
	childClusters = clustertest.Once(embedded.Config{APIServers: 1, Nodes: 1})
	installChild  = sync.OnceValues(func() (*child, error) { return newChild(context.Background(), startedChild) })
	startedChild  *embedded.Cluster
)

// childCluster returns the child, whose controllers run until the end of the test.
func childCluster(t testing.TB) *child {
	t.Helper()
	startedChild = childClusters(t)[0]
	c, err := installChild()
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Mode, o.Simulated = controller.ModeChild, c.Processes().NodeName()
	start(t, c.controllers.Config(t), o)
	return c
}

func newChild(ctx context.Context, of *embedded.Cluster) (*child, error) {
	c := &child{Cluster: of}
	admin, err := c.RESTConfig("")
	if err != nil {
		return nil, err
	}
	files := slices.Concat(config.Installed, config.Child, []string{config.Deployment, "admission/injectors.yaml"})
	for _, file := range files {
		if err := apply(ctx, admin, file); err != nil {
			return nil, err
		}
	}
	if c.client, err = client.New(admin, client.Options{Scheme: newScheme()}); err != nil {
		return nil, err
	}
	c.controllers, err = clustertest.NewAccount(ctx, admin, "trommel-chaos", "disruption-controllers",
		authorizationv1.ResourceAttributes{Verb: "list", Group: chaos.GroupVersion.Group, Resource: "disruptions"},
		authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Namespace: "trommel-chaos"})
	if err != nil {
		return nil, err
	}
	parent, err := clustertest.NewAccount(ctx, admin, "trommel-chaos", "disruption-parent",
		authorizationv1.ResourceAttributes{Verb: "create", Group: chaos.GroupVersion.Group, Resource: "disruptions"},
		authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: "trommel-chaos"})
	if err != nil {
		return nil, err
	}
	to, _ := parent.Recorded()
	c.kubeconfig, err = kubeconfigOf(to)
	return c, err
}

func kubeconfigOf(to *rest.Config) ([]byte, error) {
	return clientcmd.Write(*cluster.Kubeconfig("child", to))
}

// fixture is a namespace of the child.
func (c *child) fixture(t testing.TB) *fixture {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	if err := c.client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t, c.client, ns.Name}
	clustertest.Eventually(t, func(ctx context.Context) error {
		return f.Get(ctx, types.NamespacedName{Namespace: ns.Name, Name: "default"}, &corev1.ServiceAccount{})
	})
	return f
}

// targets creates pods with processes in a namespace of the child.
func (c *child) targets(f *fixture, n int) {
	f.t.Helper()
	var pods []*corev1.Pod
	for i := range n {
		pods = append(pods, f.pod(fmt.Sprintf("p%d", i), c.Processes().NodeName()))
	}
	f.running(pods...)
}

// inEffect counts the faults on the child's process node.
func (c *child) inEffect(t testing.TB) int {
	t.Helper()
	faults, err := c.Processes().Faults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(faults)
}

// children lists the disruptions in a namespace of the child.
func (f *fixture) children(ctx context.Context) ([]chaos.Disruption, error) {
	var list chaos.DisruptionList
	err := f.List(ctx, &list, client.InNamespace(f.namespace))
	return list.Items, err
}

// noChildren waits until there are none.
func (f *fixture) noChildren() {
	f.t.Helper()
	clustertest.Eventually(f.t, func(ctx context.Context) error {
		list, err := f.children(ctx)
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("%d children are left: %s %+v", len(list), list[0].Name, list[0].Status)
		}
		return err
	})
}

// parentAccount is the account of the controllers of a parent, in the shared cluster.
var parentAccount = sync.OnceValues(func() (*clustertest.Account, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	admin := must(shared.RESTConfig(""))
	for _, file := range append(slices.Clone(config.Parent), "parent/policy.yaml") {
		if err := apply(ctx, admin, file); err != nil {
			return nil, err
		}
	}
	// The policy that writes users into disruptions refuses them until the API server has the definition's schema.
	c, err := client.New(admin, client.Options{Scheme: newScheme()})
	if err != nil {
		return nil, err
	}
	err = cluster.Poll(ctx, 50*time.Millisecond, func(ctx context.Context) error {
		d := &chaos.Disruption{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "first"},
			Spec: hangs(func(s *chaos.DisruptionSpec) {
				s.RemoteCluster = &chaos.RemoteTarget{Cluster: "any", Namespace: "any"}
			}),
		}
		if err := c.Create(ctx, d, client.DryRunAll); err != nil {
			return err
		}
		if d.Annotations[chaos.AnnotationUser] == "" {
			return errors.New("the policy is not in effect")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return clustertest.NewAccount(ctx, admin, "trommel-chaos", "disruption-controllers",
		authorizationv1.ResourceAttributes{Verb: "list", Group: chaos.GroupVersion.Group, Resource: "remoteclusters"},
		authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets", Namespace: "trommel-chaos"})
})

// parentOptions are those of a parent that believes its users.
func parentOptions() Options {
	o := options()
	o.Mode = controller.ModeParent
	o.Remote = controller.Remote{WithoutAuthorization: true, Look: 300 * time.Millisecond}
	return o
}

// startParent runs the controllers of a parent until the end of the test, or until stop is called.
func startParent(t testing.TB, o Options) (stop func()) {
	t.Helper()
	account, err := parentAccount()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, account.Config(t), o)
}

// remoteCluster creates a RemoteCluster with its Secret. Nothing of it is left after the test.
func (f *fixture) remoteCluster(name string, kubeconfig []byte) *chaos.RemoteCluster {
	f.t.Helper()
	if _, err := parentAccount(); err != nil {
		f.t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "trommel-chaos", Name: name},
		Data:       map[string][]byte{"kubeconfig": kubeconfig},
	}
	rc := &chaos.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: chaos.RemoteClusterSpec{
			KubeConfig: chaos.KubeConfig{SecretRef: chaos.SecretKey{Name: name}},
		},
	}
	for _, o := range []client.Object{secret, rc} {
		if err := f.Create(f.t.Context(), o); err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() {
			ctx := context.Background()
			_ = f.Delete(ctx, o)
			_ = f.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		})
	}
	return rc
}

// cluster waits for a state of a RemoteCluster.
func (f *fixture) cluster(rc *chaos.RemoteCluster, what string, ok func(*chaos.RemoteCluster) bool) {
	f.t.Helper()
	clustertest.Eventually(f.t, func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(rc), rc); err != nil {
			return err
		}
		if !ok(rc) {
			return fmt.Errorf("RemoteCluster %s is not %s: %+v", rc.Name, what, rc.Status)
		}
		return nil
	})
}

func isReady(rc *chaos.RemoteCluster) bool {
	return meta.IsStatusConditionTrue(rc.Status.Conditions, chaos.ConditionReady)
}

func reasonOf(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return c.Reason
	}
	return ""
}

// to makes a spec one for another cluster.
func to(cluster string, there *fixture, change func(*chaos.DisruptionSpec)) chaos.DisruptionSpec {
	return hangs(func(s *chaos.DisruptionSpec) {
		s.RemoteCluster = &chaos.RemoteTarget{Cluster: cluster, Namespace: there.namespace}
		if change != nil {
			change(s)
		}
	})
}

// ended waits until a disruption is deleted and gone.
func (f *fixture) ended(d *chaos.Disruption) {
	f.t.Helper()
	if err := client.IgnoreNotFound(f.Delete(f.t.Context(), d)); err != nil {
		f.t.Fatal(err)
	}
	clustertest.Eventually(f.t, func(ctx context.Context) error {
		err := f.Get(ctx, client.ObjectKeyFromObject(d), d)
		if err == nil {
			return fmt.Errorf("disruption %s is still there: %+v", d.Name, d.Status)
		}
		return client.IgnoreNotFound(err)
	})
}

// TestRemoteDisruption lets another cluster carry out a disruption, from its creation to its end.
func TestRemoteDisruption(t *testing.T) {
	far := childCluster(t)
	startParent(t, parentOptions())
	f, there := newFixture(t), far.fixture(t)
	far.targets(there, 2)
	rc := f.remoteCluster("west", far.kubeconfig)
	f.cluster(rc, "ready", isReady)
	if rc.Status.CurrentVersion != "v0.1.0" || rc.Status.ClusterID == "" || rc.Status.Message != "" ||
		!slices.Contains(rc.Finalizers, remote.Finalizer) {
		t.Errorf("%v, %+v", rc.Finalizers, rc.Status)
	}
	before := far.inEffect(t)
	d := f.disrupt("remote", to("west", there, nil))
	f.await(d, "injected", func(d *chaos.Disruption) bool {
		return d.Status.Phase == chaos.Injected && len(d.Status.Injections) == 2 && d.Status.Remote != nil &&
			slices.ContainsFunc(d.Status.Remote.Events, func(e chaos.RemoteEvent) bool { return e.Message != "" })
	})
	if n := far.inEffect(t) - before; n != 2 || d.Status.Counts.Injected != 2 || d.Status.EndsAt == nil ||
		!meta.IsStatusConditionTrue(d.Status.Conditions, chaos.ConditionRemote) {
		t.Errorf("%d faults are in effect: %+v", n, d.Status)
	}
	// Nothing happens here, and the child names its parent.
	if pods, err := podsOf(t.Context(), f, d); err != nil || len(pods) > 0 {
		t.Errorf("%d chaos pods here (%v)", len(pods), err)
	}
	list, err := there.children(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%d children (%v)", len(list), err)
	}
	if a := list[0].Annotations; list[0].Name != d.Status.Remote.Name || a[remote.AnnotationParentName] != d.Name ||
		a[remote.AnnotationParentNamespace] != f.namespace || a[remote.AnnotationParentUID] != string(d.UID) ||
		a[remote.AnnotationParentCluster] == "" || list[0].Spec.RemoteCluster != nil {
		t.Errorf("the child is %+v", list[0])
	}
	// A pause goes down, and its end.
	pause := func(value, phase string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, chaos.AnnotationPaused, value)
		if err := f.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
		f.phase(d, chaos.Phase(phase))
	}
	pause(`"true"`, string(chaos.PausedInjected))
	pause(`null`, string(chaos.Injected))
	// The cluster cannot go while it is used.
	if err := f.Delete(t.Context(), rc); err != nil {
		t.Fatal(err)
	}
	f.cluster(rc, "held up", func(rc *chaos.RemoteCluster) bool {
		return strings.Contains(rc.Status.Message, "in use by disruption "+f.namespace+"/remote: delete them first") &&
			reasonOf(rc.Status.Conditions, chaos.ConditionRemovable) == "InUse"
	})
	f.ended(d)
	there.noChildren()
	if n := far.inEffect(t) - before; n != 0 {
		t.Errorf("%d faults are left", n)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(rc), rc); err == nil {
			return fmt.Errorf("RemoteCluster is still there: %+v", rc.Status)
		} else if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// What ends by itself in the other cluster ends here, and what is refused there is refused here, with the reason.
func TestRemoteDisruptionEnds(t *testing.T) {
	far := childCluster(t)
	o := parentOptions()
	o.KeepFor = time.Hour
	startParent(t, o)
	f, there := newFixture(t), far.fixture(t)
	far.targets(there, 1)
	f.cluster(f.remoteCluster("ends", far.kubeconfig), "ready", isReady)
	d := f.disrupt("short", to("ends", there, func(s *chaos.DisruptionSpec) { s.Duration = duration(2 * time.Second) }))
	f.phase(d, chaos.PreviouslyInjected)
	there.noChildren() // the child's controllers keep it for a second
	f.await(d, "over", func(d *chaos.Disruption) bool {
		return d.Status.Schedule.Over && d.Status.Phase == chaos.PreviouslyInjected
	})
	f.ended(d)

	for name, tt := range map[string]struct {
		namespace string
		change    func(*chaos.DisruptionSpec)
		want      string
	}{
		"protected":   {"kube-system", nil, "the namespace kube-system is protected"},
		"nonexistent": {"no-such-namespace", nil, `namespaces "no-such-namespace" not found`},
	} {
		d := f.disrupt(name, to("ends", &fixture{namespace: tt.namespace}, tt.change))
		f.await(d, "refused", func(d *chaos.Disruption) bool {
			return strings.Contains(d.Status.Message, tt.want) && d.Status.Schedule.Over &&
				d.Status.Phase == chaos.PreviouslyNotInjected
		})
		f.ended(d)
	}
}

// While the cluster is not ready nothing happens, and the status says so; what could not begin in time is over.
func TestRemoteClusterNotReady(t *testing.T) {
	far := childCluster(t)
	o := parentOptions()
	o.KeepFor = time.Hour
	startParent(t, o)
	f, there := newFixture(t), far.fixture(t)
	far.targets(there, 1)
	d := f.disrupt("early", to("late", there, nil))
	f.await(d, "waiting", func(d *chaos.Disruption) bool {
		return d.Status.Phase == chaos.NotInjected && d.Status.Message == "there is no RemoteCluster late"
	})
	tooLate := f.disrupt("too-late", to("late", there, func(s *chaos.DisruptionSpec) {
		s.Duration = duration(time.Second)
	}))
	f.await(tooLate, "over", func(d *chaos.Disruption) bool {
		return d.Status.Phase == chaos.PreviouslyNotInjected && d.Status.Schedule.Over &&
			d.Status.Message == "cluster late was not ready in time"
	})
	// A namespace without controllers is one in which nothing is installed.
	rc := f.remoteCluster("late", nil)
	f.cluster(rc, "without a kubeconfig", func(rc *chaos.RemoteCluster) bool {
		return rc.Status.Message == `Secret trommel-chaos/late has no key "kubeconfig"` &&
			reasonOf(rc.Status.Conditions, chaos.ConditionReachable) == "InvalidKubeConfig"
	})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "trommel-chaos", Name: "late"}}
	write := func(kubeconfig []byte) {
		t.Helper()
		if err := f.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
			t.Fatal(err)
		}
		secret.Data = map[string][]byte{"kubeconfig": kubeconfig}
		if err := f.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	write(fmt.Appendf(nil, "%s", strings.Replace(string(far.kubeconfig), "token: ", "token: x", 1)))
	f.cluster(rc, "unauthorized", func(rc *chaos.RemoteCluster) bool {
		return reasonOf(rc.Status.Conditions, chaos.ConditionReachable) == "Unauthorized"
	})
	write([]byte(strings.Replace(string(far.kubeconfig), "token: ", "tokenFile: /", 1)))
	f.cluster(rc, "refused", func(rc *chaos.RemoteCluster) bool {
		return strings.Contains(rc.Status.Message, `user "child": tokenFile is a file of another machine: use token`)
	})
	f.await(d, "waiting", func(d *chaos.Disruption) bool {
		return strings.Contains(d.Status.Message, "tokenFile is a file")
	})
	write(far.kubeconfig)
	f.cluster(rc, "ready", isReady)
	f.phase(d, chaos.Injected)
	if list, err := there.children(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%d children (%v)", len(list), err)
	}
	f.ended(d)
	there.noChildren()
	// Where nothing is installed, nothing is ready.
	patch := client.MergeFrom(rc.DeepCopy())
	rc.Spec.Namespace = "default"
	if err := f.Patch(t.Context(), rc, patch); err != nil {
		t.Fatal(err)
	}
	f.cluster(rc, "not installed", func(rc *chaos.RemoteCluster) bool {
		return !isReady(rc) && rc.Status.ObservedGeneration == rc.Generation &&
			meta.IsStatusConditionTrue(rc.Status.Conditions, chaos.ConditionReachable)
	})
}

// TestClusterStopped kills the API server of the other cluster in the middle of a disruption.
func TestClusterStopped(t *testing.T) {
	far := childCluster(t)
	stop := startParent(t, parentOptions())
	f, there := newFixture(t), far.fixture(t)
	far.targets(there, 1)
	rc := f.remoteCluster("stopped", far.kubeconfig)
	f.cluster(rc, "ready", isReady)
	d := f.disrupt("stopped", to("stopped", there, nil))
	f.phase(d, chaos.Injected)
	if err := far.KillAPIServer(t.Context(), "apiserver-1"); err != nil {
		t.Fatal(err)
	}
	restart := sync.OnceFunc(func() {
		if err := far.StartAPIServer(context.Background(), "apiserver-1"); err != nil {
			t.Error(err)
		}
	})
	defer restart()
	f.cluster(rc, "unreachable", func(rc *chaos.RemoteCluster) bool {
		return strings.HasPrefix(rc.Status.Message, "unreachable since ") && !isReady(rc)
	})
	f.await(d, "unknown", func(d *chaos.Disruption) bool {
		return strings.Contains(d.Status.Message, "cluster stopped is unreachable since ") &&
			d.Status.Phase == chaos.Injected && reasonOf(d.Status.Conditions, chaos.ConditionRemote) == "Unreachable"
	})
	since := meta.FindStatusCondition(rc.Status.Conditions, chaos.ConditionReachable).LastTransitionTime
	// Also for controllers that are started meanwhile.
	stop()
	startParent(t, parentOptions())
	if err := f.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	f.await(d, "held", func(d *chaos.Disruption) bool {
		return reasonOf(d.Status.Conditions, chaos.ConditionRemovable) == "Unreachable" &&
			strings.Contains(d.Status.Message, chaos.AnnotationForceRemoval+"=true` lets it go at once")
	})
	f.cluster(rc, "unreachable since then", func(rc *chaos.RemoteCluster) bool {
		c := meta.FindStatusCondition(rc.Status.Conditions, chaos.ConditionReachable)
		return c.Status == metav1.ConditionFalse && c.LastTransitionTime.Equal(&since)
	})
	restart()
	f.ended(d)
	there.noChildren()
	f.cluster(rc, "ready", isReady)
}

// Whoever deletes the child wants it to end: it is not made again.
func TestChildIsDeleted(t *testing.T) {
	far := childCluster(t)
	o := parentOptions()
	o.KeepFor = time.Hour
	startParent(t, o)
	f, there := newFixture(t), far.fixture(t)
	far.targets(there, 1)
	f.cluster(f.remoteCluster("deleted", far.kubeconfig), "ready", isReady)
	d := f.disrupt("deleted", to("deleted", there, nil))
	f.phase(d, chaos.Injected)
	list, err := there.children(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%d children (%v)", len(list), err)
	}
	if err := there.Delete(t.Context(), &list[0]); err != nil {
		t.Fatal(err)
	}
	f.await(d, "over", func(d *chaos.Disruption) bool {
		return d.Status.Phase == chaos.PreviouslyInjected && d.Status.Schedule.Over &&
			strings.Contains(d.Status.Message, "has gone: it was deleted there") &&
			reasonOf(d.Status.Conditions, chaos.ConditionRemote) == "Deleted"
	})
	there.noChildren()
	f.ended(d)
}

// TestSweep lets parents go without their children. Only children of these parents are collected.
func TestSweep(t *testing.T) {
	far := childCluster(t)
	stop := startParent(t, parentOptions())
	f, there := newFixture(t), far.fixture(t)
	far.targets(there, 1)
	f.cluster(f.remoteCluster("swept", far.kubeconfig), "ready", isReady)
	d, stays := f.disrupt("gone", to("swept", there, nil)), f.disrupt("stays", to("swept", there,
		func(s *chaos.DisruptionSpec) { s.Selector = map[string]string{"app": "nobody"} }))
	f.phase(d, chaos.Injected)
	f.await(stays, "there", func(d *chaos.Disruption) bool { return d.Status.Remote != nil })
	list, err := there.children(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("%d children (%v)", len(list), err)
	}
	stop()
	// Disruptions that look like it: one of another parent's cluster, one without a UID, and one without an owner.
	foreign := func(name string, change func(*chaos.Disruption)) *chaos.Disruption {
		o := there.disruption(name, list[0].Spec)
		o.Spec.Selector = map[string]string{"app": "nobody"}
		o.Labels, o.Annotations = map[string]string{}, map[string]string{}
		for k, v := range list[0].Labels {
			o.Labels[k] = v
		}
		for k, v := range list[0].Annotations {
			o.Annotations[k] = v
		}
		o.Annotations[remote.AnnotationParentName] = "never-there"
		change(o)
		if err := there.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	theirs := []*chaos.Disruption{
		foreign("another-cluster", func(o *chaos.Disruption) { o.Annotations[remote.AnnotationParentCluster] = "x" }),
		foreign("no-uid", func(o *chaos.Disruption) { delete(o.Annotations, remote.AnnotationParentUID) }),
		foreign("nobodys", func(o *chaos.Disruption) { o.Annotations = nil }),
	}
	lost := foreign("lost", func(*chaos.Disruption) {})
	if err := f.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if err := f.Patch(t.Context(), d, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	// A namesake is not the parent.
	again := f.disrupt("gone", to("swept", there, nil))
	startParent(t, parentOptions())
	f.phase(again, chaos.Injected)
	clustertest.Eventually(t, func(ctx context.Context) error {
		now, err := there.children(ctx)
		if err != nil {
			return err
		}
		var names []string
		for _, child := range now {
			foreign := slices.ContainsFunc(theirs, func(o *chaos.Disruption) bool { return o.UID == child.UID })
			if child.UID == lost.UID || !foreign && child.Annotations[remote.AnnotationParentUID] == string(d.UID) {
				return fmt.Errorf("child %s is left", child.Name)
			}
			names = append(names, child.Name)
		}
		for _, o := range theirs {
			if !slices.Contains(names, o.Name) {
				t.Errorf("%s was deleted", o.Name)
			}
		}
		if len(names) != len(theirs)+2 {
			return fmt.Errorf("children %s", names)
		}
		return nil
	})
	f.ended(again)
	f.ended(stays)
	for _, o := range theirs {
		there.ended(o)
	}
	there.noChildren()
}

// TestForceRemoval removes a RemoteCluster that is used, and a disruption whose cluster does not answer.
func TestForceRemoval(t *testing.T) {
	far := childCluster(t)
	o := parentOptions()
	o.KeepFor = time.Hour
	startParent(t, o)
	f, there := newFixture(t), far.fixture(t)
	far.targets(there, 1)
	rc := f.remoteCluster("forced", far.kubeconfig)
	f.cluster(rc, "ready", isReady)
	d := f.disrupt("forced", to("forced", there, nil))
	f.phase(d, chaos.Injected)
	force := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, chaos.AnnotationForceRemoval)
	if err := f.Delete(t.Context(), rc); err != nil {
		t.Fatal(err)
	}
	if err := f.Patch(t.Context(), rc, client.RawPatch(types.MergePatchType, force)); err != nil {
		t.Fatal(err)
	}
	there.noChildren()
	f.await(d, "over", func(d *chaos.Disruption) bool {
		return d.Status.Schedule.Over && d.Status.Phase == chaos.PreviouslyInjected
	})
	f.ended(d)

	// A server that accepts connections and says nothing.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	f.remoteCluster("silent", must(kubeconfigOf(&rest.Config{
		Host: "https://" + silent.Addr().String(), BearerToken: "x",
	})))
	d = f.disrupt("silent", to("silent", there, nil))
	f.await(d, "waiting", func(d *chaos.Disruption) bool {
		return strings.Contains(d.Status.Message, "cluster silent is unreachable")
	})
	if err := f.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if err := f.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, force)); err != nil &&
		!apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	f.ended(d)
}

// TestNothingLeaks counts goroutines and connections before and after a RemoteCluster, whose token changes meanwhile.
func TestNothingLeaks(t *testing.T) {
	far := childCluster(t)
	startParent(t, parentOptions())
	f := newFixture(t)
	admin := must(far.RESTConfig(""))
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(admin.Host, "https://"))
	life := func(name string) {
		rc := f.remoteCluster(name, far.kubeconfig)
		f.cluster(rc, "ready", isReady)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "trommel-chaos", Name: name}}
		for i := range 3 {
			if err := f.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
				t.Fatal(err)
			}
			secret.Data["kubeconfig"] = fmt.Appendf(slices.Clone(far.kubeconfig), "# %d\n", i)
			if err := f.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
		f.cluster(rc, "ready", isReady)
		if err := f.Delete(t.Context(), rc); err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, func(ctx context.Context) error {
			if err := f.Get(ctx, client.ObjectKeyFromObject(rc), rc); !apierrors.IsNotFound(err) {
				return fmt.Errorf("RemoteCluster %s is still there (%w)", name, err)
			}
			return nil
		})
	}
	life("warm") // what is made once for all
	goroutines, connections := goroutinesOfRemotes(), connectionsTo(t, port)
	for i := range 5 {
		life(fmt.Sprintf("leaks-%d", i))
	}
	clustertest.Eventually(t, func(context.Context) error {
		g, c := goroutinesOfRemotes(), connectionsTo(t, port)
		if g > goroutines || c > connections {
			return fmt.Errorf("%d goroutines and %d connections; there were %d and %d", g, c, goroutines, connections)
		}
		return nil
	})
}

// goroutinesOfRemotes counts this process' goroutines that belong to connections to other clusters, and to informers.
// Others come and go: those of idle connections to the API servers, for example.
func goroutinesOfRemotes() (n int) {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "chaos/controller/remote.") || strings.Contains(stack, "client-go/tools/cache.") {
			n++
		}
	}
	return n
}

// connectionsTo counts this process' connections to a port of this machine.
func connectionsTo(t testing.TB, port string) int {
	t.Helper()
	var number int
	if _, err := fmt.Sscan(port, &number); err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{}
	for _, fd := range must(filepath.Glob("/proc/self/fd/*")) {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
			own[strings.Trim(to, "socket:[]")] = true
		}
	}
	n := 0
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		file, err := os.Open(table)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			columns := strings.Fields(lines.Text())
			if len(columns) > 9 && own[columns[9]] && strings.HasSuffix(columns[2], fmt.Sprintf(":%04X", number)) {
				n++
			}
		}
		_ = file.Close()
	}
	return n
}

// deadCluster creates a RemoteCluster that takes connections and never answers, until the end of the test.
func (f *fixture) deadCluster(name string) *chaos.RemoteCluster {
	f.t.Helper()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = silent.Close() })
	return f.remoteCluster(name, must(kubeconfigOf(&rest.Config{
		Host: "https://" + silent.Addr().String(), BearerToken: "x",
	})))
}

// endAlone deletes a cluster that does not answer, or a disruption there.
func (f *fixture) endAlone(d client.Object) {
	f.t.Helper()
	if err := f.Delete(f.t.Context(), d); err != nil {
		f.t.Fatal(err)
	}
	force := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, chaos.AnnotationForceRemoval)
	err := f.Patch(f.t.Context(), d, client.RawPatch(types.MergePatchType, force))
	if client.IgnoreNotFound(err) != nil {
		f.t.Fatal(err)
	}
}

// TestDeadClusterDoesNotSlowOthers has many disruptions in a cluster that never answers.
func TestDeadClusterDoesNotSlowOthers(t *testing.T) {
	far := childCluster(t)
	startParent(t, parentOptions())
	f, there := newFixture(t), far.fixture(t)
	f.cluster(f.remoteCluster("alive", far.kubeconfig), "ready", isReady)
	nobody := func(s *chaos.DisruptionSpec) { s.Selector = map[string]string{"app": "nobody"} }
	const many = 20
	round := func(prefix string) time.Duration {
		began := time.Now()
		var all []*chaos.Disruption
		for i := range many {
			all = append(all, f.disrupt(fmt.Sprintf("%s-%d", prefix, i), to("alive", there, nobody)))
		}
		for _, d := range all {
			f.await(d, "there", func(d *chaos.Disruption) bool {
				return d.Status.Message == "nothing matches the selector"
			})
		}
		took := time.Since(began)
		for _, d := range all {
			f.ended(d)
		}
		return took
	}
	alone := round("alone")
	f.deadCluster("dead")
	var dead []*chaos.Disruption
	for i := range 5 * many {
		dead = append(dead, f.disrupt(fmt.Sprintf("dead-%d", i), to("dead", there, nobody)))
	}
	beside := round("beside")
	t.Logf("%d disruptions took %s alone, and %s beside %d of a dead cluster", many, alone, beside, len(dead))
	// One request that waits for the dead cluster would take five seconds.
	if beside > 3*alone+4*time.Second {
		t.Errorf("%d disruptions took %s alone, and %s beside %d of a dead cluster", many, alone, beside, len(dead))
	}
	for _, d := range dead {
		if list := d.Status.Remote; list != nil {
			t.Errorf("%s has begun: %+v", d.Name, list)
		}
		f.endAlone(d)
	}
	for _, d := range dead {
		f.ended(d)
	}
	there.noChildren()
}

// TestRemoteKilledAtEveryWrite lets the parent's controllers die at each of their writes, in their own cluster and in
// the other one, and others go on.
func TestRemoteKilledAtEveryWrite(t *testing.T) {
	step := 2
	if os.Getenv("TROMMEL_TEST_LONG") != "" {
		step = 1
	}
	far := childCluster(t)
	f, there := newFixture(t), far.fixture(t)
	far.targets(there, 1)
	account, err := parentAccount()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for n := 1; ; n += step {
		for _, after := range []bool{false, true} {
			name := fmt.Sprintf("killed-%d-%t", n, after)
			left, writes, ended := &atomic.Int64{}, &atomic.Int64{}, make(chan struct{})
			left.Store(int64(n))
			var once sync.Once
			die := func(rt http.RoundTripper) http.RoundTripper {
				return &crash{base: rt, left: left, after: after, ended: ended, onEnd: &once, writes: writes}
			}
			kubeconfig, o := account.Config(t), parentOptions()
			kubeconfig.Wrap(die)
			o.Remote.Wrap = die
			stop := start(t, kubeconfig, o)
			rc := f.remoteCluster(name, far.kubeconfig)
			d := f.disrupt(name, to(name, there, nil))
			dead := func() bool {
				select {
				case <-ended:
					return true
				case <-time.After(20 * time.Millisecond):
					return false
				}
			}
			// The whole life, as far as it comes: both go at the end, in any order.
			for !dead() {
				latest := &chaos.Disruption{}
				if err := f.Get(t.Context(), client.ObjectKeyFromObject(d), latest); err != nil ||
					latest.Status.Phase == chaos.Injected {
					break
				}
			}
			for _, o := range []client.Object{rc, d} {
				if err := f.Delete(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			gone := func(ctx context.Context) error {
				for _, o := range []client.Object{rc, d} {
					if err := f.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
						return fmt.Errorf("%T %s is still there (%w)", o, name, err)
					}
				}
				return nil
			}
			survived := false
			for !dead() {
				if survived = gone(t.Context()) == nil; survived {
					break
				}
			}
			stop()
			if !survived {
				stop = startParent(t, parentOptions())
				clustertest.Eventually(t, gone)
				stop()
				total++
			}
			if list, err := there.children(t.Context()); err != nil || len(list) > 0 {
				t.Fatalf("%d children are left after write %d (%v)", len(list), n, err)
			}
			if survived {
				t.Logf("killed %d times; a life has %d writes", total, writes.Load())
				if total < 12/step {
					t.Errorf("only %d writes were interrupted", total)
				}
				return
			}
		}
	}
}

// TestRemoteUsers asks the other cluster what users may: one without rights, one who has another name there, and one
// who is in a group.
func TestRemoteUsers(t *testing.T) {
	far := childCluster(t)
	o := parentOptions()
	o.Remote.WithoutAuthorization, o.KeepFor = false, time.Hour
	startParent(t, o)
	f, there := newFixture(t), far.fixture(t)
	far.targets(there, 1)
	f.cluster(f.remoteCluster("west-1", far.kubeconfig), "ready", isReady)
	for _, user := range []string{"nobody", "alice", "bob", "carol"} {
		f.grant(user, rbacv1.PolicyRule{
			APIGroups: []string{chaos.GroupVersion.Group},
			Verbs:     []string{"get", "create", "update", "patch", "delete"},
			Resources: []string{"disruptions", "disruptioncrons"},
		})
	}
	// In the other cluster, chaos-alice and a group may create disruptions in the namespace.
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: there.namespace, Name: "disrupt"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{chaos.GroupVersion.Group}, Verbs: []string{"create"},
			Resources: []string{"disruptions"},
		}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: there.namespace, Name: "disrupt"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "disrupt"},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: "User", Name: "chaos-alice"},
			{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "breakers"},
		},
	}
	for _, o := range []client.Object{role, binding} {
		if err := there.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	names := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "trommel-chaos", Name: remote.UserMap},
		Data: map[string]string{
			remote.UserMapKey: `[{originalName: user-alice, cluster: "west-*", name: chaos-alice}]`,
		},
	}
	if err := f.Create(t.Context(), names); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Delete(context.Background(), names) })
	as := func(user string, groups ...string) client.Client {
		config := rest.CopyConfig(must(shared.RESTConfig("")))
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
		c := must(client.New(config, client.Options{Scheme: newScheme()}))
		clustertest.Eventually(t, func(ctx context.Context) error {
			return c.Create(ctx, f.disruption("dry", hangs(nil)), client.DryRunAll)
		})
		return c
	}
	for _, tt := range []struct {
		name, user string
		groups     []string
		change     func(*chaos.DisruptionSpec)
		refused    string // empty: injected
	}{
		{name: "without rights", user: "user-nobody",
			refused: "user user-nobody must not create disruptions in namespace " + there.namespace +
				" of cluster west-1"},
		{name: "another name there", user: "user-alice"},
		{name: "a group", user: "user-bob", groups: []string{"others", "breakers"}},
		{name: "another group", user: "user-carol", groups: []string{"system:masters", "others"},
			refused: "user user-carol must not create disruptions"},
		{name: "no right to patch nodes there", user: "user-alice",
			change: func(s *chaos.DisruptionSpec) {
				s.Level, s.Kinds = chaos.LevelNode, chaos.Kinds{CPUPressure: &chaos.CPUPressure{}}
			},
			refused: "user user-alice (there chaos-alice) must not patch nodes of cluster west-1"},
		{name: "a system's name", user: "system:serviceaccount:default:x", groups: []string{"system:masters"},
			refused: "user system:serviceaccount:default:x: names that begin with system: are those of one cluster"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := f.disruption("d", to("west-1", there, tt.change))
			if err := as(tt.user, tt.groups...).Create(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			if d.Annotations[chaos.AnnotationUser] != tt.user {
				t.Errorf("annotations %v", d.Annotations)
			}
			if tt.refused == "" {
				f.phase(d, chaos.Injected)
			} else {
				f.await(d, "refused", func(d *chaos.Disruption) bool {
					return strings.HasPrefix(d.Status.Message, tt.refused) && d.Status.Schedule.Over
				})
				if list, err := there.children(t.Context()); err != nil || len(list) > 0 {
					t.Errorf("%d children (%v)", len(list), err)
				}
			}
			f.ended(d)
			there.noChildren()
		})
	}
	t.Run("nobody names another", func(t *testing.T) {
		c := as("user-alice")
		d := f.disruption("forged", to("west-1", there, nil))
		d.Annotations = map[string]string{
			chaos.AnnotationUser: "user-root", chaos.AnnotationGroups: "breakers",
		}
		if err := c.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if a := d.Annotations; a[chaos.AnnotationUser] != "user-alice" ||
			strings.Contains(a[chaos.AnnotationGroups], "breakers") {
			t.Errorf("annotations %v", a)
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"user-root"}}}`, chaos.AnnotationUser)
		err := c.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, patch))
		if err == nil && d.Annotations[chaos.AnnotationUser] != "user-alice" {
			t.Errorf("annotations %v", d.Annotations)
		}
		f.ended(d)
	})
	t.Run("a cron does what its user may", func(t *testing.T) {
		for user, want := range map[string]string{
			"user-nobody": "user user-nobody must not create disruptions", "user-alice": "",
		} {
			cron := &chaos.DisruptionCron{
				ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: user},
				Spec: chaos.DisruptionCronSpec{Schedule: "@every 1s", Disruption: to("west-1", there,
					func(s *chaos.DisruptionSpec) { s.Duration = duration(20 * time.Second) })},
			}
			if err := as(user).Create(t.Context(), cron); err != nil {
				t.Fatal(err)
			}
			clustertest.Eventually(t, func(ctx context.Context) error {
				list, err := f.children(ctx)
				if err != nil {
					return err
				}
				for _, d := range list {
					switch {
					case !metav1.IsControlledBy(&d, cron):
					case want == "" && d.Status.Phase == chaos.Injected,
						want != "" && strings.HasPrefix(d.Status.Message, want):
						return nil
					default:
						err = errors.Join(err, fmt.Errorf("%s: %+v", d.Name, d.Status))
					}
				}
				return errors.Join(err, errors.New("not yet"))
			})
			if err := f.Delete(t.Context(), cron); err != nil {
				t.Fatal(err)
			}
			clustertest.Eventually(t, func(ctx context.Context) error {
				list, err := f.children(ctx)
				if err == nil && len(list) > 0 {
					err = fmt.Errorf("%d disruptions of the cron are left: %+v", len(list), list[0].Status)
				}
				return err
			})
		}
		there.noChildren()
	})
}

// TestDocumentedRemoteDisruption does what docs/remote-disruptions.md shows.
func TestDocumentedRemoteDisruption(t *testing.T) {
	far := childCluster(t)
	o := parentOptions()
	o.Remote.WithoutAuthorization = false
	startParent(t, o)
	f := newFixture(t)
	const alice, there = "alice@example.com", "alice-in-the-west"
	text := must(os.ReadFile("../../../docs/remote-disruptions.md"))
	var shown []*unstructured.Unstructured
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		shown = append(shown, must(objects.Decode([]byte(block[1]), "remote-disruptions.md"))...)
	}
	rc, d, users := &chaos.RemoteCluster{}, &chaos.Disruption{}, &corev1.ConfigMap{}
	for _, o := range []client.Object{rc, d, users} {
		kind := reflect.TypeOf(o).Elem().Name()
		i := slices.IndexFunc(shown, func(u *unstructured.Unstructured) bool { return u.GetKind() == kind })
		if i < 0 {
			t.Fatalf("no %s is shown", kind)
		}
		if err := kube.DefaultUnstructuredConverter.FromUnstructured(shown[i].Object, o); err != nil {
			t.Fatal(err)
		}
	}
	// The fourth is a RemoteCluster that is installed: see chaos/helm.
	if len(shown) != 4 || rc.Spec.Install || d.Namespace != "default" {
		t.Fatalf("%d objects are shown", len(shown))
	}
	f.cluster(f.remoteCluster(rc.Name, far.kubeconfig), "ready", isReady)
	if err := f.Create(t.Context(), users); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Delete(context.Background(), users) })
	role := func(c client.Client, user string) {
		t.Helper()
		rules := []rbacv1.PolicyRule{{
			APIGroups: []string{chaos.GroupVersion.Group}, Verbs: []string{"create", "delete"},
			Resources: []string{"disruptions"},
		}}
		subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}
		for _, o := range []client.Object{
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "documented"}, Rules: rules},
			&rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "documented"}, Subjects: subjects,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "documented"},
			},
		} {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Delete(context.Background(), o) })
		}
	}
	role(f.Client, alice)
	role(far.client, there)
	target := (&fixture{t, far.client, "default"}).labelled("documented", far.Processes().NodeName(),
		d.Spec.Selector["app"])
	t.Cleanup(func() { _ = far.client.Delete(context.Background(), target) })
	(&fixture{t, far.client, "default"}).running(target)
	as := f.impersonate(alice)
	clustertest.Eventually(t, func(ctx context.Context) error { // roles are taken over after a while
		return as.Create(ctx, d.DeepCopy(), client.DryRunAll)
	})
	if err := as.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	f.phase(d, chaos.Injected)
	f.ended(d)
	(&fixture{t, far.client, "default"}).noChildren()
}

// What a mode leaves out is refused in words.
func TestModes(t *testing.T) {
	f := newFixture(t)
	f.processes(1)
	for _, tt := range []struct {
		name   string
		remote controller.Remote
		mode   controller.Mode
		spec   chaos.DisruptionSpec
		want   string
	}{
		{name: "single", spec: to("x", f, nil), want: "the controllers here know no other clusters"},
		{name: "child", mode: controller.ModeChild, spec: to("x", f, nil), want: "only a parent knows other clusters"},
		{name: "parent without local ones", mode: controller.ModeParent, remote: controller.Remote{WithoutLocal: true},
			spec: hangs(nil), want: "spec.remoteCluster is required"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options()
			o.Mode, o.Remote, o.KeepFor = tt.mode, tt.remote, time.Hour
			if tt.mode == controller.ModeParent {
				defer startParent(t, o)()
			} else {
				defer start(t, account.Config(t), o)()
			}
			d := f.disrupt("mode", tt.spec)
			f.await(d, "refused", func(d *chaos.Disruption) bool {
				c := meta.FindStatusCondition(d.Status.Conditions, chaos.ConditionAccepted)
				return c != nil && c.Reason == "Mode" && strings.Contains(c.Message, tt.want) &&
					d.Status.Message == c.Message && d.Status.Schedule.Over &&
					d.Status.Phase == chaos.PreviouslyNotInjected
			})
			f.ended(d)
		})
	}
	for _, o := range []Options{
		{Config: controller.Config{Mode: "both"}},
		{Config: controller.Config{Mode: controller.ModeChild, Remote: controller.Remote{WithoutLocal: true}}},
		{Config: controller.Config{Remote: controller.Remote{Webhook: ":9443"}}},
		{Config: controller.Config{Mode: controller.ModeParent, Remote: controller.Remote{Webhook: "9443"}}},
		{Config: controller.Config{Mode: controller.ModeParent, Remote: controller.Remote{
			Webhook: ":9443", WithoutAuthorization: true,
		}}},
	} {
		if _, err := New(must(shared.RESTConfig("")), o); err == nil {
			t.Errorf("mode %s with %+v is accepted", o.Mode, o.Remote)
		}
	}
}
