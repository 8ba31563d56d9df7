package request

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/internal/controllers"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/provider"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var scheme = sync.OnceValue(func() *runtime.Scheme {
	s, err := controllers.Scheme(nodes.AddToScheme)
	if err != nil {
		panic(err)
	}
	return s
})

func ago(d time.Duration) *metav1.MicroTime { return &metav1.MicroTime{Time: now.Add(-d)} }

// scripted is a provider of one group. Its calls are carried out at once.
type scripted struct {
	group  provider.Group
	loose  []provider.Instance // in no group
	failed error               // of calls that change something
	calls  []string
}

func (p *scripted) Name() string { return "test" }

func (p *scripted) Group(_ context.Context, name string) (*provider.Group, error) {
	if name != p.group.Name {
		return nil, &provider.Error{Call: "Group", Object: name, Kind: provider.ErrNotFound}
	}
	g := p.group
	g.Instances = slices.Clone(g.Instances)
	return &g, nil
}

func (p *scripted) Instances(_ context.Context, ids ...string) ([]provider.Instance, error) {
	return slices.DeleteFunc(slices.Concat(p.group.Instances, p.loose), func(i provider.Instance) bool {
		return !slices.Contains(ids, i.ProviderID)
	}), nil
}

// move does something to an instance, and takes it out of one list.
func (p *scripted) move(call, id string, from *[]provider.Instance) (provider.Instance, error) {
	p.calls = append(p.calls, call+" "+id)
	if p.failed != nil {
		return provider.Instance{}, p.failed
	}
	i := slices.IndexFunc(*from, func(i provider.Instance) bool { return i.ProviderID == id })
	if i < 0 {
		return provider.Instance{}, fmt.Errorf("%s %s: unexpected", call, id)
	}
	moved := (*from)[i]
	*from = slices.Delete(*from, i, i+1)
	return moved, nil
}

func (p *scripted) Detach(_ context.Context, _, id string) error {
	i, err := p.move("Detach", id, &p.group.Instances)
	if err == nil {
		i.State = provider.Running
		p.loose = append(p.loose, i)
	}
	return err
}

func (p *scripted) Remove(ctx context.Context, group, id string) error {
	err := p.Detach(ctx, group, id)
	p.calls[len(p.calls)-1] = "Remove " + id
	if err == nil {
		p.group.DesiredCapacity--
	}
	return err
}

func (p *scripted) Attach(_ context.Context, _, id string) error {
	i, err := p.move("Attach", id, &p.loose)
	if err == nil {
		i.State = provider.InService
		p.group.Instances = append(p.group.Instances, i)
	}
	return err
}

func (p *scripted) Terminate(_ context.Context, id string) error {
	list := &p.loose
	if slices.ContainsFunc(p.group.Instances, func(i provider.Instance) bool { return i.ProviderID == id }) {
		list = &p.group.Instances
	}
	i, err := p.move("Terminate", id, list)
	if err == nil {
		i.State = provider.Terminating
		*list = append(*list, i)
	}
	return err
}

// world is what a reconcile finds: by default a request for the group g with the nodes a and b, which are in service.
type world struct {
	request  *nodes.CycleNodeRequest
	others   []*nodes.CycleNodeRequest
	children []*nodes.CycleNodeStatus
	nodes    map[string]*corev1.Node
	pods     []*corev1.Pod
	provider *scripted
}

func id(node string) string { return "test:///" + node }

func newWorld(phase nodes.RequestPhase) *world {
	w := &world{
		request: &nodes.CycleNodeRequest{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "q", UID: "q-uid", Finalizers: []string{controller.Finalizer},
				CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			},
			Spec: nodes.CycleNodeRequestSpec{
				NodeGroupName: "g", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}},
			},
		},
		nodes: map[string]*corev1.Node{},
		provider: &scripted{
			group: provider.Group{Name: "g", DesiredCapacity: 2, MaxSize: 3},
		},
	}
	w.node("a", provider.InService)
	w.node("b", provider.InService)
	if phase == "" {
		return w
	}
	s := &w.request.Status
	s.Phase, s.PhaseStarted = phase, ago(time.Second)
	if phase == nodes.RequestPending {
		s.EquilibriumWaitStarted = ago(time.Minute)
		return w
	}
	s.Groups = []nodes.GroupRecord{{Name: "g", DesiredCapacity: 2}}
	s.HealthChecks = []nodes.HealthCheckStatus{{ProviderID: id("a"), Skip: true}, {ProviderID: id("b"), Skip: true}}
	s.ScaleUpStarted = ago(time.Minute)
	w.states("Available", "Available")
	for _, node := range w.nodes {
		node.Annotations = map[string]string{
			controller.AnnotationClaim: "q-uid",
		}
	}
	if phase == nodes.RequestHealing {
		s.Reason, s.HealingStarted = "reason", ago(time.Minute)
	}
	return w
}

// node adds a Ready node with an instance in the group. Without a state there is no instance.
func (w *world) node(name string, state provider.State) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name + "-uid"), Labels: map[string]string{"pool": "x"},
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
		},
		Spec: corev1.NodeSpec{ProviderID: id(name)},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		}},
	}
	w.nodes[name] = n
	if state != "" {
		w.provider.group.Instances = append(w.provider.group.Instances,
			provider.Instance{ProviderID: id(name), Group: "g", State: state})
	}
	return n
}

// states sets how far the nodes a, b and so on have come.
func (w *world) states(states ...nodes.NodeState) {
	w.request.Status.NodesToTerminate, w.request.Status.NumNodesCycled = nil, 0
	for i, state := range states {
		if state == nodes.NodeCycled {
			w.request.Status.NumNodesCycled++
		}
		name := string(rune('a' + i))
		w.request.Status.NodesToTerminate = append(w.request.Status.NodesToTerminate, nodes.CycleNodeRequestNode{
			NodeRef: nodes.NodeRef{
				Name: name, UID: types.UID(name + "-uid"), ProviderID: id(name), NodeGroupName: "g",
			},
			State: state,
		})
	}
}

// detached takes an instance out of the group.
func (w *world) detached(name string, state provider.State) {
	w.gone(name)
	w.provider.loose = append(w.provider.loose, provider.Instance{ProviderID: id(name), State: state})
}

