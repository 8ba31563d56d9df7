package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/controllers"
	"github.com/trommel-dev/trommel/internal/notify"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/controller/request"
	"github.com/trommel-dev/trommel/nodes/controller/status"
	"github.com/trommel-dev/trommel/nodes/provider"
	"github.com/trommel-dev/trommel/nodes/simulated"
)

var (
	shared  *embedded.Cluster
	account *clustertest.Account // of the manifests
	// cloudForbidden is what the simulated cloud was forbidden.
	cloudForbidden *clustertest.Forbidden
)

func TestMain(m *testing.M) {
	os.Exit(clustertest.Run(m, embedded.Config{APIServers: 1, Nodes: 1}, func(c *embedded.Cluster) {
		shared = c
		install(context.Background())
	}))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// install applies the definitions and rights to the shared cluster, and starts the simulated cloud, until the context
// ends: it lives on when controllers die.
func install(ctx context.Context) {
	admin := must(shared.RESTConfig(""))
	c := must(objects.New(admin))
	files := must(filepath.Glob("../../config/crd/*.trommel.dev_*.yaml"))
	for _, name := range []string{"namespace", "controllers", "observer", "simulated"} {
		files = append(files, "../../config/rbac/"+name+".yaml")
	}
	files = append(files, "../../config/admission/policy.yaml")
	for _, file := range files {
		for _, u := range must(objects.Decode(must(os.ReadFile(file)), file)) {
			if u.GetName() == limitsName {
				u.Object["data"] = openLimits()
			}
			if err := objects.Retry(ctx, func(ctx context.Context) error {
				_, err := c.Apply(ctx, u)
				return err
			}); err != nil {
				panic(err)
			}
		}
	}
	account = must(clustertest.NewAccount(ctx, admin, "trommel-nodes", "node-cycling-controllers",
		authorizationv1.ResourceAttributes{
			Verb: "list", Group: nodes.GroupVersion.Group, Resource: "cyclenodestatuses",
		},
		authorizationv1.ResourceAttributes{Verb: "list", Group: nodes.GroupVersion.Group, Resource: "providercalls"},
		authorizationv1.ResourceAttributes{
			Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: "trommel-nodes",
		}))
	yes := true
	o := ctrl.Options{Scheme: newScheme(), Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"}}
	o.Controller.SkipNameValidation = &yes
	to, forbidden := account.Recorded()
	cloudForbidden = forbidden
	to.QPS, to.Burst = 1000, 2000
	mgr := must(ctrl.NewManager(to, o))
	if err := simulated.Add(mgr, simulated.Options{}); err != nil {
		panic(err)
	}
	go func() {
		if err := mgr.Start(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "simulated cloud:", err)
		}
	}()
}

// limitsName is the ConfigMap of the admission policies.
const limitsName = "node-cycling-limits"

// openLimits are the limits of the tests, which make requests in namespaces of their own.
func openLimits() map[string]any {
	return map[string]any{
		"controllers": accountName, "namespaces": "*", "maxConcurrency": "0", "protectedGroups": "",
		"checkEndpoints": "*",
	}
}

const accountName = "system:serviceaccount:trommel-nodes:node-cycling-controllers"

func newScheme() *runtime.Scheme { return must(controllers.Scheme(nodes.AddToScheme)) }

// limits are those of the tests' managers, unless a timeout is what is tested.
func limits() controller.Limits {
	return controller.Limits{Poll: 100 * time.Millisecond, OrphanAge: time.Millisecond, CheckTimeout: 2 * time.Second}
}

// crash is the transport of a manager that dies when a request is the one: before it is sent, or after it was answered.
// For the API server that is the death of its process. Provider calls are requests as well.
type crash struct {
	base  http.RoundTripper
	when  func(write int, r *http.Request, body []byte) bool // called one at a time
	after bool
	ended chan struct{}

	mu     sync.Mutex
	writes int
	dead   bool
}

// count is the number of writes so far.
func (c *crash) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

var errCrashed = errors.New("the process has died")

func (c *crash) RoundTrip(r *http.Request) (*http.Response, error) {
	isWrite := r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events")
	var body []byte
	if isWrite && r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return nil, errCrashed
	}
	if isWrite {
		c.writes++
	}
	if !isWrite || c.when == nil || !c.when(c.writes, r, body) {
		c.mu.Unlock()
		return c.base.RoundTrip(r)
	}
	c.dead = true
	c.mu.Unlock()
	defer close(c.ended)
	if c.after {
		if resp, err := c.base.RoundTrip(r); err == nil {
			resp.Body.Close()
		}
	}
	return nil, errCrashed
}

