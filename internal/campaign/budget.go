package campaign

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// errBudget says that a run does not begin, because it is not expected to end within the budget.
var errBudget = errors.New("the budget ended")

// usual is how long a run took that is neither among the quick ones nor among the slow ones, by the machine's clock.
func usual(runs []*record.Run) time.Duration {
	var took []time.Duration
	for _, r := range runs {
		took = append(took, r.Meta.Took())
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// cost estimates how long a task's plan runs, by the machine's clock: as long as its workload without faults, and what
// its actions add. Zero: that is not known.
func cost(t *task) time.Duration { return costOf(t, t.plan) }

// costOf is the same of another plan with the task's workload.
func costOf(t *task, p *plan.Plan) time.Duration {
	if t.learned == nil || t.learned.Baseline == nil || t.learned.Baseline.Took == 0 {
		return 0
	}
	ref := t.learned.Baseline
	return ref.Took + pattern.Extra(p, ref.Virtual)
}

// inPromise returns the indices of workloads in the order in which they are learned. Those that the user has chosen
// come in his order. Otherwise those come first from which plans promise most.
func inPromise(workloads []workload, chosen []string, suite *plan.Suite) []int {
	order := make([]int, len(workloads))
	for i := range order {
		order[i] = i
	}
	promise := func(w workload) int {
		return schedule.Promise(slices.Concat(w.steps, suite.Workloads[w.name].Steps))
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := workloads[i], workloads[j]
		if len(chosen) > 0 {
			return cmp.Compare(slices.Index(chosen, a.name), slices.Index(chosen, b.name))
		}
		return cmp.Or(cmp.Compare(promise(a), promise(b)), cmp.Compare(a.name, b.name)) // its builds beside it
	})
	return order
}
