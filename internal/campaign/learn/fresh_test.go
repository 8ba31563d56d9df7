package learn

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/run"
	steps "github.com/trommel-dev/trommel/internal/workload"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Regression: what a workload asks for was created without the objects of types that runs do not record, so that the
// namespace of the others was missing.
func TestFreshHasWhatIsNotRecorded(t *testing.T) {
	for _, tt := range []struct {
		name     string
		workload string
		want     []string // kinds and names, in order; nil: unknown
	}{
		{"a namespace", `
        - apply: {apiVersion: v1, kind: Namespace, metadata: {name: test}}
        - apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: test}}`,
			[]string{"Namespace/test", "ConfigMap/a"}},
		{"as it is applied last", `
        - apply: {apiVersion: v1, kind: Namespace, metadata: {name: test}}
        - apply: {apiVersion: v1, kind: Namespace, metadata: {name: test, labels: {x: "1"}}}`,
			[]string{"Namespace/test x", "ConfigMap/a"}},
		{"deleted", `
        - apply: {apiVersion: v1, kind: Namespace, metadata: {name: gone}}
        - delete: namespace//gone`,
			[]string{"ConfigMap/a"}},
		{"patched", `
        - apply: {apiVersion: v1, kind: Namespace, metadata: {name: test}}
        - patch: {resourceKey: namespace//test, patch: {metadata: {labels: {x: "1"}}}}`, nil},
		{"a recorded object is patched", `
        - apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: test}}
        - patch: {resourceKey: configmap/test/a, patch: {data: {x: "1"}}}`,
			[]string{"ConfigMap/a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			suite, err := plan.ParseSuite([]byte(`
controllers: [{name: op, build: {dir: .}}]
workloads:
  create:
    steps:`+tt.workload), "trommel.yaml")
			if err != nil {
				t.Fatal(err)
			}
			object := `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "test"}}`
			f := Fresh{
				Suite: suite, Workload: "create", Steps: suite.Workloads["create"].Steps,
				Baseline: &baseline.Baseline{Recorded: baseline.Recorded{
					Types: []plan.ResourceKey{{Type: "configmap", Namespace: "*", Name: "*"}},
				}},
				Done: &record.Run{Meta: record.Meta{}, History: []record.HistoryEntry{{
					Event: record.Created, Type: "configmap", Namespace: "test", Name: "a",
					Object:  json.RawMessage(object),
					Writers: []record.FieldManager{{Manager: steps.FieldManager}},
				}}},
			}
			var got []string
			_, err = f.Run(context.Background(),
				func(_ context.Context, p *plan.Plan, _ run.RunOptions) (*record.Run, *record.Meta, error) {
					for _, step := range p.Steps {
						for _, o := range step.Apply.Objects {
							meta := o["metadata"].(map[string]any)
							is := o["kind"].(string) + "/" + meta["name"].(string)
							if labels, _ := meta["labels"].(map[string]any); labels["x"] != nil {
								is += " x"
							}
							got = append(got, is)
						}
					}
					return &record.Run{}, &record.Meta{Verdict: record.Pass}, nil
				})
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}