// gone ends an instance.
func (w *world) gone(name string) {
	is := func(i provider.Instance) bool { return i.ProviderID == id(name) }
	w.provider.group.Instances = slices.DeleteFunc(w.provider.group.Instances, is)
	w.provider.loose = slices.DeleteFunc(w.provider.loose, is)
}

// ended ends an instance and its Node.
func (w *world) ended(name string) {
	w.gone(name)
	delete(w.nodes, name)
}

// other adds a request of the same group that was made later.
func (w *world) other(phase nodes.RequestPhase) *nodes.CycleNodeRequest {
	o := w.request.DeepCopy()
	o.Name, o.UID, o.Status = "other", "z-uid", nodes.CycleNodeRequestStatus{Phase: phase}
	o.CreationTimestamp = metav1.NewTime(w.request.CreationTimestamp.Add(time.Second))
	w.others = append(w.others, o)
	return o
}

// child adds the status of a node.
func (w *world) child(name string, phase nodes.StatusPhase, message string) *nodes.CycleNodeStatus {
	n := controller.FindNode(w.request, id(name))
	s := &nodes.CycleNodeStatus{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: controller.StatusName(w.request, id(name)), UID: types.UID("status-" + name),
			Finalizers: []string{controller.Finalizer},
		},
		Spec:   nodes.CycleNodeStatusSpec{Request: "q", RequestUID: "q-uid", Node: n.NodeRef},
		Status: nodes.CycleNodeStatusStatus{Phase: phase, Message: message},
	}
	w.children = append(w.children, s)
	return s
}

func deleted(o client.Object) {
	at := metav1.NewTime(now)
	o.SetDeletionTimestamp(&at)
}

// reconcile makes one step, and reads all objects again.
func (w *world) reconcile(t *testing.T) error {
	t.Helper()
	objects := []client.Object{w.request}
	for _, o := range w.others {
		objects = append(objects, o)
	}
	for _, s := range w.children {
		objects = append(objects, s)
	}
	for _, n := range w.nodes {
		objects = append(objects, n)
	}
	for _, p := range w.pods {
		objects = append(objects, p)
	}
	c := fake.NewClientBuilder().WithScheme(scheme()).WithObjects(objects...).
		WithStatusSubresource(w.request, &nodes.CycleNodeStatus{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Spec.NodeName}
		}).Build()
	r := &Reconciler{Env: &controller.Env{
		Client: c, Reader: c, Provider: w.provider, Events: events.NewFakeRecorder(10),
		Clock: clocktesting.NewFakePassiveClock(now), Limits: controller.Limits{}.WithDefaults(),
		Namespaces: []string{"ns"},
		Getenv:     func(string) string { return "" }, PhaseEnded: func(string, string, time.Duration) {},
		NodesCycled: func(string, int) {},
	}}
	_, reconciled := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.request)})
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w.request), w.request); apierrors.IsNotFound(err) {
		w.request = nil
	} else if err != nil {
		t.Fatal(err)
	}
	var list corev1.NodeList
	var children nodes.CycleNodeStatusList
	if err := errors.Join(c.List(t.Context(), &list), c.List(t.Context(), &children)); err != nil {
		t.Fatal(err)
	}
	w.nodes, w.children = map[string]*corev1.Node{}, nil
	for i := range list.Items {
		w.nodes[list.Items[i].Name] = &list.Items[i]
	}
	for i := range children.Items {
		w.children = append(w.children, &children.Items[i])
	}
	return reconciled
}

// step is a row of a table: what is given in a phase, and what follows from it.
type step struct {
	name    string
	phase   nodes.RequestPhase
	given   func(*world)
	want    nodes.RequestPhase
	message string // of the status; its reason, if the phase becomes Healing or Failed
	states  string // of the nodes; empty: those that were given
	calls   string // of the provider
}

func (w *world) shown() string {
	var list []string
	for _, n := range w.request.Status.NodesToTerminate {
		list = append(list, n.Name+" "+string(n.State))
	}
	return strings.Join(list, ", ")
}

func walk(t *testing.T, steps []step) {
	t.Helper()
	walkWith(t, newWorld, steps)
}

func walkWith(t *testing.T, newWorld func(nodes.RequestPhase) *world, steps []step) {
	t.Helper()
	for _, tt := range steps {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(tt.phase)
			if tt.given != nil {
				tt.given(w)
			}
			if tt.states == "" {
				tt.states = w.shown()
			}
			if err := w.reconcile(t); err != nil {
				t.Fatal(err)
			}
			s := w.request.Status
			message := s.Message
			if s.Phase != tt.phase && (s.Phase == nodes.RequestHealing || s.Phase == nodes.RequestFailed) {
				message = s.Reason
			}
			if s.Phase != tt.want || message != tt.message {
				t.Errorf("%s (%s), want %s (%s)", s.Phase, message, tt.want, tt.message)
			}
			if got := w.shown(); got != tt.states {
				t.Errorf("nodes: %s, want %s", got, tt.states)
			}
			if got := strings.Join(w.provider.calls, ", "); got != tt.calls {
				t.Errorf("calls of the provider: %s, want %s", got, tt.calls)
			}
			if changed := s.Phase != tt.phase; changed != (s.PhaseStarted != nil && s.PhaseStarted.Time.Equal(now)) {
				t.Errorf("the phase began at %v", s.PhaseStarted)
			}
			if (s.FinishedAt != nil) != controller.Ended(s.Phase) {
				t.Errorf("finished at %v", s.FinishedAt)
			}
		})
	}
}

func TestNewRequests(t *testing.T) {
	walk(t, []step{
		{name: "a valid request", want: nodes.RequestPending},
		{name: "without the finalizer", given: func(w *world) { w.request.Finalizers = nil }},
		{name: "a wrong selector", want: nodes.RequestHealing,
			message: `selector: "Like" is not a valid label selector operator`,
			given: func(w *world) {
				w.request.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{
					{Key: "a", Operator: "Like"},
				}
			}},
		{name: "a wrong check", want: nodes.RequestHealing,
			message: `healthChecks[0]: endpoint "http://{{ .X }}": {{ .NodeIP }} is the only template`,
			given: func(w *world) {
				w.request.Spec.HealthChecks = []nodes.HealthCheck{{Endpoint: "http://{{ .X }}"}}
			}},
		{name: "two names of a field", want: nodes.RequestHealing,
			message: "two names of the same field are given: cycleSettings and cycleNodeSettings",
			given: func(w *world) {
				w.request.Spec.CycleSettings.Concurrency = 1
				w.request.Spec.CycleNodeSettings = &nodes.CycleSettings{Concurrency: 2}
			}},
		{name: "deleted while it waits", phase: nodes.RequestPending, want: nodes.RequestHealing,
			message: "the request was deleted", given: func(w *world) { deleted(w.request) }},
	})
}

