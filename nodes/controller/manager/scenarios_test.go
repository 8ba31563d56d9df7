package manager

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/controller/request"
	"github.com/trommel-dev/trommel/nodes/controller/status"
)

// writes reports whether a request writes this phase of a request ("cyclenoderequests") or status.
func writes(resource, phase string) func(int, *http.Request, []byte) bool {
	return func(_ int, r *http.Request, body []byte) bool {
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/"+resource+"/") {
			return false
		}
		// Objects are sent as JSON: they are not built in.
		var o struct{ Status struct{ Phase string } }
		return json.Unmarshal(body, &o) == nil && o.Status.Phase == phase
	}
}

// diesOrEnds waits until the process dies or the request ends.
func (f *fixture) diesOrEnds(p *process, q *nodes.CycleNodeRequest) {
	f.t.Helper()
	clustertest.Within(f.t, f.limit(), func(ctx context.Context) error {
		select {
		case <-p.ended:
			return nil
		default:
		}
		err := f.Get(ctx, client.ObjectKeyFromObject(q), q)
		if apierrors.IsNotFound(err) || err == nil && controller.Ended(q.Status.Phase) {
			return nil
		}
		return fmt.Errorf("neither has the process died, nor has the request ended: %+v, %v", q.Status, err)
	})
}

// stopped runs controllers until they have written a phase, and stops them then.
func (f *fixture) stopped(
	l controller.Limits, resource, phase string, q func() *nodes.CycleNodeRequest,
) *nodes.CycleNodeRequest {
	f.t.Helper()
	p := f.start(l, true, writes(resource, phase))
	made := q()
	clustertest.Eventually(f.t, func(context.Context) error {
		select {
		case <-p.ended:
			return nil
		default:
			return fmt.Errorf("no %s has been in phase %s: %+v", resource, phase, f.latest(made).Status)
		}
	})
	p.stop()
	return f.latest(made)
}

func (f *fixture) latest(q *nodes.CycleNodeRequest) *nodes.CycleNodeRequest {
	f.t.Helper()
	if err := f.Get(f.t.Context(), client.ObjectKeyFromObject(q), q); err != nil {
		f.t.Fatal(err)
	}
	return q
}

// podOn is a pod on a node of the group. It has a controller, so that it may be evicted.
func (f *fixture) podOn(name, node string) *corev1.Pod {
	f.t.Helper()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "controller"}}
	err := f.Create(f.t.Context(), owner)
	if apierrors.IsAlreadyExists(err) {
		err = f.Get(f.t.Context(), client.ObjectKeyFromObject(owner), owner)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	zero := int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.namespace, Name: name, Labels: map[string]string{"app": "x"},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap")),
			},
		},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &zero,
			Containers: []corev1.Container{{Name: "c", Image: "x"}},
		},
	}
}

// pod creates a pod on a node of the group and waits until it runs.
func (f *fixture) pod(name, node string, change func(*corev1.Pod)) *corev1.Pod {
	f.t.Helper()
	p := f.podOn(name, node)
	if change != nil {
		change(p)
	}
	// The service account comes later.
	clustertest.Eventually(f.t, func(ctx context.Context) error { return f.Create(ctx, p) })
	clustertest.Eventually(f.t, func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod %s is %s", p.Name, p.Status.Phase)
		}
		return nil
	})
	return p
}

// nodeNames are those of the group, in order.
func (f *fixture) nodeNames() []string {
	f.t.Helper()
	var list corev1.NodeList
	if err := f.List(f.t.Context(), &list, client.MatchingLabels{"group": f.namespace}); err != nil {
		f.t.Fatal(err)
	}
	var names []string
	for _, n := range list.Items {
		names = append(names, n.Name)
	}
	return names
}

// change changes the group's spec.
func (f *fixture) change(change func(*nodes.SimulatedNodeGroupSpec)) {
	f.t.Helper()
	clustertest.Eventually(f.t, func(ctx context.Context) error {
		g := &nodes.SimulatedNodeGroup{}
		if err := f.Get(ctx, client.ObjectKey{Name: f.namespace}, g); err != nil {
			return err
		}
		change(&g.Spec)
		return f.Update(ctx, g)
	})
}

func fault(faults ...nodes.SimulatedFault) func(*nodes.SimulatedNodeGroup) {
	for i := range faults {
		faults[i].Name = fmt.Sprintf("f%d", i)
	}
	return func(g *nodes.SimulatedNodeGroup) { g.Spec.Faults = faults }
}

func (f *fixture) gone(o client.Object) {
	f.t.Helper()
	clustertest.Eventually(f.t, func(ctx context.Context) error {
		err := f.Get(ctx, client.ObjectKeyFromObject(o), o)
		if err == nil {
			return fmt.Errorf("%s is still there: %+v", o.GetName(), o)
		}
		return client.IgnoreNotFound(err)
	})
}

func (f *fixture) delete(o client.Object) {
	f.t.Helper()
	if err := f.Delete(f.t.Context(), o); err != nil {
		f.t.Fatal(err)
	}
}

// short makes limits that time out soon.
func short(change func(*controller.Limits)) controller.Limits {
	l := limits()
	change(&l)
	return l
}

// drainable is a pod on the first node, so that its draining takes a moment that can be interrupted.
func (f *fixture) drainable() { f.pod("drainable", f.nodeNames()[0], nil) }

// held keeps a pod from ending; see finish.
func held(p *corev1.Pod) { p.Finalizers = []string{"nodes.trommel.dev/test"} }

// neverEvict makes a PodDisruptionBudget that allows none of the app's pods to be evicted.
func (f *fixture) neverEvict(app string) {
	f.t.Helper()
	one := intstr.FromInt32(1)
	if err := f.Create(f.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "never"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}); err != nil {
		f.t.Fatal(err)
	}
}

func restore(s *nodes.CycleNodeRequestSpec) { s.Restore = true }

// surplusAbove says on a node that it was started for a request which failed, in a group that was smaller before.
func (f *fixture) surplusAbove(node string, capacity int) {
	f.t.Helper()
	f.changeNode(node, func(n *corev1.Node) {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, controller.AnnotationSurplus,
			fmt.Sprintf("%d/%s", capacity, f.namespace))
	})
}

func wait(s *nodes.CycleNodeRequestSpec) { s.CycleSettings.Method = nodes.MethodWait }

func some(names ...string) func(*nodes.CycleNodeRequestSpec) {
	return func(s *nodes.CycleNodeRequestSpec) { s.NodeNames = names }
}

const (
	ofRequest = "cyclenoderequests"
	ofStatus  = "cyclenodestatuses"
)

