package history

import (
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// That a lease is renewed is not recorded; anything else of it is, and so is what another type calls a renewal.
func TestRenewalsOfLeases(t *testing.T) {
	for _, tt := range []struct {
		group, singular string
		want            []string
	}{
		{"coordination.k8s.io", "lease", []string{"created 1", "updated 3", "updated 5", "deleted 6"}},
		{"example.com", "lease",
			[]string{"created 1", "updated 2", "updated 3", "updated 4", "updated 5", "deleted 6"}},
	} {
		tr := secrets(t)
		tr.typ = objects.Type{
			Resource: schema.GroupVersionResource{Group: tt.group, Version: "v1", Resource: "leases"},
			Singular: tt.singular,
		}
		tr.keys = []plan.ResourceKey{{Type: "lease", Group: tt.group, Namespace: "*", Name: "*"}}
		tr.Listed(nil, "0")
		state := func(version int, holder, renewed string) *unstructured.Unstructured {
			u := secret("a", version)
			u.Object["spec"] = map[string]any{"holderIdentity": holder, "renewTime": renewed}
			return u
		}
		missed := tr.await(listOf(4, state(4, "b", "z")))
		for _, step := range []struct {
			event watch.EventType
			u     *unstructured.Unstructured
		}{
			{watch.Added, state(1, "a", "x")}, {watch.Modified, state(2, "a", "y")},
			{watch.Modified, state(3, "b", "y")}, {watch.Modified, state(4, "b", "z")},
		} {
			tr.Changed(step.event, step.u)
		}
		if len(missed.lacking) > 0 {
			t.Errorf("%s is missing, but has arrived", missed.first())
		}
		labelled := state(5, "b", "z")
		labelled.SetLabels(map[string]string{"a": "b"})
		tr.Changed(watch.Modified, labelled)
		tr.Changed(watch.Deleted, state(6, "b", "z"))
		var got []string
		for _, e := range tr.recorder.entries {
			got = append(got, e.Event+" "+strconv.FormatUint(e.ResourceVersion, 10))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: recorded %q, want %q", tt.group, got, tt.want)
		}
	}
}