func TestPending(t *testing.T) {
	const pending, healing, initialised = nodes.RequestPending, nodes.RequestHealing, nodes.RequestInitialised
	const waits, both = "waits for request ns/other of the same node group", "a Available, b Available"
	const compares = "compares the provider's instances with the nodes"
	walk(t, []step{
		{name: "it begins to compare", phase: pending, want: pending, message: compares,
			given: func(w *world) { w.request.Status.EquilibriumWaitStarted = nil }},
		{name: "a later request", phase: pending, want: pending, message: compares, given: func(w *world) {
			w.request.Status.EquilibriumWaitStarted = nil
			w.other(pending)
		}},
		{name: "an earlier request", phase: pending, want: pending, message: waits, given: func(w *world) {
			w.other(pending).CreationTimestamp = metav1.NewTime(now.Add(-2 * time.Hour))
		}},
		{name: "an earlier request that is new", phase: pending, want: pending, message: waits,
			given: func(w *world) { w.other("").CreationTimestamp = metav1.NewTime(now.Add(-2 * time.Hour)) }},
		{name: "a request of the same second", phase: pending, want: pending, message: waits, given: func(w *world) {
			o := w.other(pending)
			o.UID, o.CreationTimestamp = "b-uid", w.request.CreationTimestamp
		}},
		{name: "a later request that has begun", phase: pending, want: pending, message: waits,
			given: func(w *world) { w.other(nodes.RequestScalingUp) }},
		{name: "a later request that heals", phase: pending, want: pending, message: waits,
			given: func(w *world) { w.other(healing) }},
		{name: "an earlier request has ended", phase: pending, want: initialised, states: both, given: func(w *world) {
			w.other(nodes.RequestFailed).CreationTimestamp = metav1.NewTime(now.Add(-2 * time.Hour))
		}},
		{name: "an earlier request of another group", phase: pending, want: initialised, states: both,
			given: func(w *world) {
				o := w.other(pending)
				o.Spec.NodeGroupName, o.CreationTimestamp = "h", metav1.NewTime(now.Add(-2*time.Hour))
			}},
		{name: "an earlier request that nobody carries out", phase: pending, want: initialised, states: both,
			given: func(w *world) {
				o := w.other("")
				o.Namespace, o.CreationTimestamp = "unserved", metav1.NewTime(now.Add(-2*time.Hour))
			}},
		{name: "an earlier request that other controllers carry out", phase: pending, want: pending,
			message: "waits for request unserved/other of the same node group, in a namespace that these controllers " +
				"do not serve",
			given: func(w *world) {
				o := w.other(pending)
				o.Namespace, o.CreationTimestamp = "unserved", metav1.NewTime(now.Add(-2*time.Hour))
			}},
		{name: "one of several groups is the same", phase: pending, want: pending, message: waits,
			given: func(w *world) {
				o := w.other(nodes.RequestInitialised)
				o.Spec.NodeGroupName, o.Spec.NodeGroupsList = "h", []string{"g"}
			}},

		{name: "all agree", phase: pending, want: initialised, states: both},
		{name: "a named node", phase: pending, want: initialised, states: "b Available",
			given: func(w *world) { w.request.Spec.NodeNames = []string{"b"} }},
		{name: "a named node is missing", phase: pending, want: healing,
			message: "these named nodes are not in the groups: z",
			given:   func(w *world) { w.request.Spec.NodeNames = []string{"z", "b"} }},
		{name: "a named node may be missing", phase: pending, want: initialised, states: "b Available",
			given: func(w *world) {
				w.request.Spec.NodeNames = []string{"z", "b"}
				w.request.Spec.ValidationOptions.SkipMissingNamedNodes = true
			}},
		{name: "all named nodes may be missing", phase: pending, want: initialised,
			message: "none of the named nodes is in the groups", given: func(w *world) {
				w.request.Spec.NodeNames = []string{"z"}
				w.request.Spec.ValidationOptions.SkipMissingNamedNodes = true
			}},
		{name: "an unknown group", phase: pending, want: healing, message: "Group h: not found",
			given: func(w *world) { w.request.Spec.NodeGroupName = "h" }},
		{name: "an empty group", phase: pending, want: healing, message: "there are no nodes in g",
			given: func(w *world) { w.ended("a"); w.ended("b") }},
		{name: "another request has claimed a node", phase: pending, want: pending, message: waits,
			given: func(w *world) {
				w.nodes["b"].Annotations = map[string]string{controller.AnnotationClaim: "z-uid"}
				w.other(pending)
			}},
		{name: "a request that has ended had claimed a node", phase: pending, want: initialised, states: both,
			given: func(w *world) {
				w.nodes["b"].Annotations = map[string]string{controller.AnnotationClaim: "z-uid"}
				w.other(nodes.RequestSuccessful)
			}},

		{name: "an instance starts", phase: pending, want: pending, message: "instance test:///c of g is Starting",
			given: func(w *world) { w.node("c", provider.Starting) }},
		{name: "a Node is not selected", phase: pending, want: pending,
			message: "instance test:///b of g is node b, which the selector does not select",
			given:   func(w *world) { w.nodes["b"].Labels = nil }},
		{name: "it has waited too long", phase: pending, want: healing,
			message: "Pending for more than 5m0s: instance test:///c of g is Starting", given: func(w *world) {
				w.node("c", provider.Starting)
				w.request.Status.EquilibriumWaitStarted = ago(5 * time.Minute)
			}},
		{name: "a Node without provider ID", phase: pending, want: pending, message: "node c has no provider ID",
			given: func(w *world) { w.node("c", "").Spec.ProviderID = "" }},
		{name: "a selected instance ends", phase: pending, want: pending,
			message: "node c is selected, but its instance is in none of the groups, and Terminating",
			given:   func(w *world) { w.node("c", ""); w.detached("c", provider.Terminating) }},
		{name: "a detached instance", phase: pending, want: pending, calls: "Attach test:///c",
			message: "node c was detached, and is being attached to g",
			given: func(w *world) {
				w.node("c", "").Annotations = map[string]string{controller.AnnotationDetached: "g"}
				w.detached("c", provider.Running)
			}},
		{name: "a machine that was never in the group", phase: pending, want: pending,
			message: "node c is selected, but its instance is in none of the groups, and no request has detached it: " +
				"either the selector selects too much, or it must be attached by hand",
			given: func(w *world) { w.node("c", ""); w.detached("c", provider.Running) }},
		{name: "a detached instance of another group", phase: pending, want: pending,
			message: "node c was detached from h, which is none of the groups", given: func(w *world) {
				w.node("c", "").Annotations = map[string]string{controller.AnnotationDetached: "h"}
				w.detached("c", provider.Running)
			}},
		{name: "a detached instance cannot be attached", phase: pending, want: pending, calls: "Attach test:///c",
			message: "node c is detached: conflict", given: func(w *world) {
				w.node("c", "").Annotations = map[string]string{controller.AnnotationDetached: "g"}
				w.detached("c", provider.Running)
				w.provider.failed = provider.ErrConflict
			}},
	})
}

