package request

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/provider"
)

func marks(w *world) string {
	var list []string
	for _, name := range sorted(w.nodes) {
		if mark, ok := w.nodes[name].Annotations[controller.AnnotationSurplus]; ok {
			list = append(list, name+" "+mark)
		}
	}
	return strings.Join(list, ", ")
}

// A request that fails marks the nodes that were started for it, and only if it is sure which ones these are.
func TestSurplusIsMarked(t *testing.T) {
	const larger = "node group g has now 4 instances, 2 more than when the request began: "
	const capacity = "set its desired capacity to 2 again when these are not needed"
	for _, tt := range []struct {
		name  string
		given func(*world)
		want  string
		words string // after the reason
	}{
		{name: "both were started for it", want: "c 2/g, d 2/g", words: larger + "a request with restore " +
			"(trommel cycle g --restore) removes up to 2 of them that were started for this one, or " + capacity},
		{name: "somebody else has made the group larger, too", words: larger + capacity,
			given: func(w *world) { w.node("e", provider.InService) }},
		{name: "nothing was seen to be detached", words: larger + capacity,
			given: func(w *world) { w.request.Status.NodesToTerminate[1].Detached = false }},
		{name: "one has no Node", want: "c 2/g", words: larger + "a request with restore (trommel cycle g --restore) " +
			"removes up to 1 of them that were started for this one, or " + capacity,
			given: func(w *world) { delete(w.nodes, "d") }},
		{name: "the group was made smaller", given: func(w *world) { w.provider.group.DesiredCapacity = 2 }},
		{name: "a request with restore", words: larger + capacity,
			given: func(w *world) { w.request.Spec.Restore = true }},
	} {
		w := newWorld(nodes.RequestHealing)
		w.states("Attached", "Attached")
		for i := range w.request.Status.NodesToTerminate {
			w.request.Status.NodesToTerminate[i].Detached = true
		}
		w.node("c", provider.InService)
		w.node("d", provider.InService)
		w.provider.group.DesiredCapacity = 4
		if tt.given != nil {
			tt.given(w)
		}
		if err := w.reconcile(t); err != nil {
			t.Fatal(err)
		}
		want := strings.TrimSuffix("reason; "+tt.words, "; ")
		if s := w.request.Status; s.Phase != nodes.RequestFailed || s.Message != want {
			t.Errorf("%s: %s (%s), want %s", tt.name, s.Phase, s.Message, want)
		}
		if got := marks(w); got != tt.want {
			t.Errorf("%s: marked are %q, want %q", tt.name, got, tt.want)
		}
	}
}

// restoring is a request with restore for a group of four, which had two: c and d were started for a request that
// failed. The old nodes have room for little more.
func restoring(phase nodes.RequestPhase) *world {
	w := newWorld(phase)
	w.request.Spec.Restore = true
	w.provider.group.DesiredCapacity = 4
	for _, name := range []string{"c", "d"} {
		n := w.node(name, provider.InService)
		n.Annotations = map[string]string{controller.AnnotationSurplus: "2/g"}
	}
	for _, n := range w.nodes {
		n.Status.Allocatable = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourcePods: resource.MustParse("10"),
		}
	}
	return w
}

func (w *world) pod(name, node, cpu string) *corev1.Pod {
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "apps", Name: name,
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: &yes}},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	w.pods = append(w.pods, p)
	return p
}

