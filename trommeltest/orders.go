package trommeltest

import (
	"fmt"
	"testing"

	"github.com/trommel-dev/trommel/plan"
)

// Orders runs a workload n times, each time in another order: which event reaches a controller first, which write or
// answer is late, and whether time passes before that. docs/orders.md says what is ordered. The requests of a Go
// function are not.
//
// Each order is a subtest named for its seed, and the same seed gives the same order. So
//
//	go test -run 'TestOrders/seed-7$'
//
// runs the order again that has found a bug. For the rest, a subtest is like [Harness.Run].
func (h *Harness) Orders(t *testing.T, workload string, n int, options ...Option) {
	t.Helper()
	for seed := 1; seed <= n; seed++ {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			h.RunPlan(t, orderOf(workload, seed), options...)
		})
	}
}

// orderOf is the plan of a seed.
func orderOf(workload string, seed int) *plan.Plan {
	return &plan.Plan{
		TestName: fmt.Sprintf("%s-order-%d", fileName(workload), seed), Workload: workload,
		Schedule: &plan.Schedule{Strategy: plan.Swarm, Seed: seed},
	}
}
