package simulated_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/provider"
	"github.com/trommel-dev/trommel/nodes/provider/providertest"
	"github.com/trommel-dev/trommel/nodes/simulated"
)

var (
	shared *rest.Config
	direct client.WithWatch
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(clustertest.Run(m, embedded.Config{APIServers: 1, Nodes: -1}, func(c *embedded.Cluster) {
		shared = must(c.RESTConfig(""))
		shared.QPS = -1
		direct = must(client.NewWithWatch(shared, client.Options{Scheme: newScheme()}))
		o := must(objects.New(shared))
		for _, file := range must(filepath.Glob("../config/crd/nodes.trommel.dev_*.yaml")) {
			for _, u := range must(objects.Decode(must(os.ReadFile(file)), file)) {
				must(o.Apply(context.Background(), u))
			}
		}
	}))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), nodes.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}

// newCloud starts a cloud. Stop may be called more than once.
func newCloud(o simulated.Options, wrap func(client.WithWatch) client.WithWatch) (stop func() error, err error) {
	yes, no, grace := true, false, time.Second
	mgr, err := ctrl.NewManager(shared, ctrl.Options{
		Scheme: newScheme(), Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"},
		GracefulShutdownTimeout: &grace, Controller: config.Controller{SkipNameValidation: &yes, UsePriorityQueue: &no},
		NewClient: func(to *rest.Config, o client.Options) (client.Client, error) {
			c, err := client.NewWithWatch(to, o)
			if err != nil || wrap == nil {
				return c, err
			}
			return wrap(c), nil
		},
	})
	if err != nil {
		return nil, err
	}
	if err := simulated.Add(mgr, o); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return nil
	}), nil
}

// start runs a cloud until the end of the test.
func start(t *testing.T, o simulated.Options) {
	t.Helper()
	stop, err := newCloud(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// newGroup creates a group of a size, which is deleted at the end of the test.
func newGroup(t *testing.T, size int64, change func(*nodes.SimulatedNodeGroupSpec)) *nodes.SimulatedNodeGroup {
	t.Helper()
	g := &nodes.SimulatedNodeGroup{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "g-"},
		Spec: nodes.SimulatedNodeGroupSpec{
			DesiredCapacity: size, MaxSize: size + 1,
			Template: nodes.SimulatedTemplate{Version: "v1", Labels: map[string]string{"pool": "x"}},
		},
	}
	if change != nil {
		change(&g.Spec)
	}
	if err := direct.Create(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(direct.Delete(context.Background(), g)); err != nil {
			t.Error(err)
		}
	})
	return g
}

// await waits for a state of a group.
func await(t *testing.T, g *nodes.SimulatedNodeGroup, what string, ok func(*nodes.SimulatedNodeGroup) bool) {
	t.Helper()
	clustertest.Eventually(t, func(ctx context.Context) error {
		if err := direct.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
			return err
		}
		if !ok(g) {
			return fmt.Errorf("group %s is not %s: %+v", g.Name, what, g.Status)
		}
		return nil
	})
}

func allReady(g *nodes.SimulatedNodeGroup) bool {
	return g.Status.Ready == g.Spec.DesiredCapacity && g.Status.InService == g.Spec.DesiredCapacity
}

// change writes the group's spec.
func change(t *testing.T, g *nodes.SimulatedNodeGroup, set func(*nodes.SimulatedNodeGroupSpec)) {
	t.Helper()
	clustertest.Eventually(t, func(ctx context.Context) error {
		if err := direct.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
			return err
		}
		set(&g.Spec)
		return direct.Update(ctx, g)
	})
}