// process is a running manager.
type process struct {
	*crash
	stop func()
}

// start runs a manager for the fixture's namespace until the end of the test, or until stop is called. It dies when the
// function says so; nil: never.
func (f *fixture) start(l controller.Limits, after bool, when func(int, *http.Request, []byte) bool) *process {
	f.t.Helper()
	to := account.Config(f.t)
	to.QPS, to.Burst = 1000, 2000
	c := &crash{when: when, after: after, ended: make(chan struct{})}
	to.Wrap(func(rt http.RoundTripper) http.RoundTripper { c.base = rt; return c })
	mgr, err := New(to, Options{
		Namespaces: []string{f.namespace}, Limits: l, Logger: logr.Discard(),
		Options: controllers.Options{LeaderElection: f.elects}, Namespace: "trommel-nodes",
		CheckEndpoints: f.endpoints, Observe: f.observes, Notify: f.notify,
		Provider: func(mgr ctrl.Manager) (provider.Provider, error) { return newProvider(mgr.GetConfig()) },
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return &process{c, clustertest.RunManager(f.t, mgr.Start, mgr.GetCache().WaitForCacheSync, errCrashed)}
}

// fixture is a namespace of its own with a group of nodes, which are watched all the time.
type fixture struct {
	t testing.TB
	client.Client
	namespace string // and the group's name
	size      int
	seen      *seen
	elects    bool // the managers elect a leader
	endpoints []string
	observes  bool
	notify    *notify.Options
	// What the requests so far could touch, and how many nodes at a time.
	selected    map[string]bool
	concurrency int
}

// seen is what the watches have seen.
type seen struct {
	mu         sync.Mutex
	ready      map[string]bool // nodes
	fewest     int             // ready nodes
	began      bool
	terminated map[string]bool // provider IDs
	detached   map[string]bool
	requests   map[types.UID]nodes.RequestPhase
	statuses   map[types.UID]nodes.StatusPhase
}

// walked are the transitions that were seen in all tests.
var walked = struct {
	sync.Mutex
	requests, statuses map[string]bool
}{requests: map[string]bool{}, statuses: map[string]bool{}}

func newClient() client.Client {
	to := must(shared.RESTConfig(""))
	to.QPS, to.Burst = 1000, 2000
	return must(client.New(to, client.Options{Scheme: newScheme()}))
}

func newFixture(t testing.TB, size int, change func(*nodes.SimulatedNodeGroup)) *fixture {
	t.Helper()
	c := newClient()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, Client: c, namespace: ns.Name, size: size, selected: map[string]bool{}, seen: &seen{
		ready: map[string]bool{}, terminated: map[string]bool{}, detached: map[string]bool{},
		requests: map[types.UID]nodes.RequestPhase{}, statuses: map[types.UID]nodes.StatusPhase{},
	}}
	g := &nodes.SimulatedNodeGroup{
		ObjectMeta: metav1.ObjectMeta{Name: f.namespace},
		Spec: nodes.SimulatedNodeGroupSpec{
			DesiredCapacity: int64(size), MaxSize: int64(4*size + 10),
			Template: nodes.SimulatedTemplate{Labels: map[string]string{"group": f.namespace}, Address: "127.0.0.1"},
		},
	}
	if change != nil {
		change(g)
	}
	f.watch()
	if err := c.Create(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), g); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	clustertest.Eventually(t, func(ctx context.Context) error {
		if n := f.readyNow(); n != size {
			return fmt.Errorf("%d of %d nodes are Ready", n, size)
		}
		return nil
	})
	f.seen.mu.Lock()
	f.seen.began, f.seen.fewest = true, size
	f.seen.mu.Unlock()
	return f
}

func (f *fixture) readyNow() int {
	f.seen.mu.Lock()
	defer f.seen.mu.Unlock()
	return f.seen.count()
}

func (s *seen) count() int {
	n := 0
	for _, ready := range s.ready {
		if ready {
			n++
		}
	}
	return n
}

