package status

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
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

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

const instance = "test:///i-1"

// scripted is a provider with at most one instance.
type scripted struct {
	provider.Provider
	state      provider.State // empty: the instance does not exist
	err        error
	terminated bool
}

func (p *scripted) Instances(context.Context, ...string) ([]provider.Instance, error) {
	if p.err != nil || p.state == "" {
		return nil, p.err
	}
	return []provider.Instance{{ProviderID: instance, State: p.state}}, nil
}

func (p *scripted) Terminate(context.Context, string) error {
	p.terminated = true
	return nil
}

// world is what a reconcile finds: by default a node with a status in DrainingPods, and a request that wants it to be
// cycled.
type world struct {
	status   *nodes.CycleNodeStatus
	request  *nodes.CycleNodeRequest
	node     *corev1.Node
	pods     []*corev1.Pod
	provider *scripted
}

func newWorld(phase nodes.StatusPhase) *world {
	ref := nodes.NodeRef{Name: "n", UID: "node-uid", ProviderID: instance, NodeGroupName: "g"}
	w := &world{
		status: &nodes.CycleNodeStatus{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "s", UID: "status-uid", Finalizers: []string{controller.Finalizer},
			},
			Spec: nodes.CycleNodeStatusSpec{
				Request: "q", RequestUID: "request-uid", Node: ref,
				CycleSettings: nodes.CycleSettings{Method: nodes.MethodDrain},
			},
		},
		request: &nodes.CycleNodeRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q", UID: "request-uid"},
			Status: nodes.CycleNodeRequestStatus{
				Phase:            nodes.RequestWaitingTermination,
				NodesToTerminate: []nodes.CycleNodeRequestNode{{NodeRef: ref, State: nodes.NodeCycling}},
			},
		},
		node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid"}, Spec: corev1.NodeSpec{ProviderID: instance},
		},
		provider: &scripted{state: provider.Running},
	}
	if phase != "" {
		w.status.Status = nodes.CycleNodeStatusStatus{
			Phase: phase, PhaseStarted: ago(time.Second), StartedTimestamp: ago(time.Minute),
		}
	}
	return w
}

// pod adds a pod to the node.
func (w *world) pod(name string, change func(*corev1.Pod)) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "apps", Name: name, UID: "pod-uid", Labels: map[string]string{"app": "x"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if change != nil {
		change(p)
	}
	w.pods = append(w.pods, p)
}

func emptyDir(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{
		Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
	}}
}

func deleted(o client.Object) {
	at := metav1.NewTime(now)
	o.SetDeletionTimestamp(&at)
}

// reconcile makes one step, and reads the objects again. What does not exist any more is nil.
func (w *world) reconcile(t *testing.T) (ctrl.Result, error) {
	t.Helper()
	objects := []client.Object{w.status}
	if w.request != nil {
		objects = append(objects, w.request)
	}
	if w.node != nil {
		objects = append(objects, w.node)
	}
	for _, p := range w.pods {
		objects = append(objects, p)
	}
	c := fake.NewClientBuilder().WithScheme(scheme()).WithObjects(objects...).WithStatusSubresource(w.status).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Spec.NodeName}
		}).Build()
	r := &Reconciler{&controller.Env{
		Client: c, Reader: c, Provider: w.provider, Events: events.NewFakeRecorder(10),
		Clock: clocktesting.NewFakePassiveClock(now), Limits: controller.Limits{}.WithDefaults(),
		PhaseEnded: func(string, string, time.Duration) {},
	}}
	result, reconciled := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.status)})
	read := func(o client.Object) bool {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o)
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	if !read(w.status) {
		w.status = nil
	}
	if w.node != nil && !read(w.node) {
		w.node = nil
	}
	w.pods = slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool { return !read(p) })
	return result, reconciled
}

