package confirm

import (
	"testing"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A schedule disturbs a run in which no action fires.
func TestIdle(t *testing.T) {
	actions := []plan.Action{{Type: plan.RestartController, Target: "op"}}
	for _, tt := range []struct {
		name string
		p    plan.Plan
		m    record.Meta
		want bool
	}{
		{"no action fired", plan.Plan{Actions: actions}, record.Meta{}, true},
		{"an action fired", plan.Plan{Actions: actions}, record.Meta{ActionsFired: 1}, false},
		{"a plan without actions", plan.Plan{}, record.Meta{}, false},
		{"a seed", plan.Plan{Actions: actions, Schedule: &plan.Schedule{Strategy: plan.Swarm}}, record.Meta{}, false},
		{"a late step", plan.Plan{Actions: actions, Schedule: &plan.Schedule{Late: []plan.LateStep{{Stream: "a"}}}},
			record.Meta{}, false},
		{"the usual order", plan.Plan{Actions: actions, Schedule: &plan.Schedule{Strategy: plan.FIFO}}, record.Meta{},
			true},
	} {
		if got := Idle(&tt.p, &tt.m); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