// watch watches nodes, provider calls, requests and statuses until the end of the test.
func (f *fixture) watch() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f.t.Cleanup(cancel)
	c, err := cache.New(must(shared.RESTConfig("")), cache.Options{Scheme: newScheme()})
	if err != nil {
		f.t.Fatal(err)
	}
	handle := func(example client.Object, changed func(o client.Object, deleted bool)) {
		informer, err := c.GetInformer(ctx, example)
		if err != nil {
			f.t.Fatal(err)
		}
		call := func(deleted bool) func(any) {
			return func(o any) {
				if o, ok := o.(client.Object); ok {
					f.seen.mu.Lock()
					defer f.seen.mu.Unlock()
					changed(o, deleted)
				}
			}
		}
		if _, err := informer.AddEventHandler(handlers{call(false), call(true)}); err != nil {
			f.t.Fatal(err)
		}
	}
	go func() { _ = c.Start(ctx) }()
	handle(&corev1.Node{}, func(o client.Object, deleted bool) {
		if o.GetLabels()["group"] != f.namespace {
			return
		}
		f.seen.ready[o.GetName()] = !deleted && controller.IsReady(o.(*corev1.Node))
		if n := f.seen.count(); f.seen.began {
			f.seen.fewest = min(f.seen.fewest, n)
		}
	})
	handle(&nodes.ProviderCall{}, func(o client.Object, _ bool) {
		call := o.(*nodes.ProviderCall)
		if simulated.GroupOf(call.Spec.ProviderID) != f.namespace {
			return
		}
		switch call.Spec.Call {
		case nodes.CallTerminate:
			f.seen.terminated[call.Spec.ProviderID] = true
		case nodes.CallDetach:
			f.seen.detached[call.Spec.ProviderID] = true
		}
	})
	handle(&nodes.CycleNodeRequest{}, func(o client.Object, _ bool) {
		if q := o.(*nodes.CycleNodeRequest); q.Namespace == f.namespace {
			walk(f, walked.requests, request.Transitions, f.seen.requests, q.UID, q.Status.Phase)
		}
	})
	handle(&nodes.CycleNodeStatus{}, func(o client.Object, _ bool) {
		if s := o.(*nodes.CycleNodeStatus); s.Namespace == f.namespace {
			walk(f, walked.statuses, status.Transitions, f.seen.statuses, s.UID, s.Status.Phase)
		}
	})
	if !c.WaitForCacheSync(ctx) {
		f.t.Fatal("the watches have not begun")
	}
}

// walk takes note of a phase, and checks that the table has the way to it.
func walk[P ~string](f *fixture, all map[string]bool, table map[P][]P, last map[types.UID]P, uid types.UID, phase P) {
	from := last[uid]
	if from == phase {
		return
	}
	last[uid] = phase
	if !slices.Contains(table[from], phase) {
		f.t.Errorf("from phase %q to %q", from, phase)
	}
	walked.Lock()
	defer walked.Unlock()
	all[string(from)+" -> "+string(phase)] = true
}

type handlers struct{ changed, deleted func(any) }

func (h handlers) OnAdd(o any, _ bool) { h.changed(o) }
func (h handlers) OnUpdate(_, o any)   { h.changed(o) }
func (h handlers) OnDelete(o any)      { h.deleted(o) }

// request makes a request for all nodes of the group.
func (f *fixture) request(name string, change func(*nodes.CycleNodeRequestSpec)) *nodes.CycleNodeRequest {
	f.t.Helper()
	q := &nodes.CycleNodeRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
		Spec: nodes.CycleNodeRequestSpec{
			NodeGroupName: f.namespace,
			Selector:      metav1.LabelSelector{MatchLabels: map[string]string{"group": f.namespace}},
		},
	}
	if change != nil {
		change(&q.Spec)
	}
	if err := f.Create(f.t.Context(), q); err != nil {
		f.t.Fatal(err)
	}
	return q
}

func (f *fixture) await(q *nodes.CycleNodeRequest, what string, ok func(*nodes.CycleNodeRequest) bool) {
	f.t.Helper()
	clustertest.Within(f.t, f.limit(), func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(q), q); err != nil {
			return err
		}
		if !ok(q) {
			return fmt.Errorf("request %s is not %s: %+v", q.Name, what, q.Status)
		}
		return nil
	})
}

