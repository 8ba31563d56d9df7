// Package charttest compares what a Helm chart and a kustomization install.
package charttest

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/plan"
)

// Render reads a kustomization or renders a chart. The keys are "KIND NAMESPACE/NAME".
func Render(t testing.TB, m plan.Manifest) map[string]*unstructured.Unstructured {
	t.Helper()
	list, _, err := manifests.One("suite.yaml", m, "1.36.3")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*unstructured.Unstructured{}
	for _, u := range list {
		if strings.Contains(u.GetKind(), "AdmissionPolicy") {
			u.SetNamespace("") // newer than the table of scopes that works without a cluster
		}
		unmark(u)
		all[fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())] = u
	}
	return all
}

// unmark takes away what says that an object belongs to the release of a chart.
func unmark(u *unstructured.Unstructured) {
	if manifests.ReleaseOf(u) == "" {
		return
	}
	for _, part := range []string{"labels", "annotations"} {
		all, _, _ := unstructured.NestedStringMap(u.Object, "metadata", part)
		maps.DeleteFunc(all, func(name, value string) bool {
			return name == "app.kubernetes.io/managed-by" && value == "Helm" || strings.HasPrefix(name, "meta.helm.sh/")
		})
		if len(all) == 0 {
			unstructured.RemoveNestedField(u.Object, "metadata", part)
			continue
		}
		if err := unstructured.SetNestedStringMap(u.Object, all, "metadata", part); err != nil {
			panic(err) // of a type that labels cannot have
		}
	}
}

// Compare fails the test if the kustomization in the current directory and the chart do not install the same into that
// namespace, or fewer objects than that. Helm creates the namespace itself.
func Compare(t *testing.T, chart, namespace string, least int) {
	t.Helper()
	want := Render(t, plan.Manifest{Path: "."})
	delete(want, "Namespace /"+namespace)
	got := Render(t, plan.Manifest{Helm: chart, Release: namespace, Namespace: namespace})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-kustomization +chart)\n%s", diff)
	}
	if len(got) < least {
		t.Errorf("only %d objects", len(got))
	}
}