// scenarios are what happens to cycles. Together they go all ways of the tables of phases.
var scenarios = []struct {
	name string
	run  func(*testing.T)
}{
	{"two requests at once", func(t *testing.T) {
		f := newFixture(t, 2, nil)
		f.start(limits(), false, nil)
		a := f.request("a", concurrently(1))
		b := f.request("b", concurrently(1))
		for _, q := range []*nodes.CycleNodeRequest{a, b} {
			f.await(q, "ended", func(q *nodes.CycleNodeRequest) bool { return controller.Ended(q.Status.Phase) })
			for _, n := range q.Status.NodesToTerminate {
				f.selected[n.ProviderID] = true // in what the other one sees
			}
		}
		f.ends(a, nodes.RequestSuccessful)
		f.ends(b, nodes.RequestSuccessful)
		if b.Status.Groups == nil ||
			b.Status.NodesToTerminate[0].ProviderID == a.Status.NodesToTerminate[0].ProviderID {
			t.Errorf("%+v", b.Status)
		}
		first, second := a, b
		if b.Status.FinishedAt.Before(a.Status.FinishedAt) {
			first, second = b, a
		}
		if !first.Status.FinishedAt.Before(second.Status.EquilibriumWaitStarted) {
			t.Errorf("the second began at %s, the first ended at %s", second.Status.EquilibriumWaitStarted,
				first.Status.FinishedAt)
		}
	}},
	{"named nodes", func(t *testing.T) {
		f := newFixture(t, 3, nil)
		f.start(limits(), false, nil)
		names := f.nodeNames()
		q := f.request("missing", some(names[1], "nobody"))
		f.ends(q, nodes.RequestFailed)
		if q.Status.Reason != "these named nodes are not in the groups: nobody" {
			t.Error(q.Status.Reason)
		}
		q = f.request("one", func(s *nodes.CycleNodeRequestSpec) {
			s.NodeNames, s.ValidationOptions.SkipMissingNamedNodes = []string{names[1], "nobody"}, true
		})
		f.ends(q, nodes.RequestSuccessful)
		if left := f.nodeNames(); q.Status.Progress != "1/1" || len(left) != 3 ||
			left[0] != names[0] || left[1] != names[2] {
			t.Errorf("%v, %s", left, q.Status.Progress)
		}
		q = f.request("none", func(s *nodes.CycleNodeRequestSpec) {
			s.NodeNames, s.ValidationOptions.SkipMissingNamedNodes = []string{"nobody"}, true
		})
		f.ends(q, nodes.RequestSuccessful)
	}},
	{"invalid", func(t *testing.T) {
		f := newFixture(t, 1, nil)
		f.start(limits(), false, nil)
		q := f.request("invalid", func(s *nodes.CycleNodeRequestSpec) {
			s.HealthChecks = []nodes.HealthCheck{{Endpoint: "http://{{ .NodeIP }}", RegexMatch: "("}}
		})
		f.ends(q, nodes.RequestFailed)
		q = f.request("unknown", func(s *nodes.CycleNodeRequestSpec) { s.NodeGroupName = "nobody" })
		f.ends(q, nodes.RequestFailed)
		if !strings.Contains(q.Status.Reason, "not found") {
			t.Error(q.Status.Reason)
		}
		// The request does not wait for ever for a node without instance.
		f.delete(q)
		f.gone(q)
	}},
	{"method Wait", func(t *testing.T) {
		f := newFixture(t, 1, nil)
		node := f.nodeNames()[0]
		f.pod("waited", node, nil)
		f.pod("ignored", node, func(p *corev1.Pod) { p.Labels["ignore"] = "this" })
		f.pod("daemon", node, func(p *corev1.Pod) {
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "00000000-0000-0000-0000-000000000000",
				Controller: &yes,
			}}
			held(p)
		})
		f.start(limits(), false, nil)
		q := f.request("wait", func(s *nodes.CycleNodeRequestSpec) {
			wait(s)
			s.CycleSettings.IgnorePodsLabels = map[string][]string{"ignore": {"that", "this"}}
		})
		f.child(q, "waits until these pods end: "+f.namespace+"/waited")
		waited := f.podNow("waited")
		if waited == nil || waited.DeletionTimestamp != nil {
			t.Error("it was evicted")
		}
		f.delete(waited)
		f.ends(q, nodes.RequestSuccessful)
		// Draining left the DaemonSet's pod alone; the garbage collector may have deleted it since.
		if daemon := f.podNow("daemon"); daemon != nil {
			daemon.Finalizers = nil
			if err := f.Update(t.Context(), daemon); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}

	}},
	{"labels are removed before pods are drained", func(t *testing.T) {
		f := newFixture(t, 1, nil)
		f.pod("served", f.nodeNames()[0], func(p *corev1.Pod) {
			p.Labels["service"] = "x"
			held(p)
		})
		f.start(limits(), false, nil)
		q := f.request("labels", func(s *nodes.CycleNodeRequestSpec) {
			s.CycleSettings.LabelsToRemove = []string{"service"}
		})
		f.child(q, "waits until these pods end: "+f.namespace+"/served")
		p := f.podNow("served")
		if _, ok := p.Labels["service"]; ok || p.Labels["app"] != "x" || p.DeletionTimestamp == nil {
			t.Errorf("%v, %v", p.Labels, p.DeletionTimestamp)
		}
		f.finish("served")
		f.ends(q, nodes.RequestSuccessful)
	}},
	{"a pod that never ends", func(t *testing.T) {
		f := newFixture(t, 2, nil)
		f.pod("stuck", f.nodeNames()[0], held)
		f.start(limits(), false, nil)
		q := f.request("stuck", func(s *nodes.CycleNodeRequestSpec) { s.CycleSettings.CyclingTimeout = "2s" })
		f.ends(q, nodes.RequestFailed)
		if r := q.Status.Reason; !strings.Contains(r, "DrainingPods for more than 2s: ") ||
			!strings.Contains(r, f.namespace+"/stuck") {
			t.Error(q.Status.Reason)
		}
		f.finish("stuck")
		// The next request cycles what is left, and the failed one does not come back.
		next := f.request("next", nil)
		f.ends(next, nodes.RequestSuccessful)
		if f.latest(q).Status.Phase != nodes.RequestFailed {
			t.Errorf("%+v", q.Status)
		}
	}},
	{"pods that would be lost", func(t *testing.T) {
		f := newFixture(t, 1, nil)
		node := f.nodeNames()[0]
		unmanaged := func(p *corev1.Pod) { p.OwnerReferences = nil }
		local := func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{
				Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
			}}
		}
		f.pod("unmanaged", node, unmanaged)
		f.pod("local", node, local)
		f.start(limits(), false, nil)
		q := f.request("refused", nil)
		f.ends(q, nodes.RequestFailed)
		if q.Status.Reason != "these pods would be lost: "+
			f.namespace+"/local (the data of its emptyDir volumes would be lost), "+
			f.namespace+"/unmanaged (no controller would make it again); "+controller.UndrainableAdvice ||
			len(q.Status.NodesToTerminate) > 0 {
			t.Errorf("%+v", q.Status)
		}
		// One that comes while the node is being cycled stops it, too.
		f.delete(f.podNow("unmanaged"))
		f.delete(f.podNow("local"))
		q = f.stopped(limits(), ofRequest, string(nodes.RequestScalingUp), func() *nodes.CycleNodeRequest {
			return f.request("late", func(s *nodes.CycleNodeRequestSpec) { s.CycleSettings.CyclingTimeout = "2s" })
		})
		f.pod("unmanaged", node, unmanaged)
		f.pod("other", node, nil)
		f.ends(q, nodes.RequestFailed)
		if !strings.Contains(q.Status.Reason, "DrainingPods for more than 2s: these pods are not evicted: "+
			f.namespace+"/unmanaged (no controller would make it again)") {
			t.Error(q.Status.Reason)
		}
		for _, name := range []string{"unmanaged", "other"} {
			if p := f.podNow(name); p == nil || p.DeletionTimestamp != nil {
				t.Errorf("pod %s was evicted", name)
			}
		}
		f.pod("local", node, local)
		q = f.request("accepted", func(s *nodes.CycleNodeRequestSpec) {
			s.CycleSettings.Force, s.CycleSettings.DeleteEmptyDirData = true, true
		})
		f.ends(q, nodes.RequestSuccessful)
	}},
	{"a pod that is waited for in vain", func(t *testing.T) {
		f := newFixture(t, 1, nil)
		f.pod("busy", f.nodeNames()[0], nil)
		f.start(short(func(l *controller.Limits) { l.Cycling = time.Second }), false, nil)
		q := f.request("busy", wait)
		f.ends(q, nodes.RequestFailed)
		if !strings.Contains(q.Status.Reason, "WaitingPods for more than 1s") {
			t.Error(q.Status.Reason)
		}
	}},
	{"a PodDisruptionBudget that never allows", func(t *testing.T) {
		f := newFixture(t, 1, nil)
		f.pod("guarded", f.nodeNames()[0], nil)
		f.neverEvict("x")
		f.start(limits(), false, nil)
		q := f.request("guarded", func(s *nodes.CycleNodeRequestSpec) { s.CycleSettings.CyclingTimeout = "15s" })
		const named = "The disruption budget never needs"
		f.await(q, "waiting for the PodDisruptionBudget", func(q *nodes.CycleNodeRequest) bool {
			return q.Status.Phase == nodes.RequestWaitingTermination && strings.Contains(q.Status.Message, named)
		})
		f.ends(q, nodes.RequestFailed)
		if !strings.Contains(q.Status.Reason, "DrainingPods for more than 15s: these pods cannot be evicted: "+
			f.namespace+"/guarded (") || !strings.Contains(q.Status.Reason, named) {
			t.Error(q.Status.Reason)
		}
		// The old node is back, and the new one is there, too.
		const more = "2 instances, 1 more than when the request began"
		if q.Status.ExtraInstances != 1 || !strings.Contains(q.Status.Message, more) {
			t.Errorf("%+v", q.Status)
		}
		f.event(q, "GroupEnlarged", more)
		if p := f.podNow("guarded"); p == nil || p.DeletionTimestamp != nil {
			t.Error("it was deleted")
		}
	}},
	{"a failed request is restored", func(t *testing.T) {
		f := newFixture(t, 2, func(g *nodes.SimulatedNodeGroup) {
			g.Spec.Template.Capacity = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourcePods: resource.MustParse("10"),
			}
		})
		old := f.nodeNames()
		large := func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"group": f.namespace}
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("600m"),
			}
		}
		f.pod("first", old[0], func(p *corev1.Pod) {
			large(p)
			held(p)
			p.Labels["app"] = "guarded"
		})
		second := f.pod("second", old[1], large)
		f.start(limits(), false, nil)
		q := f.request("nothing", restore)
		f.ends(q, nodes.RequestSuccessful)
		if !strings.Contains(q.Status.Message, "nothing to remove") || len(f.nodeNames()) != 2 {
			t.Errorf("%+v, %v", q.Status, f.nodeNames())
		}
		f.neverEvict("guarded")
		q = f.request("fails", func(s *nodes.CycleNodeRequestSpec) {
			s.CycleSettings.CyclingTimeout, s.NodeNames = "2s", old[:1]
		})
		f.ends(q, nodes.RequestFailed)
		f.event(q, "GroupEnlarged", "(trommel cycle "+f.namespace+" --restore) removes up to 1 of them")
		f.size = 3
		added := f.nodeNames()[2]
		third := f.pod("third", added, large)

		// None of the old nodes has room for it.
		q = f.request("no-room", restore)
		f.ends(q, nodes.RequestFailed)
		if want := "these pods may have no other place: " + f.namespace + "/third (no other node has room)"; !strings.
			Contains(q.Status.Reason, want) || len(q.Status.NodesToTerminate) > 0 {
			t.Errorf("%+v", q.Status)
		}
		if g, _, _ := f.now(); g.Spec.DesiredCapacity != 3 || f.podNow("third").UID != third.UID {
			t.Errorf("something was done: %+v", g.Spec)
		}
		f.delete(second)
		f.gone(second)
		f.size = 2
		q = f.request("restores", restore)
		f.ends(q, nodes.RequestSuccessful)
		g, members, list := f.now()
		if got := f.nodeNames(); !slices.Equal(got, old) || g.Spec.DesiredCapacity != 2 || len(members) != 2 ||
			len(list) != 2 || g.Status.Started != 3 {
			t.Errorf("%v, want %v: %+v", got, old, g)
		}
		if f.podNow("first") == nil || f.podNow("third") != nil {
			t.Error("the wrong pod was evicted")
		}
		f.finish("first")
	}},
	{"a deleted request is restored", func(t *testing.T) {
		// Its record goes with it, but the marks stay.
		f := newFixture(t, 1, nil)
		old := f.nodeNames()
		f.pod("slow", old[0], held)
		f.start(limits(), false, nil)
		q := f.request("deleted", nil)
		s := f.child(q, "waits until these pods end")
		f.selected[s.Spec.Node.ProviderID] = true
		f.delete(q)
		f.gone(q)
		f.whole()
		if n := len(f.nodeNames()); n != 2 {
			t.Fatalf("%d nodes", n)
		}
		q = f.request("restores", restore)
		f.ends(q, nodes.RequestSuccessful)
		if got := f.nodeNames(); !slices.Equal(got, old) {
			t.Errorf("%v, want %v", got, old)
		}
		f.finish("slow")
	}},
	{"a request with restore is deleted", func(t *testing.T) {
		f := newFixture(t, 2, nil)
		names := f.nodeNames()
		f.surplusAbove(names[1], 1)
		f.pod("slow", names[1], held)
		f.start(limits(), false, nil)
		q := f.request("restores", restore)
		f.child(q, "waits until these pods end")
		if g, _, _ := f.now(); g.Spec.DesiredCapacity != 1 {
			t.Errorf("%+v", g.Spec)
		}
		f.delete(q)
		f.gone(q)
		f.whole()
		if g, _, list := f.now(); g.Spec.DesiredCapacity != 2 || g.Status.Started != 2 || len(list) != 2 {
			t.Errorf("%+v, %d Nodes", g, len(list))
		}
		f.finish("slow")
	}},
	{"instances end while nodes are cycled", func(t *testing.T) {
		// Two are cycled; one is done, the other is not; the one that is left is ended by someone else.
		f := newFixture(t, 3, nil)
		f.pod("slow", f.nodeNames()[0], held)
		q := f.stopped(limits(), ofRequest, string(nodes.RequestWaitingTermination), func() *nodes.CycleNodeRequest {
			return f.request("ends", concurrently(2))
		})
		last := q.Status.NodesToTerminate[2]
		if last.State != nodes.NodeAvailable {
			t.Fatalf("%+v", last)
		}
		if err := must(newProvider(must(shared.RESTConfig("")))).Terminate(t.Context(), last.ProviderID); err != nil {
			t.Fatal(err)
		}
		f.start(limits(), false, nil)
		f.await(q, "without the missing node", func(q *nodes.CycleNodeRequest) bool {
			return q.Status.NodesToTerminate[2].State == nodes.NodeMissing &&
				q.Status.Phase == nodes.RequestWaitingTermination
		})
		f.finish("slow")
		f.ends(q, nodes.RequestSuccessful)
		if q.Status.Message != "2 nodes cycled, 1 ended by someone else" {
			t.Error(q.Status.Message)
		}
	}},
	{"no capacity", func(t *testing.T) {
		f := newFixture(t, 2, nil)
		f.change(func(s *nodes.SimulatedNodeGroupSpec) {
			s.Faults = []nodes.SimulatedFault{{Name: "none", Type: nodes.FaultNoCapacity}}
		})
		f.start(short(func(l *controller.Limits) { l.ScaleUp = 2 * time.Second }), false, nil)
		q := f.request("nothing", nil)
		f.ends(q, nodes.RequestFailed)
		if !strings.Contains(q.Status.Reason,
			"ScalingUp for more than 2s: waits for new nodes: node group "+f.namespace+" has 0 of 2 nodes") {
			t.Error(q.Status.Reason)
		}
	}},
	{"a group without room for healing", func(t *testing.T) {
		f := newFixture(t, 2, func(g *nodes.SimulatedNodeGroup) { g.Spec.MaxSize = 2 })
		f.change(func(s *nodes.SimulatedNodeGroupSpec) {
			s.Faults = []nodes.SimulatedFault{{Name: "none", Type: nodes.FaultNoCapacity}}
		})
		p := f.start(short(func(l *controller.Limits) { l.ScaleUp, l.Healing = time.Second, time.Second }), false, nil)
		q := f.request("full", concurrently(1))
		f.await(q, "Failed", func(q *nodes.CycleNodeRequest) bool { return q.Status.Phase == nodes.RequestFailed })
		name := q.Status.NodesToTerminate[0].Name
		if !strings.Contains(q.Status.Reason,
			"it could not be undone: Healing for more than 1s: node "+name+": Attach ") {
			t.Error(q.Status.Reason)
		}
		f.selected[q.Status.NodesToTerminate[0].ProviderID] = true
		p.stop()
		// The next one attaches what was left.
		f.change(func(s *nodes.SimulatedNodeGroupSpec) { s.Faults, s.MaxSize = nil, 3 })
		f.start(limits(), false, nil)
		next := f.request("next", nil)
		f.ends(next, nodes.RequestSuccessful)
		if next.Status.Progress != "3/3" {
			t.Error(next.Status.Progress)
		}
	}},
	{"a new node is never Ready", func(t *testing.T) {
		f := newFixture(t, 1, nil)
		f.change(func(s *nodes.SimulatedNodeGroupSpec) {
			s.Faults = []nodes.SimulatedFault{{Name: "never", Type: nodes.FaultNeverReady}}
		})
		f.start(short(func(l *controller.Limits) { l.ScaleUp = 2 * time.Second }), false, nil)
		f.ends(f.request("never", nil), nodes.RequestFailed)
	}},
	{"throttled, failing calls and lost answers", func(t *testing.T) {
		f := newFixture(t, 2, fault(
			nodes.SimulatedFault{Type: nodes.FaultThrottled, Times: 2, RetryAfter: "200ms"},
			nodes.SimulatedFault{Type: nodes.FaultError, Times: 2},
			nodes.SimulatedFault{Type: nodes.FaultAnswerLost, Times: 3},
		))
		f.start(limits(), false, nil)
		f.ends(f.request("faults", nil), nodes.RequestSuccessful)
	}},
	{"a detachment that hangs", func(t *testing.T) {
		f := newFixture(t, 1, fault(nodes.SimulatedFault{
			Type: nodes.FaultError, Calls: []nodes.Call{nodes.CallDetach},
		}))
		f.start(short(func(l *controller.Limits) { l.ScaleUp = time.Second }), false, nil)
		q := f.request("hangs", nil)
		f.ends(q, nodes.RequestFailed)
		if !strings.Contains(q.Status.Reason, "Initialised for more than 1s: Detach ") {
			t.Error(q.Status.Reason)
		}
	}},
	{"a termination that hangs", func(t *testing.T) {
		f := newFixture(t, 2,
			fault(nodes.SimulatedFault{Type: nodes.FaultHangs, Calls: []nodes.Call{nodes.CallTerminate}}))
		p := f.start(short(func(l *controller.Limits) {
			l.Termination, l.Healing = time.Second, time.Second
		}), false, nil)
		q := f.request("hangs", concurrently(1))
		f.ends(q, nodes.RequestFailed)
		if !strings.Contains(q.Status.Reason, "TerminatingNode for more than 1s: waits until the instance ends; "+
			"it could not be undone") {
			t.Error(q.Status.Reason)
		}
		p.stop()
		f.start(limits(), false, nil)
		f.change(func(s *nodes.SimulatedNodeGroupSpec) { s.Faults = nil })
		f.ends(f.request("next", nil), nodes.RequestSuccessful)
	}},
	{"a Node that cannot be deleted", func(t *testing.T) {
		f := newFixture(t, 1, nil)
		name := f.nodeNames()[0]
		f.changeNode(name, func(n *corev1.Node) { n.Finalizers = append(n.Finalizers, "nodes.trommel.dev/test") })
		f.start(short(func(l *controller.Limits) { l.Termination, l.Healing = time.Second, time.Second }), false, nil)
		q := f.request("kept", nil)
		f.await(q, "Failed", func(q *nodes.CycleNodeRequest) bool { return q.Status.Phase == nodes.RequestFailed })
		if !strings.Contains(q.Status.Reason, "DeletingNode for more than 1s: waits until the Node is gone") {
			t.Error(q.Status.Reason)
		}
		f.changeNode(name, func(n *corev1.Node) { n.Finalizers = nil })
		f.truthful(q)
	}},
	{"an orphaned Node, a detached instance, a cordoned node", func(t *testing.T) {
		f := newFixture(t, 2, nil)
		names := f.nodeNames()
		var n corev1.Node
		if err := f.Get(t.Context(), client.ObjectKey{Name: names[0]}, &n); err != nil {
			t.Fatal(err)
		}
		cloud := must(newProvider(must(shared.RESTConfig(""))))
		if err := cloud.Detach(t.Context(), f.namespace, n.Spec.ProviderID); err != nil {
			t.Fatal(err)
		}
		f.selected[n.Spec.ProviderID] = true // it was us
		orphan := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: f.namespace + "-orphan", Labels: map[string]string{"group": f.namespace},
			},
			Spec: corev1.NodeSpec{ProviderID: "simulated:///" + f.namespace + "/orphan"},
		}
		if err := f.Create(t.Context(), orphan); err != nil {
			t.Fatal(err)
		}
		// As a request left it that could not even release it.
		f.changeNode(names[0], func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Annotations[controller.AnnotationCordoned], n.Annotations[controller.AnnotationClaim] = "gone", "gone"
			n.Annotations[controller.AnnotationDetached] = f.namespace
		})
		f.start(limits(), false, nil)
		q := f.request("tidy", some(names[1]))
		f.ends(q, nodes.RequestSuccessful)
		f.gone(orphan)
		f.event(q, "OrphanDeleted", "Node "+orphan.Name+" was deleted: its instance")
		if g, _, _ := f.now(); g.Spec.DesiredCapacity != 3 || g.Status.Detached != 0 {
			t.Errorf("%+v", g)
		}
	}},
	{"a machine that no request detached", func(t *testing.T) {
		f := newFixture(t, 2, nil)
		names := f.nodeNames()
		var n corev1.Node
		if err := f.Get(t.Context(), client.ObjectKey{Name: names[0]}, &n); err != nil {
			t.Fatal(err)
		}
		// Its instance runs, and the selector selects it, as it would select nodes of the control plane.
		cloud := must(newProvider(must(shared.RESTConfig(""))))
		if err := cloud.Detach(t.Context(), f.namespace, n.Spec.ProviderID); err != nil {
			t.Fatal(err)
		}
		f.start(short(func(l *controller.Limits) { l.Equilibrium = 3 * time.Second }), false, nil)
		q := f.request("wide", nil)
		f.await(q, "ended", func(q *nodes.CycleNodeRequest) bool { return controller.Ended(q.Status.Phase) })
		if q.Status.Phase != nodes.RequestFailed || !strings.Contains(q.Status.Reason, "node "+names[0]+
			" is selected, but its instance is in none of the groups, and no request has detached it") {
			t.Errorf("%+v", q.Status)
		}
		_, members, list := f.now()
		if i := members[n.Spec.ProviderID]; i.State != nodes.InstanceRunning || list[n.Spec.ProviderID] == nil {
			t.Errorf("%+v, %v", i, list[n.Spec.ProviderID])
		}
	}},
	{"an instance that has lost its Node", func(t *testing.T) {
		f := newFixture(t, 3, nil)
		lost := f.nodeNames()[0]
		f.seen.mu.Lock()
		f.seen.began = false // it is not us
		f.seen.mu.Unlock()
		f.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: lost}})
		f.start(short(func(l *controller.Limits) { l.Equilibrium = 6 * time.Second }), false, nil)
		q := f.request("taken-up", nil)
		f.await(q, "ended", func(q *nodes.CycleNodeRequest) bool { return controller.Ended(q.Status.Phase) })
		for _, id := range q.Status.Replaced {
			f.selected[id] = true
		}
		f.ends(q, nodes.RequestSuccessful)
		if len(q.Status.Replaced) != 1 || q.Status.Progress != "3/3" {
			t.Errorf("%+v", q.Status)
		}
		f.event(q, "InstanceReplaced", q.Status.Replaced[0])
	}},
	{"two instances that have lost their Nodes", func(t *testing.T) {
		f := newFixture(t, 3, nil)
		f.seen.mu.Lock()
		f.seen.began = false // it is not us
		f.seen.mu.Unlock()
		for _, name := range f.nodeNames()[:2] {
			f.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		f.start(short(func(l *controller.Limits) { l.Equilibrium = 2 * time.Second }), false, nil)
		q := f.request("too-many", nil)
		f.await(q, "ended", func(q *nodes.CycleNodeRequest) bool { return controller.Ended(q.Status.Phase) })
		f.seen.mu.Lock()
		defer f.seen.mu.Unlock()
		if q.Status.Phase != nodes.RequestFailed || len(f.seen.terminated) > 0 ||
			!strings.Contains(q.Status.Reason, "there are too many of them to be replaced") {
			t.Errorf("%v, %+v", f.seen.terminated, q.Status)
		}
	}},
	{"a request that nobody carries out", func(t *testing.T) {
		f := newFixture(t, 1, nil)
		elsewhere := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "unserved-"}}
		if err := f.Create(t.Context(), elsewhere); err != nil {
			t.Fatal(err)
		}
		first := f.request("first", nil)
		copied := &nodes.CycleNodeRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere.Name, Name: "unserved"}, Spec: first.Spec,
		}
		if err := f.Create(t.Context(), copied); err != nil {
			t.Fatal(err)
		}
		f.delete(first)
		f.gone(first)
		f.start(limits(), false, nil)
		f.ends(f.request("served", nil), nodes.RequestSuccessful)
		if copied = f.latest(copied); copied.Status.Phase != "" || len(copied.Finalizers) > 0 {
			t.Errorf("%+v", copied)
		}
	}},
	{"several groups", func(t *testing.T) {
		f := newFixture(t, 2, nil)
		other := &nodes.SimulatedNodeGroup{
			ObjectMeta: metav1.ObjectMeta{Name: f.namespace + "-b"},
			Spec: nodes.SimulatedNodeGroupSpec{DesiredCapacity: 1, MaxSize: 10, Template: nodes.SimulatedTemplate{
				Labels: map[string]string{"group": f.namespace},
			}},
		}
		if err := f.Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.Delete(context.Background(), other); err != nil {
				t.Error(err)
			}
		})
		clustertest.Eventually(t, func(context.Context) error {
			if n := f.readyNow(); n != 3 {
				return fmt.Errorf("%d of 3 nodes are Ready", n)
			}
			return nil
		})
		f.start(limits(), false, nil)
		// One group alone does not have all of the selected nodes.
		q := f.request("both", func(s *nodes.CycleNodeRequestSpec) {
			s.NodeGroupsList = []string{f.namespace + "-b", f.namespace, f.namespace + "-b"}
			s.CycleSettings.Concurrency = 2
		})
		f.await(q, "ended", func(q *nodes.CycleNodeRequest) bool { return controller.Ended(q.Status.Phase) })
		of := map[string]int{}
		for _, n := range q.Status.NodesToTerminate {
			of[n.NodeGroupName]++
		}
		if q.Status.Phase != nodes.RequestSuccessful || q.Status.Progress != "3/3" || of[f.namespace] != 2 ||
			of[f.namespace+"-b"] != 1 || len(q.Status.Groups) != 2 {
			t.Errorf("%v: %+v", of, q.Status)
		}
		if err := f.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil {
			t.Fatal(err)
		}
		if s := other.Status; s.Started != 2 || s.Ready != 1 || other.Spec.DesiredCapacity != 1 {
			t.Errorf("%+v", other)
		}
	}},
	{"a namespace is not waited for", func(t *testing.T) {
		f := newFixture(t, 1, nil)
		node := f.nodeNames()[0]
		f.pod("batch", node, nil)
		f.start(limits(), false, nil)
		f.ends(f.request("ignored", func(s *nodes.CycleNodeRequestSpec) {
			wait(s)
			s.CycleSettings.IgnoreNamespaces = []string{"elsewhere", f.namespace}
		}), nodes.RequestSuccessful)
		if p := f.podNow("batch"); p != nil {
			t.Errorf("%+v", p)
		}
	}},
	{"only pods with an annotation are waited for", func(t *testing.T) {
		const stay = "cyclops.atlassian.com/do-not-disrupt"
		f := newFixture(t, 1, nil)
		node := f.nodeNames()[0]
		f.pod("web", node, nil)
		job := f.pod("job", node, func(p *corev1.Pod) { p.Annotations = map[string]string{stay: "true"} })
		f.start(limits(), false, nil)
		q := f.request("annotated", func(s *nodes.CycleNodeRequestSpec) {
			wait(s)
			s.CycleSettings.WaitForAnnotation = stay
		})
		if s := f.child(q, "waits until these pods end: "); s.Status.Message != "waits until these pods end: "+
			f.namespace+"/job" || f.podNow("web") == nil {
			t.Errorf("%+v", s.Status)
		}
		f.delete(job)
		f.ends(q, nodes.RequestSuccessful)
		if p := f.podNow("web"); p != nil {
			t.Errorf("%+v", p)
		}
	}},
	{"pre-termination checks that are skipped", func(t *testing.T) {
		var asked atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.WriteHeader(http.StatusConflict)
		}))
		t.Cleanup(server.Close)
		f := newFixture(t, 1, nil)
		f.endpoints = []string{server.URL}
		f.start(limits(), false, nil)
		check := func(s *nodes.CycleNodeRequestSpec) {
			s.PreTerminationChecks = []nodes.PreTerminationCheck{{
				Endpoint: server.URL, HealthCheck: nodes.HealthCheck{Endpoint: server.URL, WaitPeriod: "500ms"},
			}}
		}
		f.ends(f.request("made", check), nodes.RequestFailed)
		before := asked.Load()
		q := f.request("skipped", func(s *nodes.CycleNodeRequestSpec) { check(s); s.SkipPreTerminationChecks = true })
		f.ends(q, nodes.RequestSuccessful)
		if n := asked.Load(); before == 0 || n != before || len(q.Status.PreTerminationChecks) > 0 {
			t.Errorf("asked %d times, before %d: %+v", n, before, q.Status)
		}
	}},
	{"health checks", func(t *testing.T) {
		var healthy, asked atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			if healthy.Load() == 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, "ready")
		}))
		t.Cleanup(server.Close)
		checks := func(period chaos.Duration) func(*nodes.CycleNodeRequestSpec) {
			return func(s *nodes.CycleNodeRequestSpec) {
				s.HealthChecks = []nodes.HealthCheck{{
					Endpoint:   strings.Replace(server.URL, "127.0.0.1", "{{ .NodeIP }}", 1),
					RegexMatch: "^ready$",
				}}
				s.HealthChecks[0].WaitPeriod = period
			}
		}
		f := newFixture(t, 1, nil)
		p := f.start(limits(), false, nil)
		q := f.request("refused", checks("500ms")) // the simulated node's address is this machine's own
		f.ends(q, nodes.RequestFailed)
		if !strings.Contains(q.Status.Reason, "it is neither the node's address nor a pod's") || asked.Load() > 0 {
			t.Errorf("asked %d times: %s", asked.Load(), q.Status.Reason)
		}
		q = f.request("invalid", func(s *nodes.CycleNodeRequestSpec) {
			s.HealthChecks = []nodes.HealthCheck{{Endpoint: server.URL}}
		})
		f.ends(q, nodes.RequestFailed)
		if !strings.Contains(q.Status.Reason, "it is neither the node's address nor a pod's") || asked.Load() > 0 {
			t.Errorf("asked %d times: %s", asked.Load(), q.Status.Reason)
		}
		p.stop()
		f.endpoints = []string{server.URL}
		f.start(limits(), false, nil)
		q = f.request("old", checks("500ms"))
		f.ends(q, nodes.RequestFailed)
		if !strings.Contains(q.Status.Reason, "health checks did not pass: node "+f.nodeNames()[0]) {
			t.Error(q.Status.Reason)
		}
		q = f.request("new", func(s *nodes.CycleNodeRequestSpec) {
			checks("500ms")(s)
			s.SkipInitialHealthChecks = true
		})
		f.ends(q, nodes.RequestFailed)
		if len(q.Status.NodesToTerminate) != 1 || q.Status.NodesToTerminate[0].State != nodes.NodeAttached {
			t.Errorf("%+v", q.Status)
		}
		q = f.request("later", checks("1m"))
		before := asked.Load()
		clustertest.Eventually(t, func(context.Context) error {
			if n := asked.Load(); n < before+3 {
				return fmt.Errorf("asked %d times", n-before)
			}
			return nil
		})
		healthy.Store(1)
		f.ends(q, nodes.RequestSuccessful)
	}},
	{"pre-termination checks that pass at different times", func(t *testing.T) {
		f := newFixture(t, 2, nil)
		names := f.nodeNames()
		// Each node has its own address, so that the server knows which one it is.
		var passes [2]atomic.Bool
		var posts [2]atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			i := 0
			if strings.HasPrefix(r.URL.Path, "/127.0.0.2/") {
				i = 1
			}
			switch {
			case r.Method == http.MethodPost:
				posts[i].Add(1)
				w.WriteHeader(http.StatusAccepted)
			case !passes[i].Load():
				w.WriteHeader(http.StatusConflict)
			}
		}))
		t.Cleanup(server.Close)
		f.changeStatus(names[1], func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.2"}}
		})
		check := func(s *nodes.CycleNodeRequestSpec) {
			s.PreTerminationChecks = []nodes.PreTerminationCheck{{
				Endpoint: server.URL + "/{{ .NodeIP }}/drain", ValidStatusCodes: []int32{http.StatusAccepted},
				HealthCheck: nodes.HealthCheck{Endpoint: server.URL + "/{{ .NodeIP }}/drained", WaitPeriod: "1m"},
			}}
		}
		f.endpoints = []string{server.URL}
		f.start(limits(), false, nil)
		q := f.request("checks", check)
		f.await(q, "told to the nodes", func(q *nodes.CycleNodeRequest) bool {
			return posts[0].Load() > 0 && posts[1].Load() > 0 && q.Status.Phase == nodes.RequestCordoningNode
		})
		passes[1].Store(true)
		f.await(q, "cycling one", func(q *nodes.CycleNodeRequest) bool {
			return len(q.Status.NodesToTerminate) == 2 && q.Status.NodesToTerminate[1].State == nodes.NodeCycled &&
				q.Status.NodesToTerminate[0].State == nodes.NodeDetached
		})
		passes[0].Store(true)
		f.ends(q, nodes.RequestSuccessful)
		if a, b := posts[0].Load(), posts[1].Load(); a != 1 || b != 1 {
			t.Errorf("%d and %d POST requests", a, b)
		}
		passes[0].Store(false)
		q = f.request("in-vain", func(s *nodes.CycleNodeRequestSpec) {
			check(s)
			s.PreTerminationChecks[0].HealthCheck.WaitPeriod = "500ms"
		})
		f.ends(q, nodes.RequestFailed)
		if !strings.Contains(q.Status.Reason, "pre-termination checks did not pass") {
			t.Error(q.Status.Reason)
		}
	}},
	{"dead between detaching and writing so", func(t *testing.T) {
		f := newFixture(t, 2, nil)
		q := f.stopped(limits(), ofRequest, string(nodes.RequestInitialised), func() *nodes.CycleNodeRequest {
			return f.request("dead", concurrently(1))
		})
		detached := false
		p := f.start(limits(), false, func(_ int, r *http.Request, body []byte) bool {
			if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/providercalls") {
				detached = true
			}
			return detached && writes(ofRequest, string(nodes.RequestScalingUp))(0, r, body)
		})
		<-p.ended
		p.stop()
		if q = f.latest(q); q.Status.Phase != nodes.RequestInitialised ||
			q.Status.NodesToTerminate[0].State != nodes.NodeDetaching {
			t.Fatalf("%+v", q.Status)
		}
		f.start(limits(), false, nil)
		f.ends(q, nodes.RequestSuccessful)
	}},
	{"dead between creating a CycleNodeStatus and what is written next", func(t *testing.T) {
		f := newFixture(t, 1, nil)
		p := f.start(limits(), true, func(_ int, r *http.Request, _ []byte) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/"+ofStatus)
		})
		q := f.request("dead", nil)
		<-p.ended
		p.stop()
		f.start(limits(), false, nil)
		f.ends(q, nodes.RequestSuccessful)
	}},
	{"a CycleNodeStatus that is someone else's", func(t *testing.T) {
		f := newFixture(t, 1, nil)
		q := f.stopped(limits(), ofRequest, string(nodes.RequestScalingUp), func() *nodes.CycleNodeRequest {
			return f.request("taken", nil)
		})
		if err := controllersClient(t).Create(t.Context(), &nodes.CycleNodeStatus{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: f.namespace, Name: controller.StatusName(q, q.Status.NodesToTerminate[0].ProviderID),
			},
			Spec: nodes.CycleNodeStatusSpec{
				Request: "other", RequestUID: "other", Node: q.Status.NodesToTerminate[0].NodeRef,
			},
		}); err != nil {
			t.Fatal(err)
		}
		f.start(limits(), false, nil)
		f.ends(q, nodes.RequestFailed)
		if !strings.Contains(q.Status.Reason, "belongs to request other (other)") {
			t.Error(q.Status.Reason)
		}
	}},
	{"a CycleNodeStatus that nobody asked for", func(t *testing.T) {
		f := newFixture(t, 1, nil)
		f.start(limits(), false, nil)
		_, members, list := f.now()
		for id := range members {
			s := &nodes.CycleNodeStatus{
				ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "unasked"},
				Spec: nodes.CycleNodeStatusSpec{
					Request: "none", RequestUID: "none", Node: controller.RefOf(list[id], f.namespace),
				},
			}
			if err := controllersClient(t).Create(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			clustertest.Eventually(t, func(ctx context.Context) error {
				if err := f.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
					return err
				}
				if s.Status.Phase != nodes.StatusFailed || s.Status.Message != "its request does not exist" {
					return fmt.Errorf("%+v", s.Status)
				}
				return nil
			})
			f.delete(s)
			f.gone(s)
		}
		if n := f.readyNow(); n != 1 {
			t.Errorf("%d nodes", n)
		}
	}},
}

