package install

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/testing/charttest"
	"github.com/trommel-dev/trommel/plan"
)

// The kustomization and the chart install what those of disruptions and node cycling do.
func TestInstallsBoth(t *testing.T) {
	for _, tt := range []struct {
		name        string
		both        plan.Manifest
		disruptions plan.Manifest
		cycling     plan.Manifest
	}{
		{"kustomization", plan.Manifest{Path: "."}, plan.Manifest{Path: "../chaos/config"},
			plan.Manifest{Path: "../nodes/config"}},
		{"chart", chart("chart", nil), chart("chart/charts/trommel-chaos", nil),
			chart("chart/charts/trommel-nodes", nil)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want, cycling := charttest.Render(t, tt.disruptions), charttest.Render(t, tt.cycling)
			for name := range want {
				if cycling[name] != nil {
					t.Errorf("both have %s", name)
				}
			}
			if len(want) < 10 || len(cycling) < 10 {
				t.Errorf("only %d and %d objects", len(want), len(cycling))
			}
			maps.Copy(want, cycling)
			if diff := cmp.Diff(want, charttest.Render(t, tt.both)); diff != "" {
				t.Errorf("(-each +both)\n%s", diff)
			}
		})
	}
}

// Each can be left out, and its values have a part of their own.
func TestChartValues(t *testing.T) {
	got := charttest.Render(t, chart("chart", map[string]any{
		"disruptions": map[string]any{"enabled": false},
		"cycling":     map[string]any{"image": "registry.example/nodes:v1"},
	}))
	names := slices.Sorted(maps.Keys(got))
	if slices.ContainsFunc(names, func(name string) bool {
		return strings.HasPrefix(name, "Deployment") && strings.Contains(name, "disruption")
	}) {
		t.Errorf("with disruptions: %s", names)
	}
	var images []string
	for name, o := range got {
		if strings.HasPrefix(name, "Deployment") {
			images = append(images, imagesOf(o.Object)...)
		}
	}
	if diff := cmp.Diff([]string{"registry.example/nodes:v1"}, images); diff != "" {
		t.Error(diff)
	}
}

func chart(directory string, values map[string]any) plan.Manifest {
	return plan.Manifest{Helm: directory, Release: "trommel", Namespace: "trommel", Values: values}
}

func imagesOf(deployment map[string]any) []string {
	containers, _, _ := unstructured.NestedSlice(deployment, "spec", "template", "spec", "containers")
	var images []string
	for _, c := range containers {
		images = append(images, c.(map[string]any)["image"].(string))
	}
	return images
}
