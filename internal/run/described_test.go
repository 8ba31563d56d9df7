package run

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func TestDescribeControllers(t *testing.T) {
	suite := &plan.Suite{Controllers: []plan.Controller{
		{Name: "db", APIServer: "apiserver-2", Build: &plan.Build{}}, {Name: "old", Binary: "old"},
	}}
	binaries := []builds.Binary{{Path: "/bin/db", Manifest: &wire.Manifest{Points: []wire.CompiledPoint{
		{Module: "k8s.io/client-go", Version: "v0.36.3"},
		{Module: "sigs.k8s.io/controller-runtime", Version: "v0.25.2"},
	}}}, {Path: "/bin/old"}}
	const variable = "KUBE_FEATURE_WatchListClient"
	for _, test := range []struct {
		name      string
		container corev1.Container
		given     cluster.Given
		watchList bool
	}{
		{name: "as its version does", watchList: true},
		{name: "the Deployment switches it off", container: corev1.Container{
			Env: []corev1.EnvVar{{Name: variable, Value: "false"}},
		}},
		{name: "the plan does, which no object shows", given: cluster.Given{Env: map[string]string{variable: "false"}}},
		{name: "the plan counts more than the Deployment", container: corev1.Container{
			Env: []corev1.EnvVar{{Name: variable, Value: "true"}},
		}, given: cluster.Given{Env: map[string]string{variable: "false"}}},
		{name: "by arguments", container: corev1.Container{
			Args: []string{"--feature-gates=WatchListClient=true"},
		}, given: cluster.Given{Args: []string{"--feature-gates=WatchListClient=false"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := []record.Controller{
				{Name: "db", Hooks: true, APIServer: "apiserver-2", Replicas: 1, ClientGo: "v0.36.3",
					ControllerRuntime: "v0.25.2", WatchList: test.watchList},
				{Name: "old", APIServer: "apiserver-1"},
			}
			got := describeControllers(suite, binaries, &installed{
				own: map[string][]*unstructured.Unstructured{"db": {{Object: map[string]any{
					"kind": "Deployment", "spec": map[string]any{"template": map[string]any{}},
				}}}},
				containers: map[string]*corev1.Container{"db": &test.container},
				given:      map[string]cluster.Given{"db": test.given},
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
