package addons

import (
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/plan"
)

func TestCycleControllers(t *testing.T) {
	cycle := &plan.Plan{File: "p.yaml", Actions: []plan.Action{{Type: plan.CycleNodes, Cycling: plan.Cycling{
		Cycle: map[string]any{"name": "roll", "simulatedGroup": map[string]any{"desiredCapacity": 3}},
	}}}}
	var manifests []*unstructured.Unstructured
	read := func() ([]*unstructured.Unstructured, error) { return manifests, nil }
	to := new(fileList)
	c := &cycleControllers{plan: cycle, cluster: "c", manifests: read, apply: to}
	if err := c.Install(t.Context()); err == nil ||
		err.Error() != `p.yaml: cycleNodes: cluster "c" has no simulated nodes: not supported by this cluster` {
		t.Error(err)
	}
	c.supported = true
	definition := &unstructured.Unstructured{}
	definition.SetKind("CustomResourceDefinition")
	definition.SetName("cyclenoderequests." + nodes.GroupVersion.Group)
	manifests = append(manifests, definition)
	if err := errors.Join(c.Install(t.Context()), c.Start(t.Context())); err != nil || to.names != nil {
		t.Errorf("the suite brings the controllers along: %v, applied %q", err, to.names)
	}
	manifests = nil
	if err := c.Install(t.Context()); err != nil || !slices.Equal(to.names, cycleDefinitions) || !c.own {
		t.Errorf("%v, applied %q", err, to.names)
	}
	groups, err := c.groups()
	if err != nil || len(groups) != 1 || groups[0].GetKind() != "SimulatedNodeGroup" || groups[0].GetName() != "roll" {
		t.Errorf("%v (%v)", groups, err)
	}
	c.member = "west"
	if groups, err := c.groups(); err != nil || groups != nil {
		t.Errorf("in another cluster: %v (%v)", groups, err)
	}
}
