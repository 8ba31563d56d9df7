package deploy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/plan"
)

var (
	off      = false
	controls = plan.Build{ControlPlane: "kube-scheduler"}
)

// switching switches the controller's streaming lists off, and has its caches checked.
func switching() *plan.Plan {
	return &plan.Plan{CheckCaches: true, Actions: []plan.Action{
		{Type: plan.ReconnectController, Target: "op", Reconnecting: plan.Reconnecting{WatchList: &off}},
	}}
}

// Regression: what a plan switched was in the pod template, whose hash then differed from that of runs without faults.
func TestPlansSwitchNothingInObjects(t *testing.T) {
	for _, test := range []struct {
		name       string
		controller plan.Controller
		plan       *plan.Plan
		to         *Coordinator
		want       cluster.Given
	}{
		{name: "a plan that switches nothing", plan: &plan.Plan{}, want: cluster.Given{Env: map[string]string{}}},
		{
			name: "hooks", plan: &plan.Plan{}, to: &Coordinator{"unix:///s", "t"},
			want: cluster.Given{Env: map[string]string{
				"TROMMEL_COORDINATOR": "unix:///s", "TROMMEL_TOKEN": "t", "TROMMEL_IDENTITY": "op",
			}},
		},
		{
			name: "by variables", plan: switching(),
			want: cluster.Given{Env: map[string]string{
				"KUBE_FEATURE_WatchListClient": "false", "KUBE_CACHE_MUTATION_DETECTOR": "true",
			}},
		},
		{
			name: "of another controller", plan: &plan.Plan{Actions: []plan.Action{
				{Type: plan.StartController, Target: "other", Reconnecting: plan.Reconnecting{WatchList: &off}},
			}},
			want: cluster.Given{Env: map[string]string{}},
		},
		{
			name: "the suite says it, for all runs", controller: plan.Controller{WatchList: &off}, plan: switching(),
			want: cluster.Given{Env: map[string]string{"KUBE_CACHE_MUTATION_DETECTOR": "true"}},
		},
		{
			name: "a component of the control plane takes arguments", controller: plan.Controller{Build: &controls},
			plan: switching(),
			want: cluster.Given{
				Env: map[string]string{
					"KUBE_FEATURE_WatchListClient": "false", "KUBE_CACHE_MUTATION_DETECTOR": "true",
				},
				Args: []string{"--feature-gates=WatchListClient=false"},
			},
		},
		{
			name:       "a controller with an argument that sets it",
			controller: plan.Controller{Args: []string{"--feature-gates", "A=true,WatchListClient=true"}},
			plan:       switching(),
			want: cluster.Given{
				Env: map[string]string{
					"KUBE_FEATURE_WatchListClient": "false", "KUBE_CACHE_MUTATION_DETECTOR": "true",
				},
				Args: []string{"--feature-gates=WatchListClient=false"},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			for image, manifests := range map[string][]*unstructured.Unstructured{
				"": nil, "op:1": {object(t, manager)},
			} {
				c := test.controller
				c.Name, c.Image = "op", image
				test.want.Container = "controller"
				if image != "" {
					test.want.Container = "manager"
				}
				own, _, err := Controller(&c, manifests, programs)
				if err != nil {
					t.Fatal(err)
				}
				container, err := Container(&c, own)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, Given(&c, container, test.plan, test.to)); diff != "" {
					t.Errorf("image %q: given (-want +got):\n%s", image, diff)
				}
			}
		})
	}
}

// The suite's own setting is that of all runs, so it is in the Deployment.
func TestWatchListOfTheSuite(t *testing.T) {
	for _, test := range []struct {
		name       string
		controller plan.Controller
		want       []any
	}{
		{
			name: "a component", controller: plan.Controller{Build: &controls},
			want: []any{"--feature-gates=WatchListClient=false"},
		},
		{
			name:       "an argument that sets it",
			controller: plan.Controller{Args: []string{"--feature-gates", "A=true,WatchListClient=true"}},
			want: []any{"--feature-gates", "A=true,WatchListClient=true",
				"--feature-gates=WatchListClient=false"},
		},
		{
			name:       "another feature",
			controller: plan.Controller{Args: []string{"--feature-gates=A=true"}},
			want:       []any{"--feature-gates=A=true"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.controller.Name, test.controller.WatchList = "op", &off
			own, _, err := Controller(&test.controller, nil, programs)
			if err != nil {
				t.Fatal(err)
			}
			spec, _, _ := unstructured.NestedMap(own[len(own)-1].Object, "spec")
			if template, ok, _ := unstructured.NestedMap(spec, "template", "spec"); ok {
				spec = template
			}
			containers, _, _ := unstructured.NestedSlice(spec, "containers")
			if diff := cmp.Diff(test.want, containers[0].(map[string]any)["args"]); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}