// What a request with restore is about, and what not.
func TestSurplus(t *testing.T) {
	const pending, initialised = nodes.RequestPending, nodes.RequestInitialised
	const both = "c Available, d Available"
	walkWith(t, restoring, []step{
		{name: "both", phase: pending, want: initialised, states: both},
		{name: "one was removed by hand", phase: pending, want: initialised, states: "c Available",
			given: func(w *world) { w.provider.group.DesiredCapacity = 3 }},
		{name: "the one with fewer pods", phase: pending, want: initialised, states: "d Available",
			given: func(w *world) { w.provider.group.DesiredCapacity = 3; w.pod("p", "c", "1m") }},
		{name: "the group is no larger than before", phase: pending, want: initialised, message: nothingToRestore,
			given: func(w *world) { w.provider.group.DesiredCapacity = 2 }},
		{name: "the group is smaller than before", phase: pending, want: initialised, message: nothingToRestore,
			given: func(w *world) { w.provider.group.DesiredCapacity = 1 }},
		{name: "none is marked", phase: pending, want: initialised, message: nothingToRestore, given: func(w *world) {
			w.nodes["c"].Annotations, w.nodes["d"].Annotations = nil, nil
		}},
		{name: "marks that say nothing", phase: pending, want: initialised, message: nothingToRestore,
			given: func(w *world) {
				w.nodes["c"].Annotations[controller.AnnotationSurplus] = "x/g"
				w.nodes["d"].Annotations[controller.AnnotationSurplus] = "-1/g"
			}},
		{name: "the mark of another group", phase: pending, want: initialised, states: "d Available",
			given: func(w *world) { w.nodes["c"].Annotations[controller.AnnotationSurplus] = "0/h" }},
		{name: "marks of two requests", phase: pending, want: initialised, states: both, given: func(w *world) {
			w.nodes["d"].Annotations[controller.AnnotationSurplus] = "3/g"
		}},
		{name: "of the later request only", phase: pending, want: initialised, states: "d Available",
			given: func(w *world) {
				w.nodes["d"].Annotations[controller.AnnotationSurplus] = "3/g"
				w.nodes["c"].Annotations = nil
			}},
		{name: "a named node", phase: pending, want: initialised, states: "d Available",
			given: func(w *world) { w.request.Spec.NodeNames = []string{"d"} }},
		{name: "an old node by its name", phase: pending, want: initialised, message: nothingToRestore,
			given: func(w *world) { w.request.Spec.NodeNames = []string{"a"} }},
		{name: "pods have room elsewhere", phase: pending, want: initialised, states: both, given: func(w *world) {
			w.pod("p", "c", "900m")
			w.pod("r", "d", "900m")
		}},
		{name: "pods of both do not have room together", phase: pending, want: nodes.RequestHealing,
			message: "these pods may have no other place: apps/s (no other node has room); " + controller.RoomAdvice,
			given: func(w *world) {
				w.pod("p", "c", "900m")
				w.pod("r", "d", "900m")
				w.pod("s", "d", "200m")
			}},
		{name: "a pod that nothing would make again", phase: pending, want: nodes.RequestHealing,
			message: "these pods would be lost: apps/p (no controller would make it again); " +
				controller.UndrainableAdvice,
			given: func(w *world) { w.pod("p", "c", "1m").OwnerReferences = nil }},
	})
}

// Immediately before a node is taken out of its group, all must still be so.
func TestRemoving(t *testing.T) {
	const initialised, scalingUp, healing = nodes.RequestInitialised, nodes.RequestScalingUp, nodes.RequestHealing
	detaching := func(w *world) {
		w.request.Status.NodesToTerminate = nil
		for _, name := range []string{"c", "d"} {
			w.request.Status.NodesToTerminate = append(w.request.Status.NodesToTerminate, nodes.CycleNodeRequestNode{
				NodeRef: controller.RefOf(w.nodes[name], "g"), State: nodes.NodeAvailable,
			})
			w.nodes[name].Annotations[controller.AnnotationClaim] = "q-uid"
		}
		w.request.Status.Groups[0].DesiredCapacity = 4
		w.request.Status.NodesToTerminate[0].State = nodes.NodeDetaching
	}
	with := func(change func(*world)) func(*world) {
		return func(w *world) { detaching(w); change(w) }
	}
	const still = "c Detaching, d Available"
	walkWith(t, restoring, []step{
		{name: "one at a time", phase: initialised, want: initialised, states: "c Detaching, d Available",
			given: with(func(w *world) { w.request.Status.NodesToTerminate[0].State = nodes.NodeAvailable })},
		{name: "it is taken out", phase: initialised, want: scalingUp, calls: "Remove test:///c",
			states: "c Detached, d Available", given: detaching},
		{name: "it was taken out already", phase: initialised, want: scalingUp, states: "c Detached, d Available",
			given: with(func(w *world) {
				if err := w.provider.Remove(t.Context(), "g", id("c")); err != nil {
					panic(err)
				}
				w.provider.calls = nil
			})},
		{name: "somebody has made the group smaller", phase: initialised, want: healing, states: still,
			message: "node group g has 2 instances now: node c is needed",
			given:   with(func(w *world) { w.provider.group.DesiredCapacity = 2 })},
		{name: "its removal is seen in one place only", phase: initialised, want: initialised, states: still,
			message: "node group g has 2 instances now: waits until node c is out of it",
			given: with(func(w *world) {
				w.provider.group.DesiredCapacity = 2
				w.nodes["c"].Annotations[controller.AnnotationDetached] = "g"
			})},
		{name: "the mark is gone", phase: initialised, want: healing, states: still,
			message: "node c is not marked any more as started for a request that failed",
			given:   with(func(w *world) { delete(w.nodes["c"].Annotations, controller.AnnotationSurplus) })},
		{name: "its Node is gone", phase: initialised, want: healing, states: still,
			message: "the Node of c is not there any more, and with it the mark that says what may be removed",
			given:   with(func(w *world) { delete(w.nodes, "c") })},
		{name: "its Node is another one", phase: initialised, want: healing, states: still,
			message: "the Node of c is not there any more, and with it the mark that says what may be removed",
			given:   with(func(w *world) { w.nodes["c"].UID = "another" })},
		{name: "a pod came that has no other place", phase: initialised, want: healing, states: still,
			message: "these pods may have no other place: apps/p (no other node has room); " + controller.RoomAdvice,
			given: with(func(w *world) {
				w.pod("p", "c", "900m")
				for _, other := range []string{"a", "b", "d"} {
					w.pod("on-"+other, other, "200m")
				}
			})},
		{name: "the group has its minimal size", phase: initialised, want: healing, states: still,
			calls: "Remove test:///c", message: "conflict",
			given: with(func(w *world) { w.provider.failed = provider.ErrConflict })},
		{name: "nothing is waited for", phase: scalingUp, want: nodes.RequestCordoningNode,
			given: with(func(w *world) {
				w.request.Status.NodesToTerminate[0].State = nodes.NodeDetached
				if err := w.provider.Remove(t.Context(), "g", id("c")); err != nil {
					panic(err)
				}
				w.provider.calls = nil
			})},
		{name: "what was taken out is attached", phase: healing, want: healing, states: "c Attaching, d Available",
			calls: "Attach test:///c", message: "node c is being attached to g",
			given: with(func(w *world) {
				if err := w.provider.Remove(t.Context(), "g", id("c")); err != nil {
					panic(err)
				}
				w.provider.calls = nil
				w.request.Status.NodesToTerminate[0].State = nodes.NodeAttaching
			})},
	})
}

