package manager

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/internal/notify"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/controller/observe"
)

func policyGroup(change func(*nodes.NodeGroup)) *nodes.NodeGroup {
	g := &nodes.NodeGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "policy"},
		Spec: nodes.NodeGroupSpec{Request: nodes.CycleNodeRequestSpec{
			NodeGroupName: "workers", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}},
		}},
	}
	change(g)
	return g
}

// TestGroupDefinition lets the API server judge NodeGroups by their definition.
func TestGroupDefinition(t *testing.T) {
	c := as("")
	for name, row := range map[string]struct {
		change func(*nodes.NodeGroup)
		want   string
	}{
		"as it is":                {func(*nodes.NodeGroup) {}, ""},
		"a name of 40 characters": {func(g *nodes.NodeGroup) { g.Name = strings.Repeat("a", 40) }, ""},
		"a name of 41 characters": {func(g *nodes.NodeGroup) { g.Name = strings.Repeat("a", 41) },
			"the name must have at most 40 characters"},
		"cycles": {func(g *nodes.NodeGroup) {
			g.Spec.Mode, g.Spec.Request.CycleSettings.Concurrency = nodes.ModeCycle, 1
		}, ""},
		"cycles all at once": {func(g *nodes.NodeGroup) { g.Spec.Mode = nodes.ModeCycle },
			"mode Cycle needs request.cycleSettings.concurrency"},
		"an unknown mode": {func(g *nodes.NodeGroup) { g.Spec.Mode = "Hope" }, `supported values: "Report", "Cycle"`},
		"named nodes": {func(g *nodes.NodeGroup) { g.Spec.Request.NodeNames = []string{"a"} },
			"nodeNames are chosen by the controller"},
		"restore": {func(g *nodes.NodeGroup) { g.Spec.Request.Restore = true }, "restore is for requests by hand"},
		"an empty selector": {func(g *nodes.NodeGroup) { g.Spec.Request.Selector = metav1.LabelSelector{} },
			"the selector must not be empty"},
		"two may fail":    {func(g *nodes.NodeGroup) { g.Spec.MaxFailedRequests = 2 }, ""},
		"eleven may fail": {func(g *nodes.NodeGroup) { g.Spec.MaxFailedRequests = 11 }, "less than or equal to 10"},
	} {
		if err := answered(c.Create(t.Context(), policyGroup(row.change), client.DryRunAll), row.want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// observed is a fixture whose managers watch NodeGroups, with the rights of the manifests there.
func observed(t *testing.T, size int) *fixture {
	f := newFixture(t, size, func(g *nodes.SimulatedNodeGroup) { g.Spec.Template.Version = "v1" })
	f.observes = true
	if err := f.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "observer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "trommel-node-observer"},
		Subjects: []rbacv1.Subject{
			{Kind: "ServiceAccount", Name: "node-cycling-controllers", Namespace: "trommel-nodes"},
		},
	}); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) nodeGroup(mode nodes.NodeGroupMode) *nodes.NodeGroup {
	f.t.Helper()
	g := &nodes.NodeGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "workers"},
		Spec: nodes.NodeGroupSpec{Mode: mode, Request: nodes.CycleNodeRequestSpec{
			NodeGroupName: f.namespace,
			Selector:      metav1.LabelSelector{MatchLabels: map[string]string{"group": f.namespace}},
			CycleSettings: nodes.CycleSettings{Concurrency: 1},
		}},
	}
	clustertest.Eventually(f.t, func(ctx context.Context) error { return f.Create(ctx, g) })
	return g
}

func (f *fixture) says(g *nodes.NodeGroup, message string) {
	f.t.Helper()
	clustertest.Within(f.t, f.limit(), func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
			return err
		}
		if !strings.Contains(g.Status.Message, message) {
			return fmt.Errorf("it says %q, not %q", g.Status.Message, message)
		}
		return nil
	})
}

func (f *fixture) requestsOf(g *nodes.NodeGroup) []nodes.CycleNodeRequest {
	f.t.Helper()
	var list nodes.CycleNodeRequestList
	err := f.List(f.t.Context(), &list, client.InNamespace(f.namespace),
		client.MatchingLabels{observe.LabelGroup: string(g.UID)})
	if err != nil {
		f.t.Fatal(err)
	}
	return list.Items
}

