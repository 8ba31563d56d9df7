package manager

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/provider"
)

var saboteurSeed = flag.Uint64("saboteur.seed", 0, "seed of TestSaboteur (default: the time)")

// TestSaboteur lets a saboteur work against cycles at random: he kills the controllers, which are processes of their
// own, deletes Nodes, pods and requests, strips finalizers, uses names again, ends instances and makes calls of the
// provider fail. Whatever he does, each status must be true, nothing may be touched that no request was about, and when
// he is done, one more request replaces all nodes, and nothing is left. -saboteur.seed does the same steps again, as
// far as the cluster is as quick.
func TestSaboteur(t *testing.T) {
	steps, seed := 50, *saboteurSeed
	if long() {
		steps = 500
	}
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("%d steps, -saboteur.seed=%d", steps, seed)
	s := newSaboteur(t, seed)
	for i := range steps {
		s.settle()
		do := s.deeds()[s.rand.IntN(len(s.deeds()))]
		what := do()
		s.log = append(s.log, fmt.Sprintf("%3d %s", i, what))
		s.truthful()
		if t.Failed() {
			break
		}
	}
	s.finish()
	if t.Failed() {
		s.kill() // it writes its output no more
		t.Logf("seed %d:\n%s\ncontrollers:\n%s", seed, strings.Join(s.log, "\n"), s.output.String())
	}
}

// saboteur works against the cycles of a group.
type saboteur struct {
	*fixture
	rand    *rand.Rand
	cloud   provider.Provider
	log     []string
	args    []string
	running *exec.Cmd
	output  bytes.Buffer
	pods    int
	changed chan struct{} // something has changed

	mu sync.Mutex
	// By provider ID: what requests were about, what the saboteur has ended or begun to, whose Node he has deleted, and
	// what was being cycled by a request whose finalizers he has stripped.
	concerned, ended, nodeless, forgotten map[string]bool
	// Which Nodes were marked as started for a request that failed.
	marked map[string]bool
}

func newSaboteur(t *testing.T, seed uint64) *saboteur {
	s := &saboteur{
		fixture: newFixture(t, 4, func(g *nodes.SimulatedNodeGroup) { g.Spec.MaxSize = 1000 }),
		rand:    rand.New(rand.NewPCG(seed, seed)), cloud: must(newProvider(must(shared.RESTConfig("")))),
		changed:   make(chan struct{}, 1),
		concerned: map[string]bool{}, ended: map[string]bool{}, nodeless: map[string]bool{},
		forgotten: map[string]bool{}, marked: map[string]bool{},
	}
	s.seen.mu.Lock()
	s.seen.began = false // he deletes Nodes himself
	s.seen.mu.Unlock()
	binary := filepath.Join(t.TempDir(), "trommel-nodes")
	build := exec.Command("go", "build", "-o", binary, "../../../cmd/trommel-nodes")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	to, _ := account.Recorded()
	if err := cluster.WriteKubeconfig(kubeconfig, "saboteur", to); err != nil {
		t.Fatal(err)
	}
	s.args = []string{
		binary, "--kubeconfig", kubeconfig, "--namespaces", s.namespace, "--poll=100ms", "--orphan-age=100ms",
		"--equilibrium-timeout=3s", "--scale-up-timeout=10s", "--healing-timeout=10s", "--termination-timeout=10s",
		"--provider-qps=1000", "--provider-burst=1000", "--cycling-timeout=5s",
	}
	s.note()
	s.start()
	t.Cleanup(func() { s.kill() })
	return s
}

