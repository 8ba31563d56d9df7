package campaign

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A workload whose wait times out is run once if another pace could not help, and otherwise twice.
func TestWorkloadThatCannotPassIsRunOnce(t *testing.T) {
	key := plan.ResourceKey{Type: "configmap", Namespace: "default", Name: "a"}
	object := &plan.ApplyStep{Objects: []map[string]any{{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"},
	}}}
	ready := plan.Step{Wait: &plan.WaitStep{ResourceKey: key, Condition: "object.status.ready == true"}}
	apply, sleep := plan.Step{Apply: object}, plan.Step{Sleep: time.Second}
	history := func(more ...string) []string { return append([]string{"configmap/default/a"}, more...) }
	for _, tt := range []struct {
		name    string
		steps   []plan.Step
		history []string
		judge   string
		want    int
	}{
		{"never ready", []plan.Step{apply, ready}, history(), record.JudgeWorkload, 1},
		{"never ready, after a sleep", []plan.Step{apply, sleep, ready}, history(), record.JudgeWorkload, 1},
		{"in no phase", []plan.Step{apply, {Wait: &plan.WaitStep{ResourceKey: key, Phase: "Running"}}},
			history(`op configmap/default/a {"status": {"phase": "Pending"}}`), record.JudgeWorkload, 1},
		{"in the phase for a moment", []plan.Step{apply, {Wait: &plan.WaitStep{ResourceKey: key, Phase: "Running"}}},
			history(`op configmap/default/a {"status": {"phase": "Running"}}`, `op configmap/default/a`),
			record.JudgeWorkload, 2},
		{"ready for a moment", []plan.Step{apply, ready},
			history(`op configmap/default/a {"status": {"ready": true}}`, `op configmap/default/a`),
			record.JudgeWorkload, 2},
		{"two changes, whose distance may count", []plan.Step{apply, apply, ready}, history(), record.JudgeWorkload, 2},
		{"it is not gone", []plan.Step{apply, {Wait: &plan.WaitStep{ResourceKey: key, Absent: true}}}, history(),
			record.JudgeWorkload, 2},
		{"not recorded", []plan.Step{apply, ready}, []string{"op secret/default/a"}, record.JudgeWorkload, 2},
		{"a crash", []plan.Step{apply, ready}, history(), record.JudgePanic, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{answer: func(
				_ *plan.Plan, _ int, m *record.Meta, found *[]record.Finding, h *[]string,
			) error {
				m.Verdict, m.Steps, *h = record.Bug, make([]record.Step, len(tt.steps)), tt.history
				*found = []record.Finding{{Judge: tt.judge, Severity: record.SeverityBug, Title: "step failed"}}
				return nil
			}}
			c := config(t, f, "w")
			c.Suite.Workloads["w"] = plan.Workload{Steps: tt.steps}
			r := mustRun(t, c)
			if len(f.all) != tt.want || len(r.Unlearned) != 1 ||
				!strings.Contains(r.Unlearned[0].Reason, "it does not pass without faults") {
				t.Errorf("runs %q, want %d; not learned: %+v", f.all, tt.want, r.Unlearned)
			}
		})
	}
}

// A workload that has failed once is not run again if the budget has no time for that.
func TestNoSecondLookBeyondTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lasting(4*time.Minute, time.Second)
		answer := f.answer
		f.answer = func(p *plan.Plan, n int, m *record.Meta, found *[]record.Finding, h *[]string) error {
			m.Verdict = record.Bug
			*found = []record.Finding{{Judge: record.JudgePanic, Severity: record.SeverityBug, Title: "panic"}}
			return answer(p, n, m, found, h)
		}
		c := config(t, f, "w")
		c.Budget = 7 * time.Minute
		if r := mustRun(t, c); !slices.Equal(f.all, []string{"w-without-faults"}) || len(r.Unlearned) != 1 {
			t.Errorf("runs %q; not learned: %+v", f.all, r.Unlearned)
		}
	})
}
