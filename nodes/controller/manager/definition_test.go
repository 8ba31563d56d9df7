package manager

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

// TestRequestDefinition lets the API server judge requests by their definition: for each of its rules, what is refused
// and what is let through.
func TestRequestDefinition(t *testing.T) {
	spec := func(change func(*nodes.CycleNodeRequestSpec)) func(*nodes.CycleNodeRequest) {
		return func(q *nodes.CycleNodeRequest) { change(&q.Spec) }
	}
	restore := func(change func(*nodes.CycleNodeRequestSpec)) func(*nodes.CycleNodeRequest) {
		return spec(func(s *nodes.CycleNodeRequestSpec) { s.Restore = true; change(s) })
	}
	tls := func(c nodes.TLSConfig) func(*nodes.CycleNodeRequest) {
		return spec(func(s *nodes.CycleNodeRequestSpec) {
			s.HealthChecks = []nodes.HealthCheck{{Endpoint: "https://{{ .NodeIP }}/", TLSConfig: c}}
		})
	}
	c := as("")
	for name, row := range (rows{
		"as it is":                {nil, ""},
		"a name of 52 characters": {func(q *nodes.CycleNodeRequest) { q.Name = strings.Repeat("a", 52) }, ""},
		"a name of 53 characters": {func(q *nodes.CycleNodeRequest) { q.Name = strings.Repeat("a", 53) },
			"the name must have at most 52 characters"},
		"an empty selector": {spec(func(s *nodes.CycleNodeRequestSpec) { s.Selector = metav1.LabelSelector{} }),
			"the selector must not be empty"},
		"a selector without labels": {spec(func(s *nodes.CycleNodeRequestSpec) {
			s.Selector = metav1.LabelSelector{MatchLabels: map[string]string{}}
		}), "the selector must not be empty"},
		"expressions only": {spec(func(s *nodes.CycleNodeRequestSpec) {
			s.Selector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "pool", Operator: metav1.LabelSelectorOpExists}}}
		}), ""},
		"no group":       {spec(func(s *nodes.CycleNodeRequestSpec) { s.NodeGroupName = "" }), "nodeGroupName"},
		"several groups": {spec(func(s *nodes.CycleNodeRequestSpec) { s.NodeGroupsList = []string{"b", "c"} }), ""},
		"a group without a name": {spec(func(s *nodes.CycleNodeRequestSpec) {
			s.NodeGroupsList = []string{""}
		}), "nodeGroupsList[0]"},
		"a node twice": {spec(func(s *nodes.CycleNodeRequestSpec) { s.NodeNames = []string{"a", "a"} }),
			"Duplicate value"},
		"an unknown method": {spec(func(s *nodes.CycleNodeRequestSpec) { s.CycleSettings.Method = "Hope" }),
			`supported values: "Drain", "Wait"`},
		"method Wait": {spec(func(s *nodes.CycleNodeRequestSpec) { s.CycleSettings.Method = nodes.MethodWait }), ""},
		"less than one at a time": {spec(func(s *nodes.CycleNodeRequestSpec) { s.CycleSettings.Concurrency = -1 }),
			"should be greater than or equal to 1"},
		"an endpoint that is no URL": {spec(func(s *nodes.CycleNodeRequestSpec) {
			s.HealthChecks = []nodes.HealthCheck{{Endpoint: "file:///etc/passwd"}}
		}), "should match '^https?://'"},
		"a certificate without key": {tls(nodes.TLSConfig{Certificate: "C"}), "certificate and key belong together"},
		"a key without certificate": {tls(nodes.TLSConfig{Key: "K"}), "certificate and key belong together"},
		"both":                      {tls(nodes.TLSConfig{Certificate: "C", Key: "K", RootCA: "R"}), ""},
		"restore":                   {restore(func(*nodes.CycleNodeRequestSpec) {}), ""},
		"restore, one at a time":    {restore(concurrently(1)), ""},
		"restore, two at a time":    {restore(concurrently(2)), "restore removes one node at a time"},
		"restore by force": {restore(func(s *nodes.CycleNodeRequestSpec) { s.CycleSettings.Force = true }),
			"restore and cycleSettings.force exclude each other"},
		"restore with emptyDir data": {restore(func(s *nodes.CycleNodeRequestSpec) {
			s.CycleSettings.DeleteEmptyDirData = true
		}), ""},
		"force without restore": {spec(func(s *nodes.CycleNodeRequestSpec) { s.CycleSettings.Force = true }), ""},
	}) {
		if err := answered(c.Create(t.Context(), policyRequest(row.change), client.DryRunAll), row.want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What was asked for cannot be changed afterwards.
func TestImmutable(t *testing.T) {
	admin, controllers := as(""), controllersClient(t)
	q := policyRequest(func(q *nodes.CycleNodeRequest) { q.Name = "immutable" })
	if err := admin.Create(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	s := &nodes.CycleNodeStatus{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "immutable"},
		Spec: nodes.CycleNodeStatusSpec{Request: q.Name, RequestUID: q.UID, Node: nodes.NodeRef{
			Name: "n", UID: "u", ProviderID: "simulated:///x/i-1", NodeGroupName: "x"}},
	}
	if err := controllers.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, o := range []client.Object{q, s} {
			if err := admin.Delete(context.Background(), o); err != nil {
				t.Error(err)
			}
		}
	})
	const refused = "the spec is immutable"
	for _, row := range []struct {
		name   string
		object client.Object
		change func(client.Object)
		want   string
	}{
		{"another group", q, func(o client.Object) {
			o.(*nodes.CycleNodeRequest).Spec.NodeGroupName = "other"
		}, refused},
		{"restore", q, func(o client.Object) { o.(*nodes.CycleNodeRequest).Spec.Restore = true }, refused},
		{"a label of a request", q, func(o client.Object) { o.SetLabels(map[string]string{"a": "b"}) }, ""},
		{"another instance", s, func(o client.Object) {
			o.(*nodes.CycleNodeStatus).Spec.Node.ProviderID = "simulated:///x/i-2"
		}, refused},
		{"a label of a status", s, func(o client.Object) { o.SetLabels(map[string]string{"a": "b"}) }, ""},
	} {
		changed := row.object.DeepCopyObject().(client.Object)
		row.change(changed)
		// Without the version: the controllers of other tests write, too.
		patch := client.MergeFrom(row.object)
		if err := answered(admin.Patch(t.Context(), changed, patch, client.DryRunAll), row.want); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