// limit is how long a cycle may take on a loaded machine, where other cycles go on at the same time.
func (f *fixture) limit() time.Duration {
	return 2*time.Minute + time.Duration(f.size)*30*time.Second
}

// ends waits until the request has ended, and checks that what it says is true.
func (f *fixture) ends(q *nodes.CycleNodeRequest, want nodes.RequestPhase) {
	f.t.Helper()
	f.await(q, "ended", func(q *nodes.CycleNodeRequest) bool { return controller.Ended(q.Status.Phase) })
	if want != "" && q.Status.Phase != want {
		f.t.Errorf("request %s is %s: %s", q.Name, q.Status.Phase, q.Status.Message)
	}
	f.truthful(q)
	f.letGo(q)
}

// letGo waits until nothing keeps the request and its statuses from being deleted, also without the controllers.
func (f *fixture) letGo(q *nodes.CycleNodeRequest) {
	f.t.Helper()
	f.await(q, "let go", func(q *nodes.CycleNodeRequest) bool { return len(q.Finalizers) == 0 })
	clustertest.Eventually(f.t, func(ctx context.Context) error {
		var list nodes.CycleNodeStatusList
		if err := f.List(ctx, &list, client.InNamespace(f.namespace)); err != nil {
			return err
		}
		for _, s := range list.Items {
			if s.Spec.RequestUID == q.UID && len(s.Finalizers) > 0 {
				return fmt.Errorf("status %s (%s) has finalizers %q", s.Name, s.Status.Phase, s.Finalizers)
			}
		}
		return nil
	})
}

// truthful checks a cycle: Successful means that each selected instance is terminated, its Node gone, and that there
// are as many Ready nodes as before; Failed means that the group is whole. In both cases no instance is detached and
// forgotten, none was terminated that was not selected, and there were never fewer Ready nodes than before minus the
// concurrency.
func (f *fixture) truthful(q *nodes.CycleNodeRequest) {
	f.t.Helper()
	fail := func(format string, args ...any) {
		f.t.Helper()
		f.t.Errorf("request %s, %s (%s): "+format, append([]any{q.Name, q.Status.Phase, q.Status.Message}, args...)...)
	}
	g, members, list := f.now()
	for _, n := range q.Status.NodesToTerminate {
		f.selected[n.ProviderID] = true
		_, exists := members[n.ProviderID]
		node := list[n.ProviderID]
		if q.Status.Phase == nodes.RequestSuccessful && (exists || node != nil) {
			fail("node %s: instance %t, Node %t", n.Name, exists, node != nil)
		}
		if n.State == nodes.NodeCycled && (exists || node != nil) {
			fail("node %s is Cycled: instance %t, Node %t", n.Name, exists, node != nil)
		}
	}
	ready := 0
	for id, i := range members {
		node := list[id]
		switch {
		case i.State == nodes.InstanceInService && node != nil && controller.IsReady(node):
			ready++
		case i.State == nodes.InstanceRunning || i.State == nodes.InstanceDetaching:
			fail("instance %s is %s", id, i.State)
		}
		if node != nil && (node.Spec.Unschedulable || node.Annotations[controller.AnnotationClaim] != "") {
			fail("node %s is cordoned (%t) or claimed (%s)", node.Name, node.Spec.Unschedulable,
				node.Annotations[controller.AnnotationClaim])
		}
		if node != nil && len(controller.ProtectedBy(node)) > 0 {
			fail("node %s is protected from autoscalers: %v", node.Name, node.Annotations)
		}
	}
	if ready < f.size {
		fail("%d of %d nodes are Ready: %+v", ready, f.size, g.Status)
	}
	f.seen.mu.Lock()
	defer f.seen.mu.Unlock()
	for id := range f.seen.terminated {
		if !f.selected[id] {
			fail("instance %s was terminated, but not selected", id)
		}
	}
	for id := range f.seen.detached {
		if !f.selected[id] {
			fail("instance %s was detached, but not selected", id)
		}
	}
	concurrency := int(q.Spec.CycleSettings.Concurrency)
	if concurrency == 0 {
		concurrency = len(q.Status.NodesToTerminate)
	}
	f.concurrency = max(f.concurrency, concurrency)
	if f.seen.fewest < f.size-f.concurrency {
		fail("there were only %d Ready nodes of %d, concurrency %d", f.seen.fewest, f.size, f.concurrency)
	}
}

