package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trommel-dev/trommel/internal/controllers"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/provider"
)

// fixed is a provider that can only be read: everything else would be a nil call.
type fixed struct {
	provider.Provider
	groups map[string]*provider.Group
	err    error
}

func (p *fixed) Group(_ context.Context, name string) (*provider.Group, error) {
	if g := p.groups[name]; g != nil && p.err == nil {
		return g, nil
	}
	if p.err != nil {
		return nil, p.err
	}
	return nil, &provider.Error{Call: "Group", Object: name, Kind: provider.ErrNotFound}
}

// world is a NodeGroup in mode Cycle with the group g, of whose nodes a, b and c the first two are out of date.
type world struct {
	group    *nodes.NodeGroup
	nodes    []*corev1.Node
	provider *fixed
	requests []*nodes.CycleNodeRequest
	refuse   error // of what is created
	events   *events.FakeRecorder
}

func id(name string) string { return "test:///" + name }

func newWorld() *world {
	w := &world{
		group: &nodes.NodeGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "workers", UID: "group-uid", Generation: 3},
			Spec: nodes.NodeGroupSpec{
				Mode: nodes.ModeCycle, MaxFailedRequests: 1,
				Request: nodes.CycleNodeRequestSpec{
					NodeGroupName: "g", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}},
					CycleSettings: nodes.CycleSettings{Concurrency: 1},
				},
			},
		},
		provider: &fixed{groups: map[string]*provider.Group{"g": {Name: "g", DesiredCapacity: 3}}},
		events:   events.NewFakeRecorder(10),
	}
	for _, name := range []string{"c", "b", "a"} {
		w.nodes = append(w.nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "x"}},
			Spec:       corev1.NodeSpec{ProviderID: id(name)},
		})
		w.provider.groups["g"].Instances = append(w.provider.groups["g"].Instances, provider.Instance{
			ProviderID: id(name), Group: "g", State: provider.InService, OutOfDate: name != "c",
		})
	}
	return w
}

// request is one of the NodeGroup, in a phase.
func (w *world) request(name string, phase nodes.RequestPhase) *nodes.CycleNodeRequest {
	q := &nodes.CycleNodeRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{LabelGroup: "group-uid"},
		},
		Spec:   *w.group.Spec.Request.DeepCopy(),
		Status: nodes.CycleNodeRequestStatus{Phase: phase},
	}
	w.requests = append(w.requests, q)
	return q
}

// reconcile looks once, and returns the requests that were made.
func (w *world) reconcile(t *testing.T) (made []nodes.CycleNodeRequest, err error) {
	t.Helper()
	scheme, err := controllers.Scheme(nodes.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{w.group}
	for _, n := range w.nodes {
		objects = append(objects, n)
	}
	for _, q := range w.requests {
		objects = append(objects, q)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(w.group).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if w.refuse != nil {
					return w.refuse
				}
				return c.Create(ctx, o, opts...)
			},
		}).Build()
	r := &Reconciler{Env: &controller.Env{
		Client: c, Reader: c, Provider: w.provider, Events: w.events, Namespaces: []string{"ns"},
		Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)), Limits: controller.Limits{}.WithDefaults(),
	}}
	result, reconciled := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.group)})
	if reconciled == nil && w.group.DeletionTimestamp == nil && result.RequeueAfter != time.Minute {
		t.Errorf("the next look is after %s", result.RequeueAfter)
	}
	var list nodes.CycleNodeRequestList
	if err := errors.Join(c.Get(t.Context(), client.ObjectKeyFromObject(w.group), w.group),
		c.List(t.Context(), &list)); err != nil {
		t.Fatal(err)
	}
	for _, q := range list.Items {
		if !slices.ContainsFunc(w.requests, func(o *nodes.CycleNodeRequest) bool { return o.Name == q.Name }) {
			made = append(made, q)
		}
	}
	return made, reconciled
}

