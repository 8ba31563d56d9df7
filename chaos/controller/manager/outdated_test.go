package manager

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/controller/chaospods"
	"github.com/trommel-dev/trommel/chaos/controller/cron"
)

// object is a pointer to a T, which is an object.
type object[T any] interface {
	*T
	client.Object
	DeepCopyInto(*T)
}

// outdated is a client whose cache has an old state of an object.
type outdated[T any, O object[T]] struct {
	client.Client
	old O
}

func (o *outdated[T, O]) Get(
	ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption,
) error {
	if to, ok := into.(O); ok && key == client.ObjectKeyFromObject(o.old) {
		o.old.DeepCopyInto(to)
		return nil
	}
	return o.Client.Get(ctx, key, into, opts...)
}

// TestChaosPodIsNewerThanTheDisruptionInTheCache: a controller that has just started may see the pod of a disruption
// before it sees that the disruption is active.
func TestChaosPodIsNewerThanTheDisruptionInTheCache(t *testing.T) {
	to := account.Config(t)
	stop := start(t, to, options())
	f := newFixture(t)
	f.processes(1)
	d := f.disrupt("outdated", hangs(nil))
	created := d.DeepCopy()
	f.phase(d, chaos.Injected)

	c := must(cache.New(to, cache.Options{Scheme: newScheme()}))
	if err := controller.Index(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	go func() { _ = c.Start(t.Context()) }()
	if !c.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache has not started")
	}
	cached := must(client.New(to, client.Options{Scheme: f.Scheme(), Cache: &client.CacheOptions{Reader: c}}))
	env := &controller.Env{
		Client: &outdated[chaos.Disruption, *chaos.Disruption]{cached, created}, Reader: f.Client,
		Clock: clock.RealClock{}, Config: options().Config,
	}
	r := &chaospods.Reconciler{Env: env}
	if pods, err := controller.ChaosPods(t.Context(), env, d); err != nil || len(pods) != 1 {
		t.Fatalf("%d chaos pods in the cache (%v)", len(pods), err)
	}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(d)}); err != nil {
		t.Error(err)
	}
	pods, err := podsOf(t.Context(), f, d)
	if err != nil || len(pods) != 1 || pods[0].DeletionTimestamp != nil {
		t.Errorf("chaos pods %+v (%v)", pods, err)
	}
	f.end(d)
	stop()
}

// TestCronOfTheCacheIsGone: what it was due for happened long ago.
func TestCronOfTheCacheIsGone(t *testing.T) {
	f := newFixture(t)
	c := &chaos.DisruptionCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "gone"},
		Spec:       chaos.DisruptionCronSpec{Schedule: "@every 1s", Disruption: hangs(nil)},
	}
	if err := f.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	old := c.DeepCopy()
	if err := f.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	env := &controller.Env{
		Client: &outdated[chaos.DisruptionCron, *chaos.DisruptionCron]{f.Client, old}, Reader: f.Client,
		Clock: clocktesting.NewFakeClock(old.CreationTimestamp.Add(time.Minute)),
	}
	r := &cron.Reconciler{Env: env}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)}); err != nil {
		t.Error(err)
	}
	var list chaos.DisruptionList
	if err := f.List(t.Context(), &list, client.InNamespace(f.namespace)); err != nil || len(list.Items) > 0 {
		t.Errorf("%d disruptions (%v)", len(list.Items), err)
	}
}
