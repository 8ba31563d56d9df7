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
	charttest.Compare(t, "../../install/chart/charts/trommel-nodes", "trommel-nodes", 27)
}

// Its values reach the controllers and the admission policy; another provider has no rights that only simulated groups
// need.
func TestChartValues(t *testing.T) {
	got := charttest.Render(t, plan.Manifest{
		Helm: "../../install/chart/charts/trommel-nodes", Release: "x", Namespace: "elsewhere",
		Values: map[string]any{
			"namespaces": []any{"ops", "platform"},
			"notify":     map[string]any{"secret": "hook", "reasons": []any{"Failed", "Outdated"}},
			"provider":   "aws", "image": "registry.example/nodes:v1", "args": []any{"--cycling-timeout=1h"},
			"serviceAccountAnnotations": map[string]any{"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/nodes"},
			"limits": map[string]any{
				"maxConcurrency": 2, "protectedGroups": []any{"a", "b"},
				"checkEndpoints": []any{"https://checks.example/"},
			},
		},
	})
	deployment := got["Deployment elsewhere/node-cycling-controllers"]
	if deployment == nil {
		t.Fatalf("no Deployment in %v", got)
	}
	text := fmt.Sprint(deployment.Object)
	for _, want := range []string{"--provider=aws", "--cycling-timeout=1h", "registry.example/nodes:v1",
		"--namespaces=ops,platform", "--check-endpoints=https://checks.example/",
		"--observe", "--notify-url-file=/etc/trommel-notify/url", "--notify-reasons=Failed,Outdated",
		"secretName:hook"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(text, "--simulate") || got["ClusterRole /trommel-simulated-nodes"] != nil {
		t.Error("there is something of simulated groups")
	}
	for _, namespace := range []string{"ops", "platform"} {
		if got["RoleBinding "+namespace+"/trommel-node-observer"] == nil {
			t.Errorf("requests cannot be made in %s", namespace)
		}
	}
	role := got["ServiceAccount elsewhere/node-cycling-controllers"].GetAnnotations()["eks.amazonaws.com/role-arn"]
	if role != "arn:aws:iam::1:role/nodes" {
		t.Errorf("role %q", role)
	}
	limits := fmt.Sprint(got["ConfigMap elsewhere/node-cycling-limits"].Object["data"])
	for _, want := range []string{
		"namespaces:ops,platform", "maxConcurrency:2", "protectedGroups:a,b", "checkEndpoints:https://checks.example/",
		"controllers:system:serviceaccount:elsewhere:node-cycling-controllers",
	} {
		if !strings.Contains(limits, want) {
			t.Errorf("no %s in %s", want, limits)
		}
	}
}