// A Node without an instance is deleted if it is the provider's, has not been Ready for long enough, and is one of few;
// and only if the group is known to be this cluster's.
func TestOrphans(t *testing.T) {
	const none = "node c has no instance"
	notReady := func(n *corev1.Node) { n.Status.Conditions = nil }
	for _, tt := range []struct {
		name    string
		given   func(*world, *corev1.Node)
		stays   bool
		message string
	}{
		{name: "old", message: none, given: func(_ *world, n *corev1.Node) {
			notReady(n)
			n.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute))
		}},
		{name: "young", stays: true, message: none, given: func(_ *world, n *corev1.Node) {
			notReady(n)
			n.CreationTimestamp = metav1.NewTime(now.Add(-59 * time.Second))
		}},
		{name: "of another provider", stays: true, message: none, given: func(_ *world, n *corev1.Node) {
			notReady(n)
			n.Spec.ProviderID = "cloud:///c"
		}},
		{name: "Ready", stays: true, message: none + ", although it is Ready: it is not deleted"},
		{name: "not Ready since a moment ago", stays: true, message: none, given: func(_ *world, n *corev1.Node) {
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
			n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Second))
		}},
		{name: "one of too many", stays: true, message: "2 of 4 selected nodes have no instance: none of them is " +
			"deleted, since that is more than one and more than 10 %; does the provider look in the right region?",
			given: func(w *world, n *corev1.Node) {
				notReady(n)
				notReady(w.node("d", ""))
			}},
		{name: "one of too many, of which others are Ready", stays: true,
			message: "2 of 4 selected nodes have no instance: none of them is deleted, since that is more than one " +
				"and more than 10 %; does the provider look in the right region?",
			given: func(w *world, n *corev1.Node) {
				notReady(n)
				w.node("d", "")
			}},
		{name: "two of twenty", message: none + ", node d has no instance", given: func(w *world, n *corev1.Node) {
			notReady(n)
			notReady(w.node("d", ""))
			for i := range 16 {
				w.node(fmt.Sprintf("n%02d", i), provider.InService)
			}
		}},
		{name: "a namesake of the group", stays: true,
			message: "instance test:///x of g has no node: it is none of this cluster's groups, or all its nodes are " +
				"gone, node c has no instance",
			given: func(w *world, n *corev1.Node) {
				notReady(n)
				w.ended("a")
				w.ended("b")
				w.node("x", provider.InService)
				delete(w.nodes, "x")
			}},
	} {
		w := newWorld(nodes.RequestPending)
		if n := w.node("c", ""); tt.given != nil {
			tt.given(w, n)
		}
		if err := w.reconcile(t); err != nil {
			t.Fatal(err)
		}
		if stays := w.nodes["c"] != nil; stays != tt.stays || w.request.Status.Message != tt.message {
			t.Errorf("%s: it stays: %t; %s", tt.name, stays, w.request.Status.Message)
		}
	}
}

// What draining would lose is refused before anything is done.
func TestUndrainable(t *testing.T) {
	const refused = "these pods would be lost: apps/p (no controller would make it again); " +
		controller.UndrainableAdvice
	pod := func(w *world, labels map[string]string) {
		w.pods = append(w.pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "p", Labels: labels},
			Spec:       corev1.PodSpec{NodeName: "a"},
		})
	}
	const pending, initialised, both = nodes.RequestPending, nodes.RequestInitialised, "a Available, b Available"
	walk(t, []step{
		{name: "drain", phase: pending, want: nodes.RequestHealing, message: refused,
			given: func(w *world) { pod(w, nil) }},
		{name: "it is accepted", phase: pending, want: initialised, states: both,
			given: func(w *world) { pod(w, nil); w.request.Spec.CycleSettings.Force = true }},
		{name: "on a node that is not cycled", phase: pending, want: initialised, states: "b Available",
			given: func(w *world) { pod(w, nil); w.request.Spec.NodeNames = []string{"b"} }},
		{name: "it is waited for", phase: pending, want: initialised, states: both,
			given: func(w *world) { pod(w, nil); w.request.Spec.CycleSettings.Method = nodes.MethodWait }},
		{name: "it is not waited for", phase: pending, want: nodes.RequestHealing, message: refused,
			given: func(w *world) {
				pod(w, map[string]string{"batch": "yes"})
				w.request.Spec.CycleSettings.Method = nodes.MethodWait
				w.request.Spec.CycleSettings.IgnorePodsLabels = map[string][]string{"batch": {"yes"}}
			}},
	})
}