func TestSteps(t *testing.T) {
	const limit = 3 * time.Hour // of Cycling
	for _, tt := range []struct {
		name    string
		phase   nodes.StatusPhase
		given   func(*world)
		want    nodes.StatusPhase
		message string
	}{
		{name: "a new status", phase: "", want: nodes.StatusPending},
		{name: "it begins to drain", phase: nodes.StatusPending, want: nodes.StatusRemovingLabelsFromPods},
		{name: "it begins to wait", phase: nodes.StatusPending, want: nodes.StatusWaitingPods,
			given: func(w *world) { w.status.Spec.CycleSettings.Method = nodes.MethodWait }},
		{name: "it was deleted", phase: nodes.StatusPending, want: nodes.StatusFailed, message: "it was deleted",
			given: func(w *world) { deleted(w.status) }},
		{name: "its request is gone", phase: nodes.StatusWaitingPods, want: nodes.StatusFailed,
			message: "its request does not exist", given: func(w *world) { w.request = nil }},
		{name: "another request has the name", phase: nodes.StatusPending, want: nodes.StatusFailed,
			message: "its request does not exist", given: func(w *world) { w.request.UID = "another" }},
		{name: "the request heals the node", phase: nodes.StatusDrainingPods, want: nodes.StatusFailed,
			message: "its request does not want the node to be cycled",
			given:   func(w *world) { w.request.Status.NodesToTerminate[0].State = nodes.NodeAttaching }},
		{name: "the request has ended", phase: nodes.StatusRemovingLabelsFromPods, want: nodes.StatusFailed,
			message: "its request does not want the node to be cycled",
			given:   func(w *world) { w.request.Status.Phase = nodes.RequestFailed }},
		{name: "the request does not know the node", phase: nodes.StatusPending, want: nodes.StatusFailed,
			message: "its request does not want the node to be cycled",
			given:   func(w *world) { w.request.Status.NodesToTerminate = nil }},
		{name: "a deleted Node", phase: nodes.StatusDrainingPods, want: nodes.StatusTerminatingNode,
			message: "someone else deleted the Node", given: func(w *world) { w.node = nil }},
		{name: "another machine has the Node's name", phase: nodes.StatusPending, want: nodes.StatusTerminatingNode,
			message: "someone else deleted the Node",
			given:   func(w *world) { w.node.UID, w.node.Spec.ProviderID = "another", "test:///i-2" }},
		{name: "the kubelet has registered the Node again", phase: nodes.StatusPending,
			want: nodes.StatusRemovingLabelsFromPods, given: func(w *world) { w.node.UID = "another" }},

		{name: "a pod that runs is waited for", phase: nodes.StatusWaitingPods, want: nodes.StatusWaitingPods,
			message: "waits until these pods end: apps/p", given: func(w *world) { w.pod("p", nil) }},
		{name: "no pod is waited for", phase: nodes.StatusWaitingPods, want: nodes.StatusRemovingLabelsFromPods,
			given: func(w *world) {
				w.status.Spec.CycleSettings.IgnoreNamespaces = []string{"kube-system"}
				w.status.Spec.CycleSettings.IgnorePodsLabels = map[string][]string{"app": {"y", "z"}}
				w.pod("succeeded", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
				w.pod("failed", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
				w.pod("ignored", func(p *corev1.Pod) { p.Namespace = "kube-system" })
				w.pod("labelled", func(p *corev1.Pod) { p.Labels["app"] = "z" })
				w.pod("mirror", func(p *corev1.Pod) {
					p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
				})
				w.pod("elsewhere", func(p *corev1.Pod) { p.Spec.NodeName = "another" })
				w.pod("daemon", func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" })
			}},
		{name: "only a pod with the annotation is waited for", phase: nodes.StatusWaitingPods,
			want: nodes.StatusWaitingPods, message: "waits until these pods end: apps/job", given: func(w *world) {
				w.status.Spec.CycleSettings.WaitForAnnotation = "example.org/stay"
				w.pod("web", nil)
				w.pod("no", func(p *corev1.Pod) { p.Annotations = map[string]string{"example.org/stay": "false"} })
				w.pod("job", func(p *corev1.Pod) { p.Annotations = map[string]string{"example.org/stay": "true"} })
			}},
		{name: "it has waited too long", phase: nodes.StatusWaitingPods, want: nodes.StatusFailed,
			message: "WaitingPods for more than 3h0m0s: waits until these pods end: apps/p",
			given:   func(w *world) { w.pod("p", nil); w.status.Status.StartedTimestamp = ago(limit) }},
		{name: "it has not waited too long", phase: nodes.StatusWaitingPods, want: nodes.StatusWaitingPods,
			message: "waits until these pods end: apps/p",
			given:   func(w *world) { w.pod("p", nil); w.status.Status.StartedTimestamp = ago(limit - 1000) }},
		{name: "the request has a limit of its own", phase: nodes.StatusWaitingPods, want: nodes.StatusFailed,
			message: "WaitingPods for more than 30s: waits until these pods end: apps/p",
			given:   func(w *world) { w.pod("p", nil); w.status.Spec.CycleSettings.CyclingTimeout = "30s" }},

		{name: "labels are removed", phase: nodes.StatusRemovingLabelsFromPods, want: nodes.StatusDrainingPods},
		{name: "no pod is left", phase: nodes.StatusDrainingPods, want: nodes.StatusDeletingNode},
		{name: "a pod is evicted", phase: nodes.StatusDrainingPods, want: nodes.StatusDrainingPods,
			message: "waits until these pods end: apps/p", given: func(w *world) { w.pod("p", nil) }},
		{name: "a pod that ends is waited for", phase: nodes.StatusDrainingPods, want: nodes.StatusDrainingPods,
			message: "waits until these pods end: apps/p", given: func(w *world) {
				w.pod("p", func(p *corev1.Pod) { deleted(p); p.Finalizers = []string{"x/y"} })
			}},
		{name: "a pod without a controller", phase: nodes.StatusDrainingPods, want: nodes.StatusDrainingPods,
			message: "these pods are not evicted: apps/p (no controller would make it again); " +
				controller.UndrainableAdvice,
			given: func(w *world) { w.pod("p", func(p *corev1.Pod) { p.OwnerReferences = nil }) }},
		{name: "a pod without a controller for too long", phase: nodes.StatusDrainingPods, want: nodes.StatusFailed,
			message: "DrainingPods for more than 3h0m0s: these pods are not evicted: apps/p (no controller would " +
				"make it again); " + controller.UndrainableAdvice,
			given: func(w *world) {
				w.pod("p", func(p *corev1.Pod) { p.OwnerReferences = nil })
				w.status.Status.StartedTimestamp = ago(limit)
			}},
		{name: "a pod with local data", phase: nodes.StatusDrainingPods, want: nodes.StatusDrainingPods,
			message: "these pods are not evicted: apps/p (the data of its emptyDir volumes would be lost); " +
				controller.UndrainableAdvice,
			given: func(w *world) { w.pod("p", emptyDir); w.pod("other", nil) }},
		{name: "losses that are accepted", phase: nodes.StatusDrainingPods, want: nodes.StatusDrainingPods,
			message: "waits until these pods end: apps/p, apps/unmanaged", given: func(w *world) {
				w.status.Spec.CycleSettings.Force, w.status.Spec.CycleSettings.DeleteEmptyDirData = true, true
				w.pod("p", emptyDir)
				w.pod("unmanaged", func(p *corev1.Pod) { emptyDir(p); p.OwnerReferences = nil })
			}},
		{name: "pods that have ended", phase: nodes.StatusDrainingPods, want: nodes.StatusDrainingPods,
			message: "waits until these pods end: apps/failed, apps/succeeded", given: func(w *world) {
				w.pod("succeeded", func(p *corev1.Pod) {
					p.Status.Phase, p.OwnerReferences = corev1.PodSucceeded, nil
				})
				w.pod("failed", func(p *corev1.Pod) { emptyDir(p); p.Status.Phase = corev1.PodFailed })
			}},
		{name: "a pod without room elsewhere", phase: nodes.StatusDrainingPods, want: nodes.StatusDrainingPods,
			message: "these pods are not evicted: apps/p (no other node has room); " + controller.RoomAdvice,
			given:   func(w *world) { w.status.Spec.Restore = true; w.pod("p", nil) }},
		{name: "a pod without room elsewhere for too long", phase: nodes.StatusDrainingPods, want: nodes.StatusFailed,
			message: "DrainingPods for more than 3h0m0s: why", given: func(w *world) {
				w.status.Spec.Restore = true
				w.pod("p", nil)
				w.status.Status.Message, w.status.Status.StartedTimestamp = "why", ago(3*time.Hour)
			}},
		{name: "it has drained for too long", phase: nodes.StatusDrainingPods, want: nodes.StatusFailed,
			message: "DrainingPods for more than 3h0m0s: these pods cannot be evicted: apps/p", given: func(w *world) {
				w.pod("p", nil)
				w.status.Status.StartedTimestamp = ago(limit)
				w.status.Status.Message = "these pods cannot be evicted: apps/p"
			}},

		{name: "the Node is deleted", phase: nodes.StatusDeletingNode, want: nodes.StatusTerminatingNode},
		{name: "it goes on without its request", phase: nodes.StatusDeletingNode, want: nodes.StatusTerminatingNode,
			given: func(w *world) { w.request = nil; deleted(w.status) }},
		{name: "a finalizer keeps the Node", phase: nodes.StatusDeletingNode, want: nodes.StatusDeletingNode,
			message: "waits until the Node is gone", given: func(w *world) { w.node.Finalizers = []string{"x/y"} }},
		{name: "a finalizer keeps the Node too long", phase: nodes.StatusDeletingNode, want: nodes.StatusFailed,
			message: "DeletingNode for more than 20m0s: waits until the Node is gone", given: func(w *world) {
				w.node.Finalizers = []string{"x/y"}
				w.status.Status.PhaseStarted = ago(20 * time.Minute)
			}},
		{name: "cycling is not limited any more", phase: nodes.StatusDeletingNode, want: nodes.StatusDeletingNode,
			message: "waits until the Node is gone", given: func(w *world) {
				w.node.Finalizers = []string{"x/y"}
				w.status.Status.StartedTimestamp = ago(2 * limit)
			}},

		{name: "the instance is terminated", phase: nodes.StatusTerminatingNode, want: nodes.StatusTerminatingNode,
			message: "waits until the instance ends", given: func(w *world) { w.node = nil }},
		{name: "it goes on when it is deleted", phase: nodes.StatusTerminatingNode, want: nodes.StatusTerminatingNode,
			message: "waits until the instance ends", given: func(w *world) { deleted(w.status); w.request = nil }},
		{name: "the instance does not end", phase: nodes.StatusTerminatingNode, want: nodes.StatusFailed,
			message: "TerminatingNode for more than 20m0s: waits until the instance ends",
			given:   func(w *world) { w.status.Status.PhaseStarted = ago(20 * time.Minute) }},
		{name: "the provider does not answer", phase: nodes.StatusTerminatingNode, want: nodes.StatusTerminatingNode,
			message: "no answer", given: func(w *world) { w.provider.err = errors.New("no answer") }},
		{name: "the provider does not answer for too long", phase: nodes.StatusTerminatingNode,
			want:    nodes.StatusFailed,
			message: "TerminatingNode for more than 20m0s: no answer", given: func(w *world) {
				w.provider.err = errors.New("no answer")
				w.status.Status.PhaseStarted = ago(20 * time.Minute)
			}},
		{name: "instance and Node are gone", phase: nodes.StatusTerminatingNode, want: nodes.StatusSuccessful,
			given: func(w *world) { w.provider.state, w.node = "", nil }},
		{name: "the Node came back", phase: nodes.StatusTerminatingNode, want: nodes.StatusTerminatingNode,
			message: "waits until the Node is gone", given: func(w *world) { w.provider.state = "" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(tt.phase)
			if tt.given != nil {
				tt.given(w)
			}
			before := w.status.Status
			if _, err := w.reconcile(t); err != nil && !errors.Is(err, w.provider.err) {
				t.Fatal(err)
			}
			s := w.status.Status
			if s.Phase != tt.want || s.Message != tt.message {
				t.Fatalf("%s (%s), want %s (%s)", s.Phase, s.Message, tt.want, tt.message)
			}
			if s.StartedTimestamp == nil ||
				before.StartedTimestamp != nil && !s.StartedTimestamp.Equal(before.StartedTimestamp) {
				t.Errorf("work began at %v, want %v", s.StartedTimestamp, before.StartedTimestamp)
			}
			if changed := s.Phase != tt.phase; s.PhaseStarted.Time.Equal(now) != changed {
				t.Errorf("the phase began at %s", s.PhaseStarted)
			}
			if ended := controller.StatusEnded(s.Phase); (s.FinishedAt != nil) != ended {
				t.Errorf("finished at %v", s.FinishedAt)
			}
		})
	}
}

// A node is cordoned as soon as its status begins, and stays as it was if the status must not touch it.
func TestCordons(t *testing.T) {
	w := newWorld(nodes.StatusPending)
	if _, err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if !w.node.Spec.Unschedulable || w.node.Annotations[controller.AnnotationCordoned] != "request-uid" {
		t.Errorf("%+v", w.node)
	}
	if found := w.status.Status.CurrentNode; found == nil || found.Name != "n" || found.UID != "node-uid" {
		t.Errorf("%+v", found)
	}
	w = newWorld(nodes.StatusPending)
	w.request = nil
	if _, err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if w.node.Spec.Unschedulable {
		t.Error("the Node of a status that nobody wants was cordoned")
	}
}

func TestLabelsAreRemoved(t *testing.T) {
	w := newWorld(nodes.StatusRemovingLabelsFromPods)
	w.status.Spec.CycleSettings.LabelsToRemove = []string{"serve", "none"}
	w.pod("p", func(p *corev1.Pod) { p.Labels["serve"] = "yes" })
	w.pod("elsewhere", func(p *corev1.Pod) { p.Labels["serve"] = "yes"; p.Spec.NodeName = "another" })
	if _, err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(w.pods[0].Labels); got != "map[app:x]" {
		t.Errorf("labels %s", got)
	}
	if got := fmt.Sprint(w.pods[1].Labels); got != "map[app:x serve:yes]" {
		t.Errorf("labels of another node's pod: %s", got)
	}
}

// Nothing is evicted from a node that has a pod which must not be lost.
func TestAllOrNothingIsEvicted(t *testing.T) {
	for _, given := range []func(*corev1.Pod){emptyDir, func(p *corev1.Pod) { p.OwnerReferences = nil }} {
		w := newWorld(nodes.StatusDrainingPods)
		w.pod("a", nil)
		w.pod("b", given)
		if _, err := w.reconcile(t); err != nil {
			t.Fatal(err)
		}
		if len(w.pods) != 2 {
			t.Errorf("%d pods are left", len(w.pods))
		}
	}
}

// Where nothing comes in the node's place, a pod without room elsewhere stays.
func TestNothingIsEvictedWithoutRoom(t *testing.T) {
	for restore, left := range map[bool]int{true: 1, false: 0} {
		w := newWorld(nodes.StatusDrainingPods)
		w.status.Spec.Restore = restore
		w.pod("p", nil)
		if _, err := w.reconcile(t); err != nil {
			t.Fatal(err)
		}
		if len(w.pods) != left {
			t.Errorf("restore %t: %d pods are left, want %d", restore, len(w.pods), left)
		}
	}
}

// Only what runs is evicted and terminated.
func TestWhatIsRemoved(t *testing.T) {
	w := newWorld(nodes.StatusDrainingPods)
	w.pod("p", nil)
	w.pod("elsewhere", func(p *corev1.Pod) { p.Spec.NodeName = "another" })
	if _, err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if len(w.pods) != 1 || w.pods[0].Name != "elsewhere" {
		t.Errorf("%d pods are left", len(w.pods))
	}
	for state, want := range map[provider.State]bool{
		"": false, provider.Terminating: false, provider.Running: true, provider.Detaching: true,
	} {
		w := newWorld(nodes.StatusTerminatingNode)
		w.provider.state = state
		if _, err := w.reconcile(t); err != nil {
			t.Fatal(err)
		}
		if w.provider.terminated != want {
			t.Errorf("an instance that is %q: terminated %t", state, w.provider.terminated)
		}
		if gone := w.node == nil; gone != (state == "") {
			t.Errorf("an instance that is %q: its Node was deleted: %t", state, gone)
		}
	}
}

// An ended status stays until its request has taken note of it.
func TestRelease(t *testing.T) {
	for _, tt := range []struct {
		name  string
		given func(*world)
		stays bool
	}{
		{name: "the request waits for it", stays: true},
		{name: "the request has taken note",
			given: func(w *world) { w.request.Status.NodesToTerminate[0].State = nodes.NodeCycled }},
		{name: "the request has ended", given: func(w *world) { w.request.Status.Phase = nodes.RequestFailed }},
		{name: "the request is gone", given: func(w *world) { w.request = nil }},
		{name: "another request has the name", given: func(w *world) { w.request.UID = "another" }},
	} {
		for _, phase := range []nodes.StatusPhase{nodes.StatusSuccessful, nodes.StatusFailed} {
			w := newWorld(phase)
			deleted(w.status)
			if tt.given != nil {
				tt.given(w)
			}
			if _, err := w.reconcile(t); err != nil {
				t.Fatal(err)
			}
			if stays := w.status != nil; stays != tt.stays {
				t.Errorf("%s, %s: it stays: %t", phase, tt.name, stays)
			}
		}
	}
}

func TestNoOtherWay(t *testing.T) {
	for from, ways := range Transitions {
		for to := range Transitions {
			if slices.Contains(ways, to) {
				continue
			}
			r := &Reconciler{&controller.Env{Clock: clocktesting.NewFakePassiveClock(now)}}
			err := r.to(t.Context(), newWorld(from).status, to, "")
			if want := fmt.Sprintf("no way from phase %q to %q", from, to); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}
