package run

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// An upgrade takes away what `helm upgrade` takes away, and nothing else.
func TestTakenAway(t *testing.T) {
	object := func(text, release, more string) *unstructured.Unstructured {
		if release != "" {
			more = "meta.helm.sh/release-name: " + release + ", meta.helm.sh/release-namespace: system, " + more
		}
		u := &unstructured.Unstructured{}
		err := yaml.Unmarshal([]byte("{"+text+", metadata: {namespace: system, name: a, annotations: {"+more+"}}}"), u)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	const (
		config = "apiVersion: v1, kind: ConfigMap"
		secret = "apiVersion: v1, kind: Secret"
		budget = "apiVersion: policy/v1, kind: PodDisruptionBudget"
	)
	now := []*unstructured.Unstructured{object(secret, "op", "")}
	for _, tt := range []struct {
		name   string
		former *unstructured.Unstructured
		want   bool
	}{
		{"not in the chart any more", object(config, "op", ""), true},
		{"still in the chart", object(secret, "op", ""), false},
		{"of another release", object(config, "other", ""), false},
		{"of no release", object(config, "", ""), false},
		{"kept", object(config, "op", "helm.sh/resource-policy: keep"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := takenAway([]*unstructured.Unstructured{tt.former}, now); (len(got) == 1) != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
	// A newer version of an API has the same object.
	old := []*unstructured.Unstructured{object("apiVersion: policy/v1beta1, kind: PodDisruptionBudget", "op", "")}
	if got := takenAway(old, []*unstructured.Unstructured{object(budget, "op", "")}); len(got) > 0 {
		t.Errorf("got %v", got)
	}
	if slices.Contains(takenAway(now, now), now[0]) {
		t.Error("nothing has changed")
	}
}