func nodesOf(t *testing.T, g *nodes.SimulatedNodeGroup) []corev1.Node {
	t.Helper()
	var list corev1.NodeList
	if err := direct.List(t.Context(), &list, client.MatchingLabels{simulated.LabelGroup: g.Name}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestContract(t *testing.T) {
	t.Parallel()
	start(t, simulated.Options{})
	providertest.Test(t, func(t *testing.T) *providertest.Fixture {
		g, other := newGroup(t, 2, nil), newGroup(t, 1, nil)
		await(t, other, "ready", allReady)
		return &providertest.Fixture{
			Provider: simulated.New(direct), Group: g.Name, Other: other.Name,
			Unknown: simulated.ProviderID(g.Name, "i-9999"),
			Throttle: func(t *testing.T, on bool) {
				change(t, g, func(s *nodes.SimulatedNodeGroupSpec) {
					s.Faults = nil
					if on {
						s.Faults = []nodes.SimulatedFault{{
							Name: "busy", Type: nodes.FaultThrottled, RetryAfter: "2s",
							Calls: []nodes.Call{
								nodes.CallDescribe, nodes.CallDetach, nodes.CallRemove, nodes.CallAttach,
								nodes.CallTerminate,
							},
						}}
					}
				})
			},
			LoseAnswer: func(t *testing.T) {
				change(t, g, func(s *nodes.SimulatedNodeGroupSpec) {
					s.Faults = []nodes.SimulatedFault{{
						Name: fmt.Sprintf("lost-%d", time.Now().UnixNano()), Type: nodes.FaultAnswerLost, Times: 1,
					}}
				})
			},
			Renew: func(t *testing.T) {
				change(t, g, func(s *nodes.SimulatedNodeGroupSpec) { s.Template.Version = "v2" })
			},
		}
	})
}

func TestNodesAreReadyByThemselves(t *testing.T) {
	t.Parallel()
	start(t, simulated.Options{})
	g := newGroup(t, 1, nil)
	await(t, g, "ready", allReady)
	began := time.Now()
	change(t, g, func(s *nodes.SimulatedNodeGroupSpec) { s.DesiredCapacity = 2 })
	await(t, g, "larger", func(g *nodes.SimulatedNodeGroup) bool { return g.Status.Ready == 2 })
	t.Logf("a Node was Ready after %v", time.Since(began))
	clustertest.Eventually(t, func(context.Context) error {
		for _, n := range nodesOf(t, g) {
			if len(n.Spec.Taints) > 0 {
				return fmt.Errorf("the Node %s has taints: %v", n.Name, n.Spec.Taints)
			}
		}
		return nil
	})
	t.Logf("and pods can be scheduled after %v", time.Since(began))
	for _, n := range nodesOf(t, g) {
		if simulated.GroupOf(n.Spec.ProviderID) != g.Name || n.Labels["pool"] != "x" ||
			n.Labels[simulated.LabelVersion] != "v1" {
			t.Errorf("Node %s: %+v", n.Name, n)
		}
	}
}

// TestFaults has the faults that calls do not tell.
func TestFaults(t *testing.T) {
	t.Parallel()
	start(t, simulated.Options{Retry: 10 * time.Millisecond})
	fault := func(of nodes.SimulatedFaultType, times int64) func(*nodes.SimulatedNodeGroupSpec) { // 0: always
		return func(s *nodes.SimulatedNodeGroupSpec) {
			s.Faults = []nodes.SimulatedFault{{Name: "f", Type: of, Times: times}}
		}
	}
	end := func(s *nodes.SimulatedNodeGroupSpec) { s.Faults = nil }

	t.Run("no capacity, three times", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, 2, fault(nodes.FaultNoCapacity, 3))
		await(t, g, "ready", allReady)
		if len(g.Status.Faults) != 1 || g.Status.Faults[0].Times != 3 || g.Status.Message != "" {
			t.Errorf("the status is %+v", g.Status)
		}
	})
	t.Run("no capacity until the fault goes", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, 1, fault(nodes.FaultNoCapacity, 0))
		await(t, g, "without capacity", func(g *nodes.SimulatedNodeGroup) bool {
			return strings.Contains(g.Status.Message, "no capacity") && g.Status.Started == 0
		})
		change(t, g, end)
		await(t, g, "ready", allReady)
	})
	t.Run("a Node that is not Ready until the fault goes", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, 2, fault(nodes.FaultNeverReady, 1))
		await(t, g, "half ready", func(g *nodes.SimulatedNodeGroup) bool {
			return g.Status.InService == 2 && g.Status.Ready == 1 && len(nodesOf(t, g)) == 2
		})
		change(t, g, end)
		await(t, g, "ready", allReady)
	})
	t.Run("no Node until the fault goes", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, 2, fault(nodes.FaultNoNode, 1))
		await(t, g, "half ready", func(g *nodes.SimulatedNodeGroup) bool {
			return g.Status.InService == 2 && g.Status.Ready == 1 && len(nodesOf(t, g)) == 1
		})
		change(t, g, end)
		await(t, g, "ready", allReady)
	})
	t.Run("a terminate that hangs", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, 1, fault(nodes.FaultHangs, 1))
		await(t, g, "ready", allReady)
		id := g.Status.Instances[0].ProviderID
		if err := simulated.New(direct).Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		await(t, g, "larger", func(g *nodes.SimulatedNodeGroup) bool {
			return allReady(g) && len(g.Status.Instances) == 2 && g.Status.Instances[0].Fault == "f" &&
				g.Status.Instances[0].State == nodes.InstanceTerminating && len(nodesOf(t, g)) == 2
		})
		change(t, g, end)
		await(t, g, "as before", func(g *nodes.SimulatedNodeGroup) bool {
			return allReady(g) && len(g.Status.Instances) == 1 && len(nodesOf(t, g)) == 1
		})
	})
	t.Run("delays", func(t *testing.T) {
		t.Parallel()
		const delay = 300 * time.Millisecond
		text := chaos.DurationOf(delay)
		g := newGroup(t, 1, func(s *nodes.SimulatedNodeGroupSpec) {
			s.Delays = nodes.SimulatedDelays{Launch: text, Ready: text, Detach: text, Terminate: text}
		})
		await(t, g, "ready", allReady)
		i := g.Status.Instances[0]
		if d := time.Since(g.CreationTimestamp.Time); d < 2*delay {
			t.Errorf("an instance was started in %v, with delays of %v", d, 2*delay)
		}
		p := simulated.New(direct)
		for _, call := range []func() error{
			func() error { return p.Detach(t.Context(), g.Name, i.ProviderID) },
			func() error {
				await(t, g, "detached", func(g *nodes.SimulatedNodeGroup) bool { return g.Status.Detached == 1 })
				return p.Terminate(t.Context(), i.ProviderID)
			},
		} {
			if err := call(); err != nil {
				t.Fatal(err)
			}
			began := time.Now() // of what cannot be over before the delay, which began a little earlier
			clustertest.Eventually(t, func(ctx context.Context) error {
				list, err := p.Instances(ctx, i.ProviderID)
				if err == nil && len(list) == 1 && list[0].State != provider.Running {
					return fmt.Errorf("the instance is %s", list[0].State)
				}
				return err
			})
			if d := time.Since(began); d < delay/2 {
				t.Errorf("it was over after %v", d)
			}
		}
		await(t, g, "replaced", func(g *nodes.SimulatedNodeGroup) bool {
			return allReady(g) && len(g.Status.Instances) == 1
		})
	})
}

