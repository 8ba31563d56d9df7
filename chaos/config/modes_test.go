package config_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/testing/charttest"
	"github.com/trommel-dev/trommel/plan"
)

func modeChart(mode string, values map[string]any) plan.Manifest {
	all := map[string]any{"mode": mode}
	maps.Copy(all, values)
	return plan.Manifest{
		Helm: "../../install/chart/charts/trommel-chaos", Release: "trommel-chaos", Namespace: "trommel-chaos",
		Values: all,
	}
}

// ofWebhook are the objects that only the webhook of a parent needs.
var ofWebhook = []string{
	"ClusterRole /trommel-disruption-webhook", "ClusterRoleBinding /trommel-disruption-webhook",
	"NetworkPolicy trommel-chaos/disruption-webhook", "Role trommel-chaos/disruption-webhook",
	"RoleBinding trommel-chaos/disruption-webhook", "Secret trommel-chaos/disruption-webhook",
	"Service trommel-chaos/disruption-webhook", "ValidatingWebhookConfiguration /remote.chaos.trommel.dev",
}

// The webhook of a parent can be turned off, and nothing is left of it. Without authorization, there is none.
func TestWebhookIsTurnedOff(t *testing.T) {
	on := charttest.Render(t, modeChart("parent", nil))
	for _, value := range []string{"webhook", "authorization"} {
		off := charttest.Render(t, modeChart("parent", map[string]any{"remote": map[string]any{value: false}}))
		var less []string
		for name := range on {
			if off[name] == nil {
				less = append(less, name)
			}
		}
		slices.Sort(less)
		if diff := cmp.Diff(ofWebhook, less); diff != "" {
			t.Errorf("%s: %s", value, diff)
		}
		const controllers = "Deployment trommel-chaos/disruption-controllers"
		if text := fmt.Sprint(off[controllers].Object); strings.Contains(text, "webhook") {
			t.Errorf("%s: %s", value, text)
		}
		if text := fmt.Sprint(on[controllers].Object); !strings.Contains(text, "--webhook=:9443") {
			t.Error(text)
		}
	}
	// API servers that cannot call it refuse what it is for, and nothing else.
	hooks := on["ValidatingWebhookConfiguration /remote.chaos.trommel.dev"].Object["webhooks"].([]any)
	if hook := hooks[0].(map[string]any); len(hooks) != 1 || hook["failurePolicy"] != "Fail" ||
		hook["sideEffects"] != "None" || len(hook["matchConditions"].([]any)) != 3 {
		t.Errorf("%v", hooks)
	}
}

// The chart installs in each mode what its kustomization does, and says what a child leaves out.
func TestModes(t *testing.T) {
	single := charttest.Render(t, plan.Manifest{Path: "."})
	for mode, tt := range map[string]struct{ added, removed []string }{
		"parent": {
			added: slices.Sorted(slices.Values(append([]string{
				"ClusterRole /trommel-remote-clusters", "ClusterRoleBinding /trommel-remote-clusters",
				"MutatingAdmissionPolicy /remote.chaos.trommel.dev",
				"MutatingAdmissionPolicyBinding /remote.chaos.trommel.dev",
				"Role trommel-chaos/remote-clusters", "RoleBinding trommel-chaos/remote-clusters",
				"ValidatingAdmissionPolicy /remote.chaos.trommel.dev",
				"ValidatingAdmissionPolicyBinding /remote.chaos.trommel.dev",
			}, ofWebhook...))),
			removed: []string{
				"ValidatingAdmissionPolicy /modes.chaos.trommel.dev",
				"ValidatingAdmissionPolicyBinding /modes.chaos.trommel.dev",
			},
		},
		"child": {added: []string{
			"ClusterRole /trommel-disruption-parent", "ClusterRoleBinding /trommel-disruption-parent",
			"Role trommel-chaos/disruption-parent", "RoleBinding trommel-chaos/disruption-parent",
			"ServiceAccount trommel-chaos/disruption-parent",
			"ValidatingAdmissionPolicy /child.chaos.trommel.dev",
			"ValidatingAdmissionPolicyBinding /child.chaos.trommel.dev",
		}},
	} {
		t.Run(mode, func(t *testing.T) {
			want := charttest.Render(t, plan.Manifest{Path: mode})
			var added, removed []string
			for name := range want {
				if single[name] == nil {
					added = append(added, name)
				}
			}
			for name := range single {
				if want[name] == nil {
					removed = append(removed, name)
				}
			}
			slices.Sort(added)
			slices.Sort(removed)
			if diff := cmp.Diff(tt.added, added); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.removed, removed); diff != "" {
				t.Error(diff)
			}
			deployment := fmt.Sprint(want["Deployment trommel-chaos/disruption-controllers"].Object)
			if !strings.Contains(deployment, "--mode="+mode) {
				t.Errorf("no --mode in %s", deployment)
			}
			delete(want, "Namespace /trommel-chaos") // Helm creates it
			if diff := cmp.Diff(want, charttest.Render(t, modeChart(mode, nil))); diff != "" {
				t.Errorf("(-kustomization +chart)\n%s", diff)
			}
		})
	}
	got := charttest.Render(t, modeChart("parent", map[string]any{
		"remote": map[string]any{"local": false, "authorization": false},
	}))
	deployment := fmt.Sprint(got["Deployment trommel-chaos/disruption-controllers"].Object)
	for _, want := range []string{"--without-local", "--without-remote-authorization"} {
		if !strings.Contains(deployment, want) {
			t.Errorf("no %s in %s", want, deployment)
		}
	}
	// A parent that installs has another image; a child has not.
	for _, tt := range []struct {
		mode    string
		install bool
		image   string
	}{
		{"parent", true, "trommel-chaos-parent:"}, {"parent", false, "trommel-chaos:"},
		{"child", true, "trommel-chaos:"},
	} {
		got := charttest.Render(t, modeChart(tt.mode, map[string]any{"remote": map[string]any{"install": tt.install}}))
		deployment := fmt.Sprint(got["Deployment trommel-chaos/disruption-controllers"].Object)
		if !strings.Contains(deployment, "image:ghcr.io/trommel-dev/"+tt.image) {
			t.Errorf("mode %s, install %t: no image %s in %s", tt.mode, tt.install, tt.image, deployment)
		}
	}
}