// note watches what requests are about, and wakes the saboteur.
func (s *saboteur) note() {
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	c := must(ctrlcache.New(must(shared.RESTConfig("")), ctrlcache.Options{
		Scheme: newScheme(), DefaultNamespaces: map[string]ctrlcache.Config{s.namespace: {}},
	}))
	see := func(o any) {
		if n, ok := o.(*corev1.Node); ok {
			if n.Annotations[controller.AnnotationSurplus] != "" {
				s.mu.Lock()
				s.marked[n.Spec.ProviderID] = true
				s.mu.Unlock()
			}
			return
		}
		if q, ok := o.(*nodes.CycleNodeRequest); ok {
			s.mu.Lock()
			for _, n := range q.Status.NodesToTerminate {
				s.concerned[n.ProviderID] = true
			}
			for _, id := range q.Status.Replaced {
				s.concerned[id] = true
			}
			s.mu.Unlock()
		}
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
	for _, o := range []client.Object{&corev1.Node{}, &nodes.CycleNodeRequest{}, &nodes.CycleNodeStatus{}} {
		informer := must(c.GetInformer(ctx, o))
		must(informer.AddEventHandler(handlers{see, see}))
	}
	go func() { _ = c.Start(ctx) }()
	if !c.WaitForCacheSync(ctx) {
		s.t.Fatal("the watches have not begun")
	}
}

// settle waits for some changes, so that deeds come at all moments of cycles. Where nothing goes on, nothing changes.
func (s *saboteur) settle() {
	end := time.After(time.Second)
	for range s.rand.IntN(12) {
		select {
		case <-s.changed:
		case <-end:
			return
		}
	}
}

func (s *saboteur) start() {
	if s.running != nil {
		return
	}
	s.running = exec.Command(s.args[0], s.args[1:]...)
	s.running.Stdout, s.running.Stderr = &s.output, &s.output
	if err := s.running.Start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *saboteur) kill() {
	if s.running == nil {
		return
	}
	_ = s.running.Process.Kill()
	_ = s.running.Wait()
	s.running = nil
}

func (s *saboteur) requests() []nodes.CycleNodeRequest {
	s.t.Helper()
	var list nodes.CycleNodeRequestList
	if err := s.List(s.t.Context(), &list, client.InNamespace(s.namespace)); err != nil {
		s.t.Fatal(err)
	}
	return list.Items
}

// ignore fails the test if something else is wrong than that another client was quicker.
func (s *saboteur) ignore(err error) {
	s.t.Helper()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		s.t.Error(err)
	}
}

func one[T any](s *saboteur, list []T) *T {
	if len(list) == 0 {
		return nil
	}
	return &list[s.rand.IntN(len(list))]
}

// deeds are what he can do; those that stand there more than once are done more often.
func (s *saboteur) deeds() []func() string {
	return []func() string{
		s.ask, s.ask, s.ask, s.ask, s.restart, s.restart, s.restart, s.stop, s.start1, s.start1, s.deleteRequest,
		s.strip, s.deleteNode, s.endInstance, s.fail, s.fail, s.pod, s.pod, s.deletePods, s.uncordon, s.restore,
	}
}

// ask makes a request; there are only few names.
func (s *saboteur) ask() string {
	q := &nodes.CycleNodeRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: string(rune('a' + s.rand.IntN(4)))},
		Spec: nodes.CycleNodeRequestSpec{
			NodeGroupName: s.namespace,
			Selector:      metav1.LabelSelector{MatchLabels: map[string]string{"group": s.namespace}},
		},
	}
	q.Spec.CycleSettings.Concurrency = int64(s.rand.IntN(4))
	if s.rand.IntN(3) == 0 {
		q.Spec.NodeNames = s.nodeNames()[:1]
		q.Spec.ValidationOptions.SkipMissingNamedNodes = true
	}
	for _, old := range s.requests() {
		if old.Name == q.Name && controller.Ended(old.Status.Phase) {
			s.ignore(s.Delete(s.t.Context(), &old))
		}
	}
	err := s.Create(s.t.Context(), q)
	s.ignore(err)
	return fmt.Sprintf("makes request %s, %d at a time, nodes %v: %v", q.Name, q.Spec.CycleSettings.Concurrency,
		q.Spec.NodeNames, err)
}

// restore makes a request that removes nodes by which others have enlarged the group.
func (s *saboteur) restore() string {
	q := &nodes.CycleNodeRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, GenerateName: "restore-"},
		Spec: nodes.CycleNodeRequestSpec{
			NodeGroupName: s.namespace, Restore: true,
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"group": s.namespace}},
		},
	}
	s.ignore(s.Create(s.t.Context(), q))
	return "makes request " + q.Name
}

func (s *saboteur) restart() string {
	s.kill()
	s.start()
	return "kills the controllers, and starts them again"
}

func (s *saboteur) stop() string {
	s.kill()
	return "kills the controllers"
}

func (s *saboteur) start1() string {
	s.start()
	return "starts the controllers, if they do not run"
}

func (s *saboteur) deleteRequest() string {
	q := one(s, s.requests())
	if q == nil {
		return "finds no request to delete"
	}
	s.ignore(s.Delete(s.t.Context(), q))
	return "deletes request " + q.Name
}