func TestOldCallsAndGroups(t *testing.T) {
	t.Parallel()
	start(t, simulated.Options{KeepCalls: time.Millisecond})
	g := newGroup(t, 1, nil)
	await(t, g, "ready", allReady)
	p := simulated.New(direct)
	if err := p.Detach(t.Context(), g.Name, simulated.ProviderID(g.Name, "i-9")); err != nil {
		t.Fatal(err)
	}
	call := func(name string) *nodes.ProviderCall {
		return &nodes.ProviderCall{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"},
			Spec: nodes.ProviderCallSpec{
				Call: nodes.CallDetach, NodeGroupName: name, ProviderID: "simulated:///x/i-1",
			},
		}
	}
	orphan := call("no-group-" + g.Name)
	if err := direct.Create(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	none := func(of string) {
		clustertest.Eventually(t, func(ctx context.Context) error {
			var calls nodes.ProviderCallList
			if err := direct.List(ctx, &calls); err != nil {
				return err
			}
			for _, c := range calls.Items {
				if c.Spec.NodeGroupName == of {
					return fmt.Errorf("the call %s is still there: %+v", c.Name, c.Status)
				}
			}
			return nil
		})
	}
	none(g.Name)
	none(orphan.Spec.NodeGroupName)
	if err := direct.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(context.Context) error {
		if n := nodesOf(t, g); len(n) > 0 {
			return fmt.Errorf("%d Nodes of the deleted group are left", len(n))
		}
		return nil
	})
}