// phases at which something happens.
var phases = []struct {
	resource, phase string
}{
	{ofRequest, "Pending"}, {ofRequest, "Initialised"}, {ofRequest, "ScalingUp"}, {ofRequest, "CordoningNode"},
	{ofRequest, "WaitingTermination"}, {ofRequest, "Successful"},
	{ofStatus, "Pending"}, {ofStatus, "WaitingPods"}, {ofStatus, "RemovingLabelsFromPods"}, {ofStatus, "DrainingPods"},
	{ofStatus, "DeletingNode"}, {ofStatus, "TerminatingNode"}, {ofStatus, "Successful"},
}

// TestScenarios runs the scenarios, and in each phase those things that can happen in all of them. It checks in the end
// that all ways of the tables of phases were gone.
func TestScenarios(t *testing.T) {
	var tests []subtest
	for _, s := range scenarios {
		tests = append(tests, subtest{s.name, s.run})
	}
	size := 1
	if long() {
		size = 3
	}
	for _, p := range phases {
		name := strings.TrimSuffix(strings.TrimSuffix(p.resource, "s"), "e") + " " + p.phase
		stopped := func(t *testing.T) (*fixture, *nodes.CycleNodeRequest) {
			f := newFixture(t, size, nil)
			return f, f.stopped(limits(), p.resource, p.phase, func() *nodes.CycleNodeRequest {
				return f.request("q", func(s *nodes.CycleNodeRequestSpec) {
					s.CycleSettings.Concurrency = 1
					if p.phase == "WaitingPods" {
						wait(s)
					}
				})
			})
		}
		tests = append(tests, subtest{"the request is deleted, " + name, func(t *testing.T) {
			f, q := stopped(t)
			f.delete(q)
			f.start(limits(), false, nil)
			f.gone(q)
			f.whole()
		}})
		if p.resource != ofStatus && !long() {
			continue
		}
		tests = append(tests, subtest{"its node is deleted, " + name, func(t *testing.T) {
			f, q := stopped(t)
			if len(q.Status.NodesToTerminate) > 0 {
				f.seen.mu.Lock()
				f.seen.began = false // it is not us
				f.seen.mu.Unlock()
				err := f.Delete(t.Context(), &corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: q.Status.NodesToTerminate[0].Name},
				})
				if client.IgnoreNotFound(err) != nil {
					t.Fatal(err)
				}
			}
			f.start(limits(), false, nil)
			f.ends(q, nodes.RequestSuccessful)
		}})
		if p.resource != ofStatus {
			continue
		}
		tests = append(tests, subtest{"its status is deleted, " + name, func(t *testing.T) {
			f, q := stopped(t)
			f.delete(&nodes.CycleNodeStatus{ObjectMeta: metav1.ObjectMeta{
				Namespace: f.namespace, Name: controller.StatusName(q, q.Status.NodesToTerminate[0].ProviderID)}})
			f.start(limits(), false, nil)
			want := nodes.RequestFailed
			switch p.phase {
			case "DeletingNode", "TerminatingNode", "Successful":
				want = nodes.RequestSuccessful
			}
			f.ends(q, want)
		}})
	}
	atOnce(t, tests)
	if t.Failed() || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return
	}
	walked.Lock()
	defer walked.Unlock()
	check := func(kind string, seen map[string]bool, table map[string][]string) {
		for from, all := range table {
			for _, to := range all {
				if !seen[from+" -> "+to] {
					t.Errorf("%s: no test goes from phase %q to %q", kind, from, to)
				}
			}
		}
	}
	check("CycleNodeRequest", walked.requests, texts(request.Transitions))
	check("CycleNodeStatus", walked.statuses, texts(status.Transitions))
}