// In the end, marks that are void are removed, and others stay.
func TestVoidMarks(t *testing.T) {
	for capacity, want := range map[int]string{2: "", 3: "c 2/g, d 2/g"} {
		w := restoring(nodes.RequestInitialised)
		w.request.Status.NodesToTerminate = nil
		w.request.Status.Groups[0].DesiredCapacity = int64(capacity)
		w.provider.group.DesiredCapacity = capacity
		if err := w.reconcile(t); err != nil {
			t.Fatal(err)
		}
		if s := w.request.Status; s.Phase != nodes.RequestSuccessful || s.Message != nothingToRestore {
			t.Errorf("%s (%s)", s.Phase, s.Message)
		}
		if got := marks(w); got != want {
			t.Errorf("capacity %d: marked are %q, want %q", capacity, got, want)
		}
	}
}

// The status of a node that is removed says so, so that nothing is evicted without room.
func TestStatusOfRemovedNode(t *testing.T) {
	for _, restore := range []bool{false, true} {
		w := newWorld(nodes.RequestWaitingTermination)
		w.request.Spec.Restore = restore
		w.states("Cycling", "Available")
		if err := w.reconcile(t); err != nil {
			t.Fatal(err)
		}
		if len(w.children) != 1 || w.children[0].Spec.Restore != restore {
			t.Errorf("restore %t: %+v", restore, w.children)
		}
	}
}

// TestRemovesOneAtATime lets a request with restore go on until it has ended, step by step, with statuses that succeed.
func TestRemovesOneAtATime(t *testing.T) {
	w := restoring(nodes.RequestPending)
	w.request.Status.EquilibriumWaitStarted = ago(time.Second)
	for range 40 {
		if controller.Ended(w.request.Status.Phase) {
			break
		}
		for _, s := range w.children { // as the other controller would
			name := s.Spec.Node.Name
			s.Status.Phase = nodes.StatusSuccessful
			delete(w.nodes, name)
			w.provider.loose = nil
		}
		if err := w.reconcile(t); err != nil {
			t.Fatal(err)
		}
		if n := len(inState(w.request, nodes.NodeDetaching, nodes.NodeDetached, nodes.NodeCycling)); n > 1 {
			t.Fatalf("%d at a time: %s", n, w.shown())
		}
	}
	if s := w.request.Status; s.Phase != nodes.RequestSuccessful || s.Message != "2 nodes removed" ||
		w.provider.group.DesiredCapacity != 2 || fmt.Sprint(sorted(w.nodes)) != "[a b]" {
		t.Errorf("%s (%s): %v, %v", s.Phase, s.Message, w.provider.group, sorted(w.nodes))
	}
	if got, want := strings.Join(w.provider.calls, ", "), "Remove test:///c, Remove test:///d"; got != want {
		t.Errorf("the calls are %s, want %s", got, want)
	}
}
