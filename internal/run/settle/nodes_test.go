package settle

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/plan"
)

// nodes are nodes by name, and the status of their condition Ready; the patched ones are listed.
type nodes struct {
	ready   map[string]string
	patched []string
}

func (n *nodes) List(context.Context, plan.ResourceKey) (all []*unstructured.Unstructured, err error) {
	for name, ready := range n.ready {
		u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{
			map[string]any{"type": "DiskPressure", "status": "False"}, map[string]any{"type": "Ready", "status": ready},
		}}}}
		u.SetName(name)
		all = append(all, u)
	}
	return all, nil
}

func (n *nodes) Patch(_ context.Context, key plan.ResourceKey, _ string, _ any, subresource string,
) (*unstructured.Unstructured, error) {
	n.patched = append(n.patched, key.String()+" "+subresource)
	return nil, nil
}

// A node that has failed does not report.
func TestReportNodes(t *testing.T) {
	n := &nodes{ready: map[string]string{"a": "True", "b": "Unknown", "c": "True", "d": "False"}}
	if err := reportNodes(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	slices.Sort(n.patched)
	if want := []string{"node//a status", "node//c status"}; !slices.Equal(n.patched, want) {
		t.Errorf("patched %q, want %q", n.patched, want)
	}
}