// controllersClient has the rights of the controllers.
func controllersClient(t testing.TB) client.Client {
	return must(client.New(account.Config(t), client.Options{Scheme: newScheme()}))
}

// event waits until an event of a request says something.
func (f *fixture) event(q *nodes.CycleNodeRequest, reason, note string) {
	f.t.Helper()
	clustertest.Eventually(f.t, func(ctx context.Context) error { // events are written in the background
		var list eventsv1.EventList
		if err := f.List(ctx, &list, client.InNamespace(q.Namespace)); err != nil {
			return err
		}
		var others []string
		for _, e := range list.Items {
			if e.Regarding.UID == q.UID && e.Reason == reason && strings.Contains(e.Note, note) {
				return nil
			}
			others = append(others, e.Reason+": "+e.Note)
		}
		return fmt.Errorf("no event %s (%s) among %q", reason, note, others)
	})
}

// whole checks that the group has as many nodes as before, and that nothing is left of a request.
func (f *fixture) whole() {
	f.t.Helper()
	clustertest.Eventually(f.t, func(context.Context) error { // the cloud may be starting a replacement
		g, members, list := f.now()
		ready := 0
		for id, i := range members {
			if i.State == nodes.InstanceInService && list[id] != nil && controller.IsReady(list[id]) {
				ready++
			}
		}
		if ready < f.size || int64(ready) != g.Spec.DesiredCapacity {
			return fmt.Errorf("%d of %d nodes are Ready: %+v", ready, f.size, g.Status)
		}
		return nil
	})
	g, members, list := f.now()
	if g.Status.Detached > 0 {
		f.t.Errorf("%d instances are detached", g.Status.Detached)
	}
	for id, n := range list {
		if _, ok := members[id]; !ok || n.Spec.Unschedulable || n.Annotations[controller.AnnotationClaim] != "" {
			f.t.Errorf("node %s: instance %t, cordoned %t, claim %q", n.Name, ok, n.Spec.Unschedulable,
				n.Annotations[controller.AnnotationClaim])
		}
	}
}

