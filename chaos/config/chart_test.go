package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/testing/charttest"
	"github.com/trommel-dev/trommel/plan"
)

// The chart and the kustomization install the same.
func TestChartIsLikeKustomization(t *testing.T) {
	charttest.Compare(t, "../../install/chart/charts/trommel-chaos", "trommel-chaos", 21)
}

// Its values reach the controllers and the admission policy.
func TestChartValues(t *testing.T) {
	got := charttest.Render(t, plan.Manifest{
		Helm: "../../install/chart/charts/trommel-chaos", Release: "x", Namespace: "elsewhere",
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
		"--delete-only", "--protected-namespaces=prod,elsewhere", "--namespace=elsewhere", "--keep=1h",
		"registry.example/chaos:v1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if got["ClusterRole /trommel-disruption-injector"] != nil {
		t.Error("there is a role for faults of nodes")
	}
	nets := fmt.Sprint(got["ConfigMap elsewhere/disruption-safety-nets"].Object["data"])
	if !strings.Contains(nets, "deleteOnly:true") || !strings.Contains(nets, "protectedNamespaces:prod,elsewhere") {
		t.Error(nets)
	}
}