func TestValidation(t *testing.T) {
	t.Parallel()
	valid := func() *nodes.SimulatedNodeGroup {
		return &nodes.SimulatedNodeGroup{
			ObjectMeta: metav1.ObjectMeta{Name: "valid"},
			Spec:       nodes.SimulatedNodeGroupSpec{DesiredCapacity: 1, MaxSize: 2},
		}
	}
	faults := func(f nodes.SimulatedFault) func(*nodes.SimulatedNodeGroup) {
		f.Name = "f"
		return func(g *nodes.SimulatedNodeGroup) { g.Spec.Faults = []nodes.SimulatedFault{f} }
	}
	attach, describe := []nodes.Call{nodes.CallAttach}, []nodes.Call{nodes.CallDescribe}
	for _, tt := range []struct {
		change func(*nodes.SimulatedNodeGroup)
		want   string // empty: valid
	}{
		{func(*nodes.SimulatedNodeGroup) {}, ""},
		{func(g *nodes.SimulatedNodeGroup) { g.Name = strings.Repeat("x", 41) }, "at most 40 characters"},
		{func(g *nodes.SimulatedNodeGroup) { g.Name = "a.b" }, "must not contain dots"},
		{func(g *nodes.SimulatedNodeGroup) { g.Spec.DesiredCapacity = 3 }, "must be from minSize to maxSize"},
		{func(g *nodes.SimulatedNodeGroup) { g.Spec.Template.Address = "here" }, "must be an IP address"},
		{func(g *nodes.SimulatedNodeGroup) { g.Spec.Template.Address = "127.0.0.1" }, ""},
		{faults(nodes.SimulatedFault{Type: nodes.FaultThrottled, RetryAfter: "1s"}), ""},
		{faults(nodes.SimulatedFault{Type: nodes.FaultError, RetryAfter: "1s"}), "retryAfter belongs to"},
		{faults(nodes.SimulatedFault{Type: nodes.FaultNoNode, Calls: attach}), "calls belong to"},
		{faults(nodes.SimulatedFault{Type: nodes.FaultHangs, Calls: attach}), "only Detach, Remove and"},
		{faults(nodes.SimulatedFault{Type: nodes.FaultAnswerLost, Calls: describe}), "Describe can"},
		{faults(nodes.SimulatedFault{Type: nodes.FaultError, Calls: describe}), ""},
		{faults(nodes.SimulatedFault{Type: nodes.FaultError, Calls: describe, Times: 1}), "Describe can"},
		{faults(nodes.SimulatedFault{Type: nodes.FaultNoCapacity, ProviderID: "x"}), "concerns no instance"},
		{faults(nodes.SimulatedFault{Type: "Fire"}), "Unsupported value"},
	} {
		g := valid()
		tt.change(g)
		err := direct.Create(t.Context(), g, client.DryRunAll)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v, want %q", g.Spec, err, tt.want)
		}
	}
	call := &nodes.ProviderCall{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec:       nodes.ProviderCallSpec{Call: nodes.CallDescribe, NodeGroupName: "g", ProviderID: "i"},
	}
	if err := direct.Create(t.Context(), call, client.DryRunAll); err == nil ||
		!strings.Contains(err.Error(), "must be Detach, Remove, Attach or Terminate") {
		t.Errorf("a call Describe: %v", err)
	}
}

// TestCategoriesAreNoResources: a category nodes made `kubectl get nodes` list everything but Nodes.
func TestCategoriesAreNoResources(t *testing.T) {
	t.Parallel()
	_, lists, err := must(discovery.NewDiscoveryClientForConfig(shared)).ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	names, categories := map[string]bool{}, map[string]string{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			if list.GroupVersion != nodes.GroupVersion.String() {
				names[r.Name], names[r.SingularName] = true, true
				continue
			}
			for _, c := range r.Categories {
				categories[c] = r.Name
			}
		}
	}
	if len(categories) == 0 {
		t.Error("the resources have no category")
	}
	for category, of := range categories {
		if names[category] {
			t.Errorf("the category %s of %s is the name of a resource", category, of)
		}
	}
}
