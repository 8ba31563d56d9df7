package workload

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// An unsuccessful wait reports whether the object is missing, or exists although it should be gone.
func TestHarmOfAWaitInVain(t *testing.T) {
	there := map[string]*unstructured.Unstructured{"default/a": {}}
	for _, tt := range []struct {
		name string
		w    waiter
		want record.Harm
	}{
		{"it is not there", waiter{found: map[string]*unstructured.Unstructured{}}, record.HarmMissing},
		{"it is there, but not as it should be", waiter{found: there}, ""},
		{"it is still there", waiter{found: there, absent: true}, record.HarmLeft},
		{"the API server did not answer", waiter{}, ""},
		{"the API server cannot be reached any more",
			waiter{found: map[string]*unstructured.Unstructured{}, broken: errors.New("refused")}, ""},
	} {
		if got := tt.w.harm(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestNamesOfWhatAStepLacks(t *testing.T) {
	sets := objects.Type{Singular: "statefulset", Resource: schema.GroupVersionResource{Group: "apps"}}
	for want, typ := range map[string]objects.Type{
		"statefulset.apps/default/a": sets, "secret/default/a": {Singular: "secret"},
	} {
		if got := named(typ, plan.ResourceKey{Type: "any", Namespace: "default", Name: "a"}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