func looking() controller.Limits {
	return short(func(l *controller.Limits) { l.Observe = 50 * time.Millisecond })
}

// TestObserver changes the template of a group that is only watched, and then has its nodes replaced. A webhook hears
// of it.
func TestObserver(t *testing.T) {
	var mu sync.Mutex
	var heard []string
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body := make([]byte, 1000)
		n, _ := r.Body.Read(body)
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, string(body[:n]))
	}))
	t.Cleanup(hook.Close)
	f := observed(t, 2)
	f.notify = &notify.Options{
		URL: hook.URL, Reasons: []string{"Outdated", "RequestMade", "Successful"},
		Template: "{{.Kind}} {{.Name}} {{.Reason}}",
	}
	f.start(looking(), false, nil)
	g := f.nodeGroup(nodes.ModeReport)
	f.says(g, "no instance is out of date")
	before := f.nodeNames()
	f.change(func(s *nodes.SimulatedNodeGroupSpec) { s.Template.Version = "v2" })
	f.says(g, "2 of 2 instances are out of date")
	if list := f.requestsOf(g); len(list) > 0 || g.Status.Outdated != 2 ||
		!slices.Equal(g.Status.OutdatedNodes, before) {
		t.Errorf("%+v; requests %+v", g.Status, list)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
			return err
		}
		g.Spec.Mode = nodes.ModeCycle
		return f.Update(ctx, g)
	})
	f.says(g, "no instance is out of date")
	list := f.requestsOf(g)
	if len(list) != 1 || g.Status.Request != list[0].Name || g.Status.Instances != 2 {
		t.Fatalf("%d requests: %+v", len(list), g.Status)
	}
	f.ends(&list[0], nodes.RequestSuccessful)
	if now := f.nodeNames(); slices.Contains(now, before[0]) || slices.Contains(now, before[1]) || len(now) != 2 {
		t.Errorf("the nodes are %v, before %v", now, before)
	}
	clustertest.Eventually(t, func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		for _, want := range []string{"NodeGroup workers Outdated", "NodeGroup workers RequestMade",
			"CycleNodeRequest " + list[0].Name + " Successful", "CycleNodeStatus " +
				controller.StatusName(&list[0], list[0].Status.NodesToTerminate[0].ProviderID) + " Successful"} {
			if !slices.Contains(heard, want) {
				return fmt.Errorf("no %q in %q", want, heard)
			}
		}
		return nil
	})
}

// TestObserverStops: after a request that failed nothing is replaced until a user has looked at it.
func TestObserverStops(t *testing.T) {
	f := observed(t, 1)
	f.change(func(s *nodes.SimulatedNodeGroupSpec) {
		s.Template.Version = "v2"
		s.Faults = []nodes.SimulatedFault{{Name: "none", Type: nodes.FaultNoCapacity}}
	})
	l := looking()
	l.ScaleUp = 2 * time.Second
	f.start(l, false, nil)
	g := f.nodeGroup(nodes.ModeCycle)
	f.says(g, "no request is made while there are failed ones: workers-")
	list := f.requestsOf(g)
	if len(list) != 1 {
		t.Fatalf("%d requests", len(list))
	}
	f.change(func(s *nodes.SimulatedNodeGroupSpec) { s.Faults = nil })
	time.Sleep(20 * l.Observe)
	if n := len(f.requestsOf(g)); n != 1 {
		t.Errorf("%d requests", n)
	}
	f.selected[list[0].Status.NodesToTerminate[0].ProviderID] = true
	f.delete(&list[0])
	f.says(g, "no instance is out of date")
}

// TestObserverKilled lets the controllers die at the creation of a request, before and after it is sent: there is one.
func TestObserverKilled(t *testing.T) {
	for _, after := range []bool{false, true} {
		f := observed(t, 1)
		f.change(func(s *nodes.SimulatedNodeGroupSpec) { s.Template.Version = "v2" })
		p := f.start(looking(), after, func(_ int, r *http.Request, _ []byte) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/cyclenoderequests")
		})
		g := f.nodeGroup(nodes.ModeCycle)
		<-p.ended
		p.stop()
		f.start(looking(), false, nil)
		f.says(g, "no instance is out of date")
		if n := len(f.requestsOf(g)); n != 1 {
			t.Errorf("after %t: %d requests", after, n)
		}
	}
}