// now reads the group with its instances, and its nodes, by provider ID.
func (f *fixture) now() (*nodes.SimulatedNodeGroup, map[string]nodes.SimulatedInstance, map[string]*corev1.Node) {
	f.t.Helper()
	g := &nodes.SimulatedNodeGroup{}
	if err := f.Get(f.t.Context(), client.ObjectKey{Name: f.namespace}, g); err != nil {
		f.t.Fatal(err)
	}
	members := map[string]nodes.SimulatedInstance{}
	for _, i := range g.Status.Instances {
		members[i.ProviderID] = i
	}
	var list corev1.NodeList
	if err := f.List(f.t.Context(), &list, client.MatchingLabels{"group": f.namespace}); err != nil {
		f.t.Fatal(err)
	}
	all := map[string]*corev1.Node{}
	for i := range list.Items {
		all[list.Items[i].Spec.ProviderID] = &list.Items[i]
	}
	return g, members, all
}

// atOnce runs subtests, eight at a time: they wait most of the time.
func atOnce(t *testing.T, tests []subtest) {
	limit := make(chan struct{}, 8)
	var running sync.WaitGroup
	for _, test := range tests {
		limit <- struct{}{}
		running.Go(func() {
			defer func() { <-limit }()
			t.Run(test.name, test.run)
		})
	}
	running.Wait()
}

type subtest struct {
	name string
	run  func(*testing.T)
}

func concurrently(n int64) func(*nodes.CycleNodeRequestSpec) {
	return func(s *nodes.CycleNodeRequestSpec) { s.CycleSettings.Concurrency = n }
}

func TestCycle(t *testing.T) {
	for _, test := range []struct {
		size        int
		concurrency int64
	}{{2, 1}, {5, 2}, {20, 0}} {
		t.Run(fmt.Sprintf("%d nodes, %d at a time", test.size, test.concurrency), func(t *testing.T) {
			f := newFixture(t, test.size, nil)
			p := f.start(limits(), false, nil)
			q := f.request("all", concurrently(test.concurrency))
			f.ends(q, nodes.RequestSuccessful)
			if q.Status.Progress != fmt.Sprintf("%[1]d/%[1]d", test.size) || len(q.Status.CurrentNodes) > 0 {
				t.Errorf("%+v", q.Status)
			}
			t.Logf("%d writes, %s", p.count(), q.Status.FinishedAt.Sub(q.CreationTimestamp.Time))
			f.announced(q)
		})
	}
}

// newProvider makes the simulated provider.
func newProvider(to *rest.Config) (provider.Provider, error) {
	c, err := client.NewWithWatch(to, client.Options{Scheme: newScheme()})
	if err != nil {
		return nil, err
	}
	return simulated.New(c), nil
}

// announced checks the metrics and events of a Successful request.
func (f *fixture) announced(q *nodes.CycleNodeRequest) {
	f.t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			values[family.GetName()+" "+strings.Join(labels, " ")] = m.GetCounter().GetValue() +
				m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"trommel_node_cycling_nodes_cycled_total " + f.namespace:             float64(f.size),
		"trommel_node_cycling_requests Successful":                           1,
		"trommel_node_cycling_requests Healing":                              0,
		"trommel_node_cycling_phase_seconds CycleNodeRequest Pending":        1,
		"trommel_node_cycling_phase_seconds CycleNodeStatus TerminatingNode": float64(f.size),
	} {
		if got, ok := values[name]; !ok || got != want {
			f.t.Errorf("metric %s is %v, want %v", name, got, want)
		}
	}
	clustertest.Eventually(f.t, func(ctx context.Context) error { // events are written in the background
		var list eventsv1.EventList
		if err := f.List(ctx, &list, client.InNamespace(f.namespace)); err != nil {
			return err
		}
		reasons := map[string]bool{}
		for _, e := range list.Items {
			reasons[e.Regarding.Kind+" "+e.Reason] = true
		}
		for _, want := range []string{
			"CycleNodeRequest Pending", "CycleNodeRequest ScalingUp", "CycleNodeRequest Successful",
			"CycleNodeStatus DrainingPods", "CycleNodeStatus Successful",
		} {
			if !reasons[want] {
				return fmt.Errorf("no event %s: %v", want, reasons)
			}
		}
		return nil
	})
}
