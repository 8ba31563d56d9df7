package campaign

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: dbs.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Db, plural: dbs, singular: db}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}
`

// What workloads would add is said only of patterns that have no plans because no workload does what they are about.
func TestWorkloadsThatWouldAddPlans(t *testing.T) {
	const db = facts.Key("db.example.com/default/a")
	type object = map[string]any
	sized := func(n float64) object { return object{"spec": object{"replicas": n}} }
	change := func(by, event string, prev, cur object) facts.Change {
		return facts.Change{Key: db, Event: event, By: by, Prev: prev, Cur: cur, Taken: []string{"op"}}
	}
	created := change("", record.Created, nil, sized(1))
	up, down := change("", record.Updated, sized(1), sized(2)), change("", record.Updated, sized(2), sized(1))
	deleted := change("", record.Deleted, sized(1), nil)
	stale := "no plan of stale shows the controllers a deletion that is past, because no workload deletes a " +
		"db.example.com and creates it again"
	unobserved := "there is no plan of unobserved, because no workload changes a db.example.com and changes it back"
	const adds = "; this adds workloads that do: trommel propose -c DIR --write"
	for _, tt := range []struct {
		name    string
		changes []facts.Change
		config  func(c *Config)
		want    []string
	}{
		{"it is only created", []facts.Change{created}, nil, []string{stale + adds, unobserved + adds}},
		{"it is deleted, too", []facts.Change{created, deleted}, nil, []string{stale + adds, unobserved + adds}},
		{"it is created again", []facts.Change{created, deleted, created}, nil, []string{unobserved + adds}},
		{"it is changed and changed back", []facts.Change{created, up, down}, nil, []string{stale + adds}},
		{"by the controller", []facts.Change{created, change("op", record.Updated, sized(1), sized(2)),
			change("op", record.Updated, sized(2), sized(1))}, nil, []string{stale + adds, unobserved + adds}},
		{"no custom resource", nil, nil, nil},
		{"one API server", []facts.Change{created}, func(c *Config) { c.Suite.Cluster.APIServers = 1 },
			[]string{unobserved + adds}},
		{"other patterns", []facts.Change{created}, func(c *Config) { c.Patterns = []string{"intermediate"} }, nil},
		{"not all workloads", []facts.Change{created}, func(c *Config) {
			c.Workloads = []string{"w"}
			c.Suite.Workloads["v"] = plan.Workload{}
		}, []string{stale + "; one of those that were not chosen may: v",
			unobserved + "; one of those that were not chosen may: v"}},
		{"a variant", []facts.Change{created}, func(c *Config) { c.Variant = "fixed" }, []string{
			stale + "; this adds workloads that do: trommel propose -c DIR --variant fixed --write",
			unobserved + "; this adds workloads that do: trommel propose -c DIR --variant fixed --write",
		}},
		{"nothing to derive workloads from", []facts.Change{created}, func(c *Config) {
			c.Suite.Workloads["w"] = plan.Workload{Command: []string{"./create"}}
		}, []string{stale, unobserved}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := config(t, &fake{}, "w")
			dir := filepath.Dir(config.SuiteFile)
			if err := os.WriteFile(filepath.Join(dir, "manifests", "db.yaml"), []byte(definition), 0o600); err != nil {
				t.Fatal(err)
			}
			config.Suite.Workloads["w"] = plan.Workload{Steps: []plan.Step{{Apply: &plan.ApplyStep{
				Objects: []map[string]any{{
					"apiVersion": "example.com/v1", "kind": "Db",
					"metadata": map[string]any{"name": "a", "namespace": "default"}, "spec": map[string]any{},
				}},
			}}}}
			if tt.config != nil {
				tt.config(&config)
			}
			c := newCampaign(config)
			ref := &baseline.Baseline{Workload: "w", Changes: tt.changes, Objects: facts.Objects(tt.changes)}
			var got []string
			for _, s := range c.suggest([]*learn.Learned{{Workload: "w", Baseline: ref}}) {
				got = append(got, strings.ReplaceAll(s.String(), dir, "DIR"))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			unlearned := c.suggest([]*learn.Learned{{Workload: "w", Baseline: ref}, {Workload: "v"}})
			if len(unlearned) > 0 {
				t.Errorf("a workload that could not be learned may do it: %v", unlearned)
			}
		})
	}
}

// A campaign says it, and so does the generation of plans.
func TestSuggestionsOfCampaigns(t *testing.T) {
	f := &fake{answer: func(_ *plan.Plan, _ int, _ *record.Meta, _ *[]record.Finding, history *[]string) error {
		*history = []string{"db.example.com/default/a", "op secret/default/a"}
		return nil
	}}
	c := config(t, f, "w")
	if r := mustRun(t, c); len(r.Suggested) != 2 {
		t.Errorf("%+v", r.Suggested)
	}
	c.Dir = t.TempDir()
	candidates, r, err := Generate(t.Context(), c)
	if err != nil || len(r.Suggested) != 2 || candidates[0].Plan == nil || candidates[len(candidates)-1].Plan != nil {
		t.Errorf("%v; %+v; %d candidates", err, r.Suggested, len(candidates))
	}
}

// For a workload that waits for little, the state that it ended with is reported, also if it did not pass, and
// campaigns say it, too.
func TestSuggestedWait(t *testing.T) {
	const want = "it waits for little; without faults it ended with this, to wait for:\n" +
		"    - {name: it is ready, wait: {resourceKey: db.example.com/default/a, condition: object.status.ready == 2}}"
	for _, verdict := range []record.Verdict{record.Pass, record.Bug} {
		t.Run(string(verdict), func(t *testing.T) {
			f := &fake{answer: func(_ *plan.Plan, _ int, m *record.Meta, _ *[]record.Finding, history *[]string) error {
				m.Verdict = verdict
				*history = []string{`db.example.com/default/a {"status": {"ready": 2}}`, "op secret/default/a"}
				return nil
			}}
			c := config(t, f, "w")
			all, err := Learn(t.Context(), c)
			if err != nil || len(all) != 1 || (all[0].Err == nil) != (verdict == record.Pass) ||
				strings.Count(all[0].Text(), "  "+want+"\n") != 1 {
				t.Errorf("%+v, %v", all, err)
			}
			said := c.Progress.(*heard)
			if strings.Contains(said.String(), want) {
				t.Errorf("learning says twice what its result has: %s", said)
			}
			if mustRun(t, c); !strings.Contains(said.String(), "w: "+want) {
				t.Errorf("a campaign says %s", said)
			}
		})
	}
}