// An instance that has lost its Node is waited for, and then replaced, once, if there are few.
func TestInstancesWithoutNode(t *testing.T) {
	const pending = nodes.RequestPending
	lose := func(w *world, names ...string) {
		for _, name := range names {
			delete(w.nodes, name)
		}
	}
	late := func(w *world) { w.request.Status.EquilibriumWaitStarted = ago(5 * time.Minute) }
	walk(t, []step{
		{name: "it is waited for", phase: pending, want: pending,
			message: "instance test:///b of g has no node: it is replaced if none registers within 5m0s",
			given:   func(w *world) { lose(w, "b") }},
		{name: "it is going to be replaced", phase: pending, want: pending,
			message: "replaces instances that have no node: test:///b",
			given:   func(w *world) { lose(w, "b"); late(w) }},
		{name: "something else is wrong, too", phase: pending, want: nodes.RequestHealing,
			message: "Pending for more than 5m0s: instance test:///b of g has no node: it is replaced if none " +
				"registers within 5m0s, instance test:///c of g is Starting",
			given: func(w *world) { lose(w, "b"); late(w); w.node("c", provider.Starting) }},
		{name: "too many", phase: pending, want: pending,
			message: "instance test:///a of g has no node; there are too many of them to be replaced: terminate " +
				"them, or let their nodes register, instance test:///b of g has no node; there are too many of them " +
				"to be replaced: terminate them, or let their nodes register",
			given: func(w *world) { w.node("c", provider.InService); lose(w, "a", "b") }},
		{name: "one more than was replaced", phase: pending, want: pending,
			message: "instance test:///b of g has no node; there are too many of them to be replaced: terminate " +
				"them, or let their nodes register",
			given: func(w *world) { lose(w, "b"); w.request.Status.Replaced = []string{id("z")} }},
		{name: "it was replaced in vain", phase: pending, want: nodes.RequestHealing,
			message: "Pending for more than 5m0s: instance test:///b of g is Terminating",
			given: func(w *world) {
				lose(w, "b")
				late(w)
				w.request.Status.Replaced = []string{id("b")}
				w.provider.group.Instances[1].State = provider.Terminating
			}},
		{name: "its Node came in the last moment", phase: pending, want: nodes.RequestInitialised,
			states: "a Available, b Available",
			given:  func(w *world) { w.request.Status.Replaced = []string{id("b")} }},
	})
	w := newWorld(pending)
	lose(w, "b")
	w.request.Status.Replaced = []string{id("b")}
	if err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(w.provider.calls, ", "); got != "Terminate test:///b" {
		t.Errorf("calls of the provider: %s; %s", got, w.request.Status.Message)
	}
}

// A Node is not deleted either if it is one of those to be cycled, and still Ready: the provider may look elsewhere
// now.
func TestReadyNodesAreNotDeleted(t *testing.T) {
	walk(t, []step{
		{name: "before it is detached", phase: nodes.RequestInitialised, want: nodes.RequestInitialised,
			message: "node a is Ready, but the provider knows no instance of it",
			given:   func(w *world) { w.gone("a") }},
		{name: "at the end", phase: nodes.RequestInitialised, want: nodes.RequestInitialised,
			message: "node a is Ready, but the provider knows no instance of it",
			given:   func(w *world) { w.cycled(); w.node("a", "") }},
		{name: "while it is healed", phase: nodes.RequestHealing, want: nodes.RequestHealing,
			message: "node a is Ready, but the provider knows no instance of it",
			given:   func(w *world) { w.states("Attaching", "Available"); w.gone("a") }},
	})
}

func TestDetaching(t *testing.T) {
	const initialised, scalingUp = nodes.RequestInitialised, nodes.RequestScalingUp
	walk(t, []step{
		{name: "all at once", phase: initialised, want: initialised, states: "a Detaching, b Detaching"},
		{name: "one at a time", phase: initialised, want: initialised, states: "a Detaching, b Available",
			given: func(w *world) { w.request.Spec.CycleSettings.Concurrency = 1 }},
		{name: "one is active", phase: initialised, want: initialised, states: "a Cycling, b Detaching, c Available",
			given: func(w *world) {
				w.request.Spec.CycleSettings.Concurrency = 2
				w.node("c", provider.InService)
				w.states("Cycling", "Available", "Available")
				w.child("a", nodes.StatusDrainingPods, "")
			}},
		{name: "an instance is gone", phase: initialised, want: initialised, states: "a Missing, b Detaching",
			given: func(w *world) { w.ended("a") }},
		{name: "they are detached", phase: initialised, want: scalingUp, states: "a Detached, b Available",
			calls: "Detach test:///a", given: func(w *world) { w.states("Detaching", "Available") }},
		{name: "somebody else has ended one", phase: initialised, want: scalingUp, states: "a Detached, b Detached",
			calls: "Detach test:///b", given: func(w *world) { w.states("Detaching", "Detaching"); w.ended("a") }},
		{name: "it is being detached", phase: initialised, want: scalingUp, states: "a Detached, b Available",
			given: func(w *world) {
				w.states("Detaching", "Available")
				w.provider.group.Instances[0].State = provider.Detaching
			}},
		{name: "it cannot be detached", phase: initialised, want: nodes.RequestHealing, message: "conflict",
			calls: "Detach test:///a", given: func(w *world) {
				w.states("Detaching", "Available")
				w.provider.failed = provider.ErrConflict
			}},
		{name: "another request has claimed it", phase: initialised, want: nodes.RequestHealing,
			message: "node a was claimed by request ns/other", given: func(w *world) {
				w.states("Detaching", "Available")
				w.nodes["a"].Annotations[controller.AnnotationClaim] = "z-uid"
				w.other(nodes.RequestInitialised)
			}},
		{name: "nothing can be detached now", phase: initialised, want: nodes.RequestWaitingTermination,
			given: func(w *world) {
				w.request.Spec.CycleSettings.Concurrency = 1
				w.states("Cycling", "Available")
				w.child("a", nodes.StatusDrainingPods, "")
			}},

		{name: "no replacement", phase: scalingUp, want: scalingUp,
			message: "waits for new nodes: node group g has 1 of 2 nodes",
			given:   func(w *world) { w.states("Detached", "Available"); w.detached("a", provider.Running) }},
		{name: "the replacement starts", phase: scalingUp, want: scalingUp,
			message: "waits for new nodes: node group g has 1 of 2 nodes", given: func(w *world) {
				w.states("Detached", "Available")
				w.detached("a", provider.Running)
				w.node("c", provider.Starting)
			}},
		{name: "the replacement is not Ready", phase: scalingUp, want: scalingUp,
			message: "waits for new nodes: node group g has 1 of 2 nodes", given: func(w *world) {
				w.states("Detached", "Available")
				w.detached("a", provider.Running)
				w.node("c", provider.InService).Status.Conditions = nil
			}},
		{name: "the replacement is Ready", phase: scalingUp, want: nodes.RequestCordoningNode, given: func(w *world) {
			w.states("Detached", "Available")
			w.detached("a", provider.Running)
			w.node("c", provider.InService)
		}},
		{name: "the group was made smaller", phase: scalingUp, want: nodes.RequestCordoningNode,
			given: func(w *world) {
				w.states("Detached", "Available")
				w.detached("a", provider.Running)
				w.provider.group.DesiredCapacity = 1
			}},
		{name: "the group was made larger", phase: scalingUp, want: nodes.RequestCordoningNode,
			given: func(w *world) {
				w.states("Detached", "Available")
				w.detached("a", provider.Running)
				w.node("c", provider.InService)
				w.provider.group.DesiredCapacity = 3
			}},
		{name: "it is in the group still", phase: scalingUp, want: scalingUp, message: "waits until node a is detached",
			given: func(w *world) {
				w.states("Detached", "Available")
				w.provider.group.Instances[0].State = provider.Detaching
			}},
		{name: "no replacement for too long", phase: scalingUp, want: nodes.RequestHealing,
			message: "ScalingUp for more than 20m0s: waits for new nodes: node group g has 1 of 2 nodes",
			given: func(w *world) {
				w.states("Detached", "Available")
				w.detached("a", provider.Running)
				w.request.Status.ScaleUpStarted = ago(20 * time.Minute)
			}},
	})
}