// strip strips the finalizers of a request, and of its statuses, and deletes it.
func (s *saboteur) strip() string {
	q := one(s, s.requests())
	if q == nil {
		return "finds no request to strip"
	}
	s.kill() // so that they do not put it back
	if err := s.Get(s.t.Context(), client.ObjectKeyFromObject(q), q); err != nil {
		s.ignore(err)
		return "finds no request any more to strip"
	}
	s.mu.Lock()
	for _, n := range q.Status.NodesToTerminate {
		if n.State != nodes.NodeAvailable && n.State != nodes.NodeCycled && n.State != nodes.NodeAttached {
			s.forgotten[n.ProviderID] = true
		}
	}
	s.mu.Unlock()
	q.Finalizers = nil
	s.ignore(s.Update(s.t.Context(), q))
	s.ignore(s.Delete(s.t.Context(), q))
	var list nodes.CycleNodeStatusList
	if err := s.List(s.t.Context(), &list, client.InNamespace(s.namespace)); err != nil {
		s.t.Fatal(err)
	}
	for _, status := range list.Items {
		if status.Spec.RequestUID == q.UID {
			status.Finalizers = nil
			s.ignore(s.Update(s.t.Context(), &status))
		}
	}
	s.start()
	return "strips request " + q.Name
}

func (s *saboteur) deleteNode() string {
	g, _, list := s.now()
	n := one(s, slices.Sorted(maps.Keys(list)))
	if n == nil || len(list) < 2 {
		return fmt.Sprintf("leaves the last Node of %d", g.Spec.DesiredCapacity)
	}
	s.mu.Lock()
	s.nodeless[*n] = true
	s.mu.Unlock()
	s.ignore(s.Delete(s.t.Context(), list[*n]))
	return "deletes Node " + list[*n].Name
}

func (s *saboteur) endInstance() string {
	_, members, _ := s.now()
	id := one(s, slices.Sorted(maps.Keys(members)))
	if id == nil {
		return "finds no instance to end"
	}
	s.mu.Lock()
	s.ended[*id] = true
	s.mu.Unlock()
	err := s.cloud.Terminate(s.t.Context(), *id)
	return fmt.Sprintf("ends instance %s: %v", *id, err)
}

// fail makes the next calls of the provider fail.
func (s *saboteur) fail() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	types := []nodes.SimulatedFaultType{nodes.FaultThrottled, nodes.FaultError, nodes.FaultAnswerLost}
	f := nodes.SimulatedFault{
		Name: fmt.Sprintf("f%d", len(s.log)), Type: types[s.rand.IntN(len(types))], Times: 1 + int64(s.rand.IntN(2)),
	}
	s.change(func(spec *nodes.SimulatedNodeGroupSpec) { spec.Faults = []nodes.SimulatedFault{f} })
	return fmt.Sprintf("makes %d calls fail: %s", f.Times, f.Type)
}

func (s *saboteur) pod() string {
	node := one(s, s.nodeNames())
	if node == nil {
		return "finds no node for a pod"
	}
	s.pods++
	name := fmt.Sprintf("pod-%d", s.pods)
	p := s.podOn(name, *node)
	if s.rand.IntN(3) == 0 {
		held(p) // draining it never ends
	}
	s.ignore(s.Create(s.t.Context(), p))
	return fmt.Sprintf("puts pod %s on node %s, finalizers %v", name, *node, p.Finalizers)
}

func (s *saboteur) deletePods() string {
	var list corev1.PodList
	if err := s.List(s.t.Context(), &list, client.InNamespace(s.namespace)); err != nil {
		s.t.Fatal(err)
	}
	for _, p := range list.Items {
		if len(p.Finalizers) > 0 {
			p.Finalizers = nil
			s.ignore(s.Update(s.t.Context(), &p))
		}
		s.ignore(s.Delete(s.t.Context(), &p, client.GracePeriodSeconds(0)))
	}
	return "deletes the pods"
}

func (s *saboteur) uncordon() string {
	name := one(s, s.nodeNames())
	if name == nil {
		return "finds no node to uncordon"
	}
	n := &corev1.Node{}
	if err := s.Get(s.t.Context(), client.ObjectKey{Name: *name}, n); err != nil {
		s.ignore(err)
		return "finds no node any more to uncordon"
	}
	n.Spec.Unschedulable = false
	for _, key := range []string{controller.AnnotationClaim, controller.AnnotationCordoned} {
		delete(n.Annotations, key)
	}
	s.ignore(s.Update(s.t.Context(), n))
	return "uncordons node " + *name + " and removes its claim"
}