func TestObserve(t *testing.T) {
	const two = "2 of 3 instances are out of date"
	for _, tt := range []struct {
		name    string
		given   func(*world)
		message string // its beginning
		makes   bool
		fails   bool
	}{
		{name: "a request is made", message: two + "; request workers-", makes: true},
		{name: "it only reports", message: two, given: func(w *world) { w.group.Spec.Mode = nodes.ModeReport }},
		{name: "without a mode", message: two, given: func(w *world) { w.group.Spec.Mode = "" }},
		{name: "nothing is out of date", message: "no instance is out of date", given: func(w *world) {
			for i := range w.provider.groups["g"].Instances {
				w.provider.groups["g"].Instances[i].OutOfDate = false
			}
		}},
		{name: "what is not in service does not count", message: "1 of 3 instances are out of date", makes: true,
			given: func(w *world) { w.provider.groups["g"].Instances[1].State = provider.Starting }},
		{name: "what is not selected does not count", message: "1 of 3 instances are out of date", makes: true,
			given: func(w *world) { w.nodes[1].Labels = nil }},
		{name: "nothing is known", message: "Group g: broken", fails: true,
			given: func(w *world) {
				w.provider.err = &provider.Error{Call: "Group", Object: "g", Err: errors.New("broken")}
			}},
		{name: "one group of two cannot be read", message: "Group h: not found", fails: true,
			given: func(w *world) { w.group.Spec.Request.NodeGroupsList = []string{"h"} }},
		{name: "its request goes on", message: two + "; request ns/one goes on",
			given: func(w *world) { w.request("one", nodes.RequestScalingUp) }},
		{name: "its request is new", message: two + "; request ns/one goes on",
			given: func(w *world) { w.request("one", "") }},
		{name: "somebody's request goes on", message: two + "; request other/one goes on", given: func(w *world) {
			q := w.request("one", nodes.RequestPending)
			q.Namespace, q.Labels = "other", nil
			q.Spec.NodeGroupName, q.Spec.NodeGroupsList = "h", []string{"g"}
		}},
		{name: "a request of another group goes on", message: two + "; request workers-", makes: true,
			given: func(w *world) { w.request("one", nodes.RequestPending).Spec.NodeGroupName = "h" }},
		{name: "its request was successful", message: two + "; request workers-", makes: true,
			given: func(w *world) { w.request("one", nodes.RequestSuccessful) }},
		{name: "its request has failed", message: two + "; no request is made while there are failed ones: one",
			given: func(w *world) { w.request("one", nodes.RequestFailed) }},
		{name: "one of two may fail", message: two + "; request workers-", makes: true, given: func(w *world) {
			w.group.Spec.MaxFailedRequests = 2
			w.request("one", nodes.RequestFailed)
		}},
		{name: "two of two", message: two + "; no request is made while there are failed ones: one, two",
			given: func(w *world) {
				w.group.Spec.MaxFailedRequests = 2
				w.request("one", nodes.RequestFailed)
				w.request("two", nodes.RequestFailed)
			}},
		{name: "a failed request of an earlier NodeGroup of the name", message: two + "; request workers-", makes: true,
			given: func(w *world) { w.request("one", nodes.RequestFailed).Labels[LabelGroup] = "earlier" }},
		{name: "somebody's request has failed", message: two + "; request workers-", makes: true,
			given: func(w *world) { w.request("one", nodes.RequestFailed).Labels = nil }},
		{name: "nobody carries out requests there", message: two + "; requests of this namespace are not carried out",
			given: func(w *world) { w.group.Namespace = "elsewhere" }},
		{name: "a policy refuses it", message: two + "; a request was refused: ", given: func(w *world) {
			w.refuse = apierrors.NewForbidden(nodes.GroupVersion.WithResource("x").GroupResource(), "x",
				errors.New("no"))
		}},
		{name: "the API server does not answer", fails: true,
			given: func(w *world) { w.refuse = errors.New("no answer") }},
		{name: "it is being deleted", given: func(w *world) {
			at := metav1.Now()
			w.group.DeletionTimestamp, w.group.Finalizers = &at, []string{"x/y"}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			if tt.given != nil {
				tt.given(w)
			}
			deleted := w.group.DeletionTimestamp != nil
			made, err := w.reconcile(t)
			if (err != nil) != tt.fails && !deleted {
				t.Fatal(err)
			}
			s := w.group.Status
			if !strings.HasPrefix(s.Message, tt.message) || tt.message != "" && s.ObservedGeneration != 3 {
				t.Errorf("%q, want %q; generation %d", s.Message, tt.message, s.ObservedGeneration)
			}
			if (len(made) == 1) != tt.makes || len(made) > 1 {
				t.Errorf("made: %+v", made)
			}
			if tt.makes && s.Request != made[0].Name {
				t.Errorf("the status says %q", s.Request)
			}
		})
	}
}

// What is made is for the nodes that are out of date, and only once, whatever the controller remembers.
func TestRequest(t *testing.T) {
	w := newWorld()
	w.group.Spec.Request.CycleSettings.Concurrency = 2
	made, err := w.reconcile(t)
	if err != nil || len(made) != 1 {
		t.Fatalf("%v, %v", made, err)
	}
	q := made[0]
	if fmt.Sprint(q.Spec.NodeNames) != "[a b]" || !q.Spec.ValidationOptions.SkipMissingNamedNodes ||
		q.Spec.CycleSettings.Concurrency != 2 || q.Spec.NodeGroupName != "g" || q.Labels[LabelGroup] != "group-uid" ||
		len(q.OwnerReferences) > 0 || len(q.Name) > 52 {
		t.Errorf("%+v", q)
	}
	if n := len(w.events.Events); n != 2 {
		t.Errorf("%d events, want one about the request, and one about what is out of date", n)
	}
	again := newWorld()
	again.group.Spec.Request.CycleSettings.Concurrency = 2
	if made, err := again.reconcile(t); err != nil || len(made) != 1 || made[0].Name != q.Name {
		t.Errorf("another one is made for the same: %v, %v, not %s", made, err, q.Name)
	}
	// A controller that was killed after it made it.
	again = newWorld()
	again.request(q.Name, nodes.RequestSuccessful).Labels = nil // even if it could not be recognized as its own
	if made, err := again.reconcile(t); err != nil || len(made) != 0 ||
		!strings.HasSuffix(again.group.Status.Message, "request "+q.Name+" exists already") {
		t.Errorf("%v, %v: %s", made, err, again.group.Status.Message)
	}
	// After it, what is out of date then is another matter.
	again = newWorld()
	again.request(q.Name, nodes.RequestSuccessful)
	if made, err := again.reconcile(t); err != nil || len(made) != 1 || made[0].Name == q.Name {
		t.Errorf("%v, %v", made, err)
	}
}

// What was seen before stays while the provider cannot be asked, and nothing is written that is not new.
func TestStatusStays(t *testing.T) {
	w := newWorld()
	w.group.Spec.Mode = nodes.ModeReport
	if _, err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	before := w.group.ResourceVersion
	if _, err := w.reconcile(t); err != nil || w.group.ResourceVersion != before {
		t.Errorf("it was written again: %v", err)
	}
	w.provider.err = errors.New("broken")
	if _, err := w.reconcile(t); err == nil || w.group.Status.Outdated != 2 || w.group.Status.Message != "broken" {
		t.Errorf("%v, %+v", err, w.group.Status)
	}
	if n := len(w.events.Events); n != 1 {
		t.Errorf("%d events", n)
	}
}