func TestCycling(t *testing.T) {
	const cordoning, waiting = nodes.RequestCordoningNode, nodes.RequestWaitingTermination
	walk(t, []step{
		{name: "without checks", phase: cordoning, want: waiting, states: "a Cycling, b Available",
			given: func(w *world) { w.states("Detached", "Available"); w.detached("a", provider.Running) }},
		{name: "its Node is gone", phase: cordoning, want: waiting, states: "a Cycling, b Available",
			given: func(w *world) { w.states("Detached", "Available"); w.ended("a") }},

		{name: "a status is made", phase: waiting, want: waiting, states: "a Cycling, b Cycled",
			message: "waits until 1 nodes are drained and terminated",
			given:   func(w *world) { w.states("Cycling", "Cycled"); w.detached("a", provider.Running) }},
		{name: "what a node waits for", phase: waiting, want: waiting,
			message: "waits until 2 nodes are drained and terminated: node a: one thing, node b: another",
			given: func(w *world) {
				w.states("Cycling", "Cycling")
				w.child("b", nodes.StatusDrainingPods, "another")
				w.child("a", nodes.StatusTerminatingNode, "one thing")
			}},
		{name: "a node is cycled", phase: waiting, want: waiting, states: "a Cycled, b Cycling", given: func(w *world) {
			w.states("Cycling", "Cycling")
			w.child("a", nodes.StatusSuccessful, "")
			w.child("b", nodes.StatusTerminatingNode, "")
		}},
		{name: "a status is gone with its node", phase: waiting, want: waiting, states: "a Cycled, b Available",
			given: func(w *world) { w.states("Cycling", "Available"); w.ended("a") }},
		{name: "a status has failed", phase: waiting, want: nodes.RequestHealing, message: "node a: why",
			given: func(w *world) {
				w.states("Cycling", "Cycling")
				w.child("a", nodes.StatusFailed, "why")
				w.child("b", nodes.StatusDrainingPods, "")
			}},
		{name: "one has failed and one was cycled", phase: waiting, want: nodes.RequestHealing, message: "node a: why",
			states: "a Cycling, b Cycled", given: func(w *world) {
				w.states("Cycling", "Cycling")
				w.child("a", nodes.StatusFailed, "why")
				w.child("b", nodes.StatusSuccessful, "")
			}},
		{name: "all are cycled", phase: waiting, want: nodes.RequestInitialised,
			given: func(w *world) { w.states("Cycled", "Available") }},
		{name: "half of the next ones may begin", phase: waiting, want: nodes.RequestInitialised,
			given: func(w *world) {
				w.request.Spec.CycleSettings.Concurrency = 2
				w.node("c", provider.InService)
				w.states("Cycled", "Cycling", "Available")
				w.child("b", nodes.StatusDrainingPods, "")
			}},
		{name: "too many are active", phase: waiting, want: waiting,
			message: "waits until 2 nodes are drained and terminated", given: func(w *world) {
				w.request.Spec.CycleSettings.Concurrency = 2
				w.node("c", provider.InService)
				w.states("Cycling", "Cycling", "Available")
				w.child("a", nodes.StatusDrainingPods, "")
				w.child("b", nodes.StatusDrainingPods, "")
			}},
		{name: "more than half of all are active", phase: waiting, want: waiting,
			message: "waits until 2 nodes are drained and terminated", given: func(w *world) {
				w.request.Spec.CycleSettings.Concurrency = 100
				w.node("c", provider.InService)
				w.states("Cycling", "Cycling", "Available")
				w.child("a", nodes.StatusDrainingPods, "")
				w.child("b", nodes.StatusDrainingPods, "")
			}},
		{name: "none is left to begin", phase: waiting, want: waiting,
			message: "waits until 1 nodes are drained and terminated", given: func(w *world) {
				w.states("Cycled", "Cycling")
				w.child("b", nodes.StatusDrainingPods, "")
			}},

		{name: "all is as it should be", phase: nodes.RequestInitialised, want: nodes.RequestSuccessful,
			message: "2 nodes cycled", given: func(w *world) { w.cycled() }},
		{name: "somebody else has ended one", phase: nodes.RequestInitialised, want: nodes.RequestSuccessful,
			message: "1 nodes cycled, 1 ended by someone else", given: func(w *world) {
				w.cycled()
				w.states("Cycled", "Missing")
			}},
		{name: "an instance still exists", phase: nodes.RequestInitialised, want: nodes.RequestInitialised,
			message: "the instance of node a still exists",
			given:   func(w *world) { w.cycled(); w.detached("a", provider.Terminating) }},
		{name: "a Node still exists", phase: nodes.RequestInitialised, want: nodes.RequestInitialised,
			message: "Node a still exists",
			given:   func(w *world) { w.cycled(); w.node("a", "").Status.Conditions = nil }},
		{name: "a replacement is gone", phase: nodes.RequestInitialised, want: nodes.RequestInitialised,
			message: "node group g has 1 of 2 nodes", given: func(w *world) { w.cycled(); w.ended("c") }},
		{name: "a replacement is gone for too long", phase: nodes.RequestInitialised, want: nodes.RequestHealing,
			message: "Initialised for more than 5m0s: node group g has 1 of 2 nodes", given: func(w *world) {
				w.cycled()
				w.ended("c")
				w.request.Status.PhaseStarted = ago(5 * time.Minute)
			}},
	})
}

