package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/objects"
	"github.com/trommel-dev/trommel/plan"
)

// render reads the kustomization or renders the chart.
func render(t *testing.T, m plan.Manifest) map[string]*unstructured.Unstructured {
	t.Helper()
	list, _, err := objects.Manifest("suite.yaml", m, "1.36.3")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*unstructured.Unstructured{}
	for _, u := range list {
		if strings.HasPrefix(u.GetKind(), "ValidatingAdmissionPolicy") {
			u.SetNamespace("") // newer than what tells the scopes of types without a cluster
		}
		all[fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())] = u
	}
	return all
}

// The chart and the kustomization install the same.
func TestChartIsLikeKustomization(t *testing.T) {
	want := render(t, plan.Manifest{Path: "."})
	delete(want, "Namespace /trommel-chaos") // Helm creates it
	got := render(t, plan.Manifest{Helm: "../chart", Release: "trommel-chaos", Namespace: "trommel-chaos"})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-kustomization +chart)\n%s", diff)
	}
	if len(got) < 14 {
		t.Errorf("only %d objects", len(got))
	}
}

// Its values reach the controllers and the admission policy.
func TestChartValues(t *testing.T) {
	got := render(t, plan.Manifest{
		Helm: "../chart", Release: "x", Namespace: "elsewhere",
		Values: map[string]any{
			"nodeFaults": false, "image": "registry.example/chaos:v1", "args": []any{"--keep=1h"},
			"safetyNets": map[string]any{"deleteOnly": true, "protectedNamespaces": []any{"prod"}},
		},
	})
	deployment := got["Deployment elsewhere/disruption-controllers"]
	if deployment == nil {
		t.Fatalf("no Deployment in %v", got)
	}
	text := fmt.Sprint(deployment.Object)
	for _, want := range []string{
		"--delete-only", "--protected-namespaces=prod", "--namespace=elsewhere", "--keep=1h", "registry.example/chaos:v1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if got["ClusterRole /trommel-disruption-injector"] != nil {
		t.Error("there is a role for faults of nodes")
	}
	nets := fmt.Sprint(got["ConfigMap elsewhere/disruption-safety-nets"].Object["data"])
	if !strings.Contains(nets, "deleteOnly:true") || !strings.Contains(nets, "protectedNamespaces:prod") {
		t.Error(nets)
	}
}