// child waits until a status of the request says something.
func (f *fixture) child(q *nodes.CycleNodeRequest, message string) *nodes.CycleNodeStatus {
	f.t.Helper()
	var found *nodes.CycleNodeStatus
	clustertest.Eventually(f.t, func(ctx context.Context) error {
		var list nodes.CycleNodeStatusList
		if err := f.List(ctx, &list, client.InNamespace(f.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if s := &list.Items[i]; s.Spec.Request == q.Name && strings.Contains(s.Status.Message, message) {
				found = s
				return nil
			}
		}
		return fmt.Errorf("no status of request %s says %q: %+v", q.Name, message, list.Items)
	})
	return found
}

func (f *fixture) podNow(name string) *corev1.Pod {
	f.t.Helper()
	p := &corev1.Pod{}
	err := f.Get(f.t.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, p)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		f.t.Fatal(err)
	}
	return p
}

// finish lets a pod go that finalizers keep.
func (f *fixture) finish(name string) {
	f.t.Helper()
	clustertest.Eventually(f.t, func(ctx context.Context) error {
		p := f.podNow(name)
		if p == nil {
			return nil
		}
		p.Finalizers = nil
		return client.IgnoreNotFound(f.Update(ctx, p))
	})
}

func (f *fixture) changeNode(name string, change func(*corev1.Node)) {
	f.t.Helper()
	clustertest.Eventually(f.t, func(ctx context.Context) error {
		n := &corev1.Node{}
		if err := f.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
			return err
		}
		change(n)
		return f.Update(ctx, n)
	})
}

func (f *fixture) changeStatus(name string, change func(*corev1.Node)) {
	f.t.Helper()
	clustertest.Eventually(f.t, func(ctx context.Context) error {
		n := &corev1.Node{}
		if err := f.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
			return err
		}
		change(n)
		return f.Status().Update(ctx, n)
	})
}