// cycled replaces the nodes a and b by c and d.
func (w *world) cycled() {
	w.ended("a")
	w.ended("b")
	w.node("c", provider.InService)
	w.node("d", provider.InService)
	w.states("Cycled", "Cycled")
}

func TestHealing(t *testing.T) {
	const healing, failed = nodes.RequestHealing, nodes.RequestFailed
	walk(t, []step{
		{name: "nothing was done", phase: healing, want: failed, message: "reason"},
		{name: "what was detached is attached", phase: healing, want: healing, states: "a Attaching, b Attaching",
			given: func(w *world) { w.states("Detached", "Detaching") }},
		{name: "what was given up is attached", phase: healing, want: healing, states: "a Attaching, b Available",
			given: func(w *world) { w.states("Cycling", "Available"); w.child("a", nodes.StatusFailed, "") }},
		{name: "what was never begun is attached", phase: healing, want: healing, states: "a Attaching, b Available",
			given: func(w *world) { w.states("Cycling", "Available") }},
		{name: "what was cycled stays so", phase: healing, want: healing, states: "a Cycled, b Available",
			given: func(w *world) { w.states("Cycling", "Available"); w.child("a", nodes.StatusSuccessful, "") }},
		{name: "what is being cycled is waited for", phase: healing, want: healing,
			message: "reason; waits until 1 nodes are drained and terminated",
			given:   func(w *world) { w.states("Cycling", "Available"); w.child("a", nodes.StatusDrainingPods, "") }},
		{name: "what that waits for", phase: healing, want: healing,
			message: "reason; waits until 1 nodes are drained and terminated: node a: a pod",
			given: func(w *world) {
				w.states("Cycling", "Available")
				w.child("a", nodes.StatusDrainingPods, "a pod")
			}},
		{name: "a node is attached", phase: healing, want: healing, calls: "Attach test:///a",
			message: "node a is being attached to g",
			given:   func(w *world) { w.states("Attaching", "Available"); w.detached("a", provider.Running) }},
		{name: "a node is being detached", phase: healing, want: healing, message: "node a is being detached",
			given: func(w *world) {
				w.states("Attaching", "Available")
				w.provider.group.Instances[0].State = provider.Detaching
			}},
		{name: "a node is in its group", phase: healing, want: healing, states: "a Attached, b Available",
			given: func(w *world) { w.states("Attaching", "Available") }},
		{name: "an instance has no Node", phase: healing, want: healing, calls: "Terminate test:///a",
			message: "instance test:///a has no Node any more, and is being terminated", given: func(w *world) {
				w.states("Attaching", "Available")
				w.detached("a", provider.Running)
				delete(w.nodes, "a")
			}},
		{name: "an instance ends", phase: healing, want: healing, message: "the instance of node a has not ended",
			given: func(w *world) { w.states("Attaching", "Available"); w.detached("a", provider.Terminating) }},
		{name: "a Node has no instance", phase: healing, want: healing, message: "Node a still exists",
			given: func(w *world) {
				w.states("Attaching", "Available")
				w.gone("a")
				w.nodes["a"].Status.Conditions = nil
			}},
		{name: "both are gone", phase: healing, want: healing, states: "a Cycled, b Available",
			given: func(w *world) { w.states("Attaching", "Available"); w.ended("a") }},
		{name: "a late status is still at it", phase: healing, want: healing, message: "node a is still being cycled",
			given: func(w *world) { w.states("Attaching", "Available"); w.child("a", nodes.StatusPending, "") }},
		{name: "all is undone", phase: healing, want: failed, message: "reason",
			given: func(w *world) { w.states("Attached", "Cycled") }},
		{name: "it cannot be undone", phase: healing, want: failed,
			message: "reason; it could not be undone: Healing for more than 20m0s: node a is being detached",
			given: func(w *world) {
				w.states("Attaching", "Available")
				w.provider.group.Instances[0].State = provider.Detaching
				w.request.Status.HealingStarted = ago(20 * time.Minute)
			}},
	})
}

// A group that is larger than before is reported, however healing ends.
func TestEnlargedGroups(t *testing.T) {
	const words = "node group g has now 4 instances, 2 more than when the request began: set its desired capacity to " +
		"2 again when these are not needed"
	for _, tt := range []struct {
		name     string
		capacity int
		late     bool
		extra    int64
		message  string
	}{
		{"as before", 2, false, 0, "reason"},
		{"smaller", 1, false, 0, "reason"},
		{"larger", 4, false, 2, "reason; " + words},
		{"larger, and not undone", 4, true, 2,
			"reason; it could not be undone: Healing for more than 20m0s: node a is being detached; " + words},
	} {
		w := newWorld(nodes.RequestHealing)
		w.provider.group.DesiredCapacity = tt.capacity
		if tt.late {
			w.states("Attaching", "Available")
			w.provider.group.Instances[0].State = provider.Detaching
			w.request.Status.HealingStarted = ago(20 * time.Minute)
		}
		if err := w.reconcile(t); err != nil {
			t.Fatal(err)
		}
		if s := w.request.Status; s.Phase != nodes.RequestFailed || s.ExtraInstances != tt.extra ||
			s.Message != tt.message {
			t.Errorf("%s: %s, %d more: %s", tt.name, s.Phase, s.ExtraInstances, s.Message)
		}
	}
}

func TestMissingGroup(t *testing.T) {
	w := newWorld(nodes.RequestPending)
	w.request.Spec.NodeGroupsList = []string{"h"}
	if err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if s := w.request.Status; s.Phase != nodes.RequestHealing || s.MissingGroup != "h" {
		t.Errorf("%+v", s)
	}
}

// Only if the request is deleted, statuses that are at work are given up.
func TestStatusesAreGivenUp(t *testing.T) {
	for _, gives := range []bool{true, false} {
		w := newWorld(nodes.RequestHealing)
		w.states("Cycling", "Available")
		w.child("a", nodes.StatusDrainingPods, "")
		if gives {
			deleted(w.request)
		}
		if err := w.reconcile(t); err != nil {
			t.Fatal(err)
		}
		if got := w.children[0].DeletionTimestamp != nil; got != gives {
			t.Errorf("the request is deleted: %t; its status: %t", gives, got)
		}
	}
}

