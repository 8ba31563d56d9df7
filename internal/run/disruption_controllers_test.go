package run

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/plan"
)

// fileList keeps which manifests are applied.
type fileList struct{ names []string }

func (l *fileList) files(_ context.Context, _ fs.FS, names []string) error {
	l.names = append(l.names, names...)
	return nil
}

func (l *fileList) all(context.Context, []*unstructured.Unstructured) error { return nil }
func (l *fileList) one(context.Context, *unstructured.Unstructured) error   { return nil }

type named string

func (n named) NodeName() string { return string(n) }

func TestDisruptionControllers(t *testing.T) {
	disrupt := &plan.Plan{File: "p.yaml", Actions: []plan.Action{
		{Type: plan.Disrupt, Disrupting: plan.Disrupting{Disruption: map[string]any{"name": "d"}}},
	}}
	to := new(fileList)
	d := &disruptionControllers{plan: new(plan.Plan), apply: to}
	if err := errors.Join(d.install(t.Context()), d.start(t.Context(), nil)); err != nil || to.names != nil {
		t.Errorf("a plan without disruptions: %v, applied %q", err, to.names)
	}
	d = &disruptionControllers{plan: disrupt, cluster: "c", apply: to}
	if err := d.install(t.Context()); err == nil ||
		err.Error() != `p.yaml: disrupt: cluster "c" has no process node: not supported by this cluster` {
		t.Error(err)
	}
	d.node = named("here")
	if err := d.install(t.Context()); err != nil || len(to.names) == 0 {
		t.Errorf("%v, applied %q", err, to.names)
	}
	if err := d.start(t.Context(), nil); err == nil ||
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
