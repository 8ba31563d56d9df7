package run_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// plain is a cluster with only the required methods.
type plain struct{ c cluster.Cluster }

func (p plain) Name() string                                      { return p.c.Name() }
func (p plain) APIServers() []string                              { return p.c.APIServers() }
func (p plain) RESTConfig(apiServer string) (*rest.Config, error) { return p.c.RESTConfig(apiServer) }
func (p plain) Close(ctx context.Context) error                   { return p.c.Close(ctx) }

// A registered kind of cluster needs no other code in Trommel that knows it, and a run requires only the capabilities
// that its plan needs.
func TestPlainCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	embedded, err := cluster.Lookup("embedded")
	if err != nil {
		t.Fatal(err)
	}
	plan.RegisterClusterKind(plan.ClusterKind{Type: "plain"})
	cluster.Register("plain", cluster.Kind{ControlPlane: true, Start: func(
		ctx context.Context, c cluster.Config,
	) (cluster.Cluster, error) {
		c.APIServers, c.Nodes = 1, -1
		started, err := embedded.Start(ctx, c)
		if err != nil {
			return nil, err
		}
		return plain{started}, nil
	}})
	file := filepath.Join(t.TempDir(), plan.SuiteFile)
	const text = `cluster: {type: plain}
history: [configmap/default/*]
workloads:
  both:
  - apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}
  - exec: [sh, -c, 'grep -q "server: https://127.0.0.1" "$KUBECONFIG"']
invariants:
- name: second
  eventually: objects.exists(c, c.kind == "ConfigMap" && c.metadata.name == "b" && c.data.by == "plan")
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	suite, err := plan.LoadSuite(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Parse([]byte(`testName: plain
workload: both
actions:
- actionType: apply
  manifest: {apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: default}, data: {by: plan}}
  trigger: {definitions: [{triggerName: now, condition: {triggerType: none}}]}
`), file)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(suite); err != nil {
		t.Fatal(err)
	}
	s := open(t, example{suite: suite}, run.Options{})
	for range 2 {
		meta, o := runOnce(t, s, p)
		if meta.Verdict != record.Pass || len(o.Actions) != 1 || meta.Cluster != record.ClusterFresh {
			t.Errorf("%s on a %s cluster: %s, %+v", meta.Verdict, meta.Cluster, meta.Reason, o)
		}
	}
}