// A status is made once, for the node that it drains.
func TestChildren(t *testing.T) {
	w := newWorld(nodes.RequestWaitingTermination)
	w.request.Spec.CycleSettings.LabelsToRemove = []string{"serve"}
	w.states("Cycling", "Cycled")
	w.detached("a", provider.Running)
	for range 2 {
		if err := w.reconcile(t); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.children) != 1 {
		t.Fatalf("%d statuses", len(w.children))
	}
	s := w.children[0]
	if s.Spec.Node != w.request.Status.NodesToTerminate[0].NodeRef || s.Spec.RequestUID != "q-uid" ||
		!slices.Equal(s.Spec.CycleSettings.LabelsToRemove, []string{"serve"}) ||
		!slices.Contains(s.Finalizers, controller.Finalizer) || !metav1.IsControlledBy(s, w.request) {
		t.Errorf("%+v", s)
	}
	if s := w.request.Status; s.ActiveChildren != 1 || s.Progress != "1/2" || len(s.CurrentNodes) != 1 {
		t.Errorf("%+v", s)
	}
	w.request.Status.NodesToTerminate[0].State = nodes.NodeCycling
	s.Spec.RequestUID = "another"
	if err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if s := w.request.Status; s.Phase != nodes.RequestHealing ||
		!strings.Contains(s.Reason, "belongs to request q (another)") {
		t.Errorf("the status of another request: %s, %s", s.Phase, s.Reason)
	}
}

// Claims and cordons are removed at the end, and only the request's own.
func TestMarks(t *testing.T) {
	w := newWorld(nodes.RequestCordoningNode)
	w.states("Detached", "Available")
	w.detached("a", provider.Running)
	if err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if !w.nodes["a"].Spec.Unschedulable || w.nodes["b"].Spec.Unschedulable {
		t.Errorf("cordoned: %t, %t", w.nodes["a"].Spec.Unschedulable, w.nodes["b"].Spec.Unschedulable)
	}
	w.request.Status.Phase, w.request.Status.Reason = nodes.RequestHealing, "reason"
	w.states("Attached", "Available")
	w.nodes["b"].Spec.Unschedulable = true // by another client
	w.nodes["b"].Annotations[controller.AnnotationClaim] = "another"
	if err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	a, b := w.nodes["a"], w.nodes["b"]
	if w.request.Status.Phase != nodes.RequestFailed || a.Spec.Unschedulable || len(a.Annotations) > 0 {
		t.Errorf("%s: %+v", w.request.Status.Phase, a)
	}
	if !b.Spec.Unschedulable || b.Annotations[controller.AnnotationClaim] != "another" {
		t.Errorf("marks of somebody else: %+v", b)
	}
}

// What has ended, and what has not begun, can be deleted.
func TestFinalizer(t *testing.T) {
	for phase, stays := range map[nodes.RequestPhase]bool{
		"": false, nodes.RequestSuccessful: false, nodes.RequestFailed: false, nodes.RequestPending: true,
		nodes.RequestInitialised: true, nodes.RequestHealing: true,
	} {
		w := newWorld(phase)
		w.states("Attaching", "Available")
		w.detached("a", provider.Terminating)
		deleted(w.request)
		if err := w.reconcile(t); err != nil {
			t.Fatal(err)
		}
		if got := w.request != nil; got != stays {
			t.Errorf("%q: it stays: %t", phase, got)
		}
	}
	w := newWorld("")
	w.request.Finalizers = nil
	if err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(w.request.Finalizers, controller.Finalizer) || w.request.Status.Phase != "" {
		t.Errorf("%v, %q", w.request.Finalizers, w.request.Status.Phase)
	}
}

// Nodes that were started since the request began are protected from autoscalers until it ends.
func TestProtected(t *testing.T) {
	protected := func(w *world) (names []string) {
		for name, n := range w.nodes {
			if len(controller.ProtectedBy(n)) > 0 {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	w := newWorld(nodes.RequestScalingUp)
	w.states("Detached", "Available")
	w.detached("a", provider.Running)
	w.node("new", provider.InService).Status.Conditions[0].Status = corev1.ConditionFalse
	w.node("user", provider.InService).Annotations = map[string]string{
		controller.AnnotationScaleDownDisabled: "true", controller.AnnotationDoNotDisrupt: "false",
	}
	w.node("elsewhere", "")
	if err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if got := protected(w); !slices.Equal(got, []string{"new"}) {
		t.Errorf("%s: %v", w.request.Status.Phase, got)
	}
	w.request.Status.Phase, w.request.Status.Reason = nodes.RequestHealing, "reason"
	w.states("Attached", "Available")
	if err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if got := protected(w); w.request.Status.Phase != nodes.RequestFailed || len(got) > 0 ||
		w.nodes["new"].Annotations[controller.AnnotationScaleDownDisabled] != "" {
		t.Errorf("%s: %v", w.request.Status.Phase, got)
	}
	if a := w.nodes["user"].Annotations; a[controller.AnnotationScaleDownDisabled] != "true" ||
		a[controller.AnnotationDoNotDisrupt] != "false" {
		t.Errorf("annotations of a user: %v", a)
	}
}

// A request that has ended is kept for its ttlAfterFinished.
func TestTTLAfterFinished(t *testing.T) {
	for name, tt := range map[string]struct {
		phase nodes.RequestPhase
		ttl   string
		ended time.Duration // ago
		gone  bool
	}{
		"without":         {nodes.RequestSuccessful, "", time.Hour, false},
		"long enough":     {nodes.RequestSuccessful, "1h", time.Hour, true},
		"not long enough": {nodes.RequestSuccessful, "1h", 59 * time.Minute, false},
		"at once":         {nodes.RequestSuccessful, "0s", 0, true},
		"it has failed":   {nodes.RequestFailed, "10m", time.Hour, true},
		"it goes on":      {nodes.RequestWaitingTermination, "1ms", time.Hour, false},
		"it is healing":   {nodes.RequestHealing, "1ms", time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tt.phase)
			w.request.Spec.TTLAfterFinished = chaos.Duration(tt.ttl)
			if controller.Ended(tt.phase) {
				w.request.Status.FinishedAt = ago(tt.ended)
			} else {
				w.states("Cycling", "Available")
				w.detached("a", provider.Running)
				w.child("a", nodes.StatusTerminatingNode, "")
			}
			if err := w.reconcile(t); err != nil {
				t.Fatal(err)
			}
			if gone := w.request == nil; gone != tt.gone {
				t.Errorf("gone: %t", gone)
			}
		})
	}
}