// truthful checks what requests say that have ended, and what was touched.
func (s *saboteur) truthful() {
	s.t.Helper()
	list := s.requests() // before the rest: what is gone stays gone
	g, members, all := s.now()
	if g.Spec.DesiredCapacity < int64(s.size) {
		s.t.Errorf("the group has only %d instances of %d", g.Spec.DesiredCapacity, s.size)
	}
	for _, q := range list {
		for _, n := range q.Status.NodesToTerminate {
			s.mu.Lock()
			if q.Spec.Restore && !s.marked[n.ProviderID] {
				s.t.Errorf("request %s is about node %s, which no request has added", q.Name, n.Name)
			}
			s.mu.Unlock()
			_, exists := members[n.ProviderID]
			over := q.Status.Phase == nodes.RequestSuccessful || n.State == nodes.NodeCycled
			if over && (exists || all[n.ProviderID] != nil) {
				s.t.Errorf("request %s (%s): node %s is %s, but its instance exists: %t, its Node: %t", q.Name,
					q.Status.Phase, n.Name, n.State, exists, all[n.ProviderID] != nil)
			}
		}
	}
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, touched := range []map[string]bool{s.seen.terminated, s.seen.detached} {
		for id := range touched {
			if !s.concerned[id] && !s.ended[id] {
				s.t.Errorf("instance %s was detached or terminated, but no request was about it", id)
			}
		}
	}
}

// finish ends all requests, tidies up what the saboteur alone has done, and has all nodes replaced once more.
func (s *saboteur) finish() {
	s.t.Helper()
	s.change(func(spec *nodes.SimulatedNodeGroupSpec) { spec.Faults = nil })
	s.deletePods()
	s.start()
	for _, q := range s.requests() {
		s.ignore(s.Delete(s.t.Context(), &q))
	}
	clustertest.Eventually(s.t, func(context.Context) error {
		if list := s.requests(); len(list) > 0 {
			return fmt.Errorf("%d requests are left: %s (%s), %s", len(list), list[0].Name, list[0].Status.Phase,
				list[0].Status.Message)
		}
		return nil
	})
	// As the messages ask for: more Nodes are missing than a request replaces by itself; and of a machine whose Node he
	// has deleted, and whose request he has stripped, nothing in the cluster knows.
	clustertest.Eventually(s.t, func(ctx context.Context) error {
		_, members, list := s.now()
		var left []string
		for id, i := range members {
			switch {
			case list[id] != nil && i.State == nodes.InstanceInService && controller.IsReady(list[id]):
				continue
			case list[id] == nil && i.State != nodes.InstanceTerminating:
				if i.State == nodes.InstanceInService && s.nodeless[id] || s.forgotten[id] {
					s.ended[id] = true
					if err := s.cloud.Terminate(ctx, id); err != nil {
						return err
					}
				}
			case i.State == nodes.InstanceRunning && list[id].Annotations[controller.AnnotationDetached] == s.namespace:
				continue // the next request attaches it
			}
			left = append(left, fmt.Sprintf("%s %s", id, i.State))
		}
		if len(left) > 0 {
			return fmt.Errorf("these are left: %s", strings.Join(left, ", "))
		}
		return nil
	})
	q := s.request("last", nil)
	s.await(q, "ended", func(q *nodes.CycleNodeRequest) bool { return controller.Ended(q.Status.Phase) })
	if q.Status.Phase != nodes.RequestSuccessful {
		s.t.Errorf("the last request is %s: %s", q.Status.Phase, q.Status.Message)
	}
	s.truthful()
	s.letGo(q)
	g, members, list := s.now()
	if g.Status.Detached > 0 || len(members) != len(list) || int64(len(members)) != g.Spec.DesiredCapacity {
		s.t.Errorf("%d instances, %d Nodes: %+v", len(members), len(list), g.Status)
	}
	for _, n := range list {
		for key := range n.Annotations {
			if strings.HasPrefix(key, "nodes.trommel.dev/") {
				s.t.Errorf("node %s has %s", n.Name, key)
			}
		}
		if n.Spec.Unschedulable {
			s.t.Errorf("node %s is cordoned", n.Name)
		}
	}
	s.ignore(s.Delete(s.t.Context(), q))
	clustertest.Eventually(s.t, func(ctx context.Context) error {
		var statuses nodes.CycleNodeStatusList
		if err := s.List(ctx, &statuses, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		if n := len(statuses.Items); n > 0 {
			return fmt.Errorf("%d CycleNodeStatuses are left", n)
		}
		return nil
	})
	s.t.Logf("%d instances were started", g.Status.Started)
}
