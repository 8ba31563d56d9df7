package judge

import (
	"testing"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Regression: a step that users have named "upgrade to …" counted as an upgrade of the controllers, so that what it
// changed was noted as rewritten.
func TestUpgradesOfAWorkload(t *testing.T) {
	r := tale(t, `1 created deployment.apps/default/db {"spec": {"template": {"image": "db:1"}}}`,
		`5 op: updated deployment.apps/default/db {"spec": {"template": {"image": "db:2"}}}`)
	for i, of := range []string{
		`1 created service/system/metrics {}`, `5 updated service/system/metrics {"spec": {"port": 1}}`,
	} {
		r.History = append(r.History, tale(t, of).History...)
		last := &r.History[len(r.History)-1]
		last.ResourceVersion = uint64(100 + i)
		last.Writers = []record.FieldManager{{Manager: record.PlanManager, Operation: "Apply"}}
	}
	for _, tt := range []struct {
		name string
		step record.Step
		want []string
	}{
		{"named so", record.Step{Text: "upgrade to db:2: patch cluster.db.example/default/db"}, nil},
		{
			"of the controllers",
			record.Step{Text: "the new release: upgrade to the build v2", Upgrade: "the build v2"},
			[]string{"note the upgrade to the build v2 changes 1 object at rest, and replaces the pods of 1 of them: " +
				"deployment.apps/default/db is updated (spec.template.image: its pods are replaced)"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(r)
			e.Plan = &plan.Plan{}
			tt.step.Started = time.Unix(4, 0)
			e.Meta.Steps = []record.Step{{Text: "create", Started: time.Unix(0, 0)}, tt.step}
			expect(t, judged(t, rewrites{}, e), tt.want...)
		})
	}
}
