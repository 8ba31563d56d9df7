package addons

import (
	"context"
	"io/fs"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/plan"
)

// fileList keeps which manifests are applied.
type fileList struct{ names []string }

func (l *fileList) Files(_ context.Context, _ fs.FS, names []string) error {
	l.names = append(l.names, names...)
	return nil
}

func (l *fileList) All(context.Context, []*unstructured.Unstructured) error { return nil }
func (l *fileList) One(context.Context, *unstructured.Unstructured) error   { return nil }

type named string

func (n named) NodeName() string { return string(n) }

func TestDisruptionControllers(t *testing.T) {
	to := new(fileList)
	d := &disruptionControllers{plan: "p.yaml", cluster: "c", apply: to}
	if err := d.Install(t.Context()); err == nil ||
		err.Error() != `p.yaml: disrupt: cluster "c" has no process node: not supported by this cluster` {
		t.Error(err)
	}
	d.node = named("here")
	if err := d.Install(t.Context()); err != nil || len(to.names) == 0 {
		t.Errorf("%v, applied %q", err, to.names)
	}
	if err := d.Start(t.Context()); err == nil ||
		err.Error() != "disrupt: there is no injector (Options.Injector)" {
		t.Error(err)
	}
	if _, err := d.deployment("/tmp/journal"); err == nil {
		t.Error("deployed without an executable")
	}
	d.program = []string{"/bin/trommel", "controllers"}
	deployment, err := d.deployment("/tmp/journal")
	if err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template
	c := pod.Spec.Containers[0]
	if pod.Spec.NodeName != "here" || pod.Annotations[cluster.AnnotationBinaryPrefix+c.Name] != "/bin/trommel" ||
		!slices.Equal(c.Command, []string{"/bin/trommel"}) || c.Args[0] != "controllers" ||
		!slices.Contains(c.Args, "--journal=/tmp/journal") || !slices.Contains(c.Args, "--process-node=here") {
		t.Errorf("%+v", pod)
	}
}

func TestDisruptedClusters(t *testing.T) {
	disrupt := func(cluster string, d map[string]any) plan.Action {
		return plan.Action{Type: plan.Disrupt, Cluster: cluster, Disrupting: plan.Disrupting{Disruption: d}}
	}
	selects := map[string]any{"name": "a", "selector": map[string]any{"app": "x"}}
	several := &plan.Suite{
		Clusters:    map[string]plan.ClusterSpec{"east": {}, "north": {}, "west": {}},
		Controllers: []plan.Controller{{Name: "copier", Cluster: "west"}},
	}
	for _, test := range []struct {
		name    string
		suite   *plan.Suite
		actions []plan.Action
		want    []string
	}{
		{"none", several, []plan.Action{{Type: plan.KillController}}, nil},
		{"one cluster", new(plan.Suite), []plan.Action{disrupt("", selects)}, []string{""}},
		{"the first", several, []plan.Action{disrupt("", selects)}, []string{"east"}},
		{"named", several, []plan.Action{disrupt("north", selects), disrupt("north", selects)}, []string{"north"}},
		{"the controller's", several, []plan.Action{disrupt("", map[string]any{"name": "a"})}, []string{"west"}},
		{
			"the named controller's, and another", several, []plan.Action{
				disrupt("", map[string]any{"name": "a", "controller": "copier"}), disrupt("", selects),
			}, []string{"west", "east"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := disruptedClusters(&plan.Plan{Actions: test.actions}, test.suite); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
