package campaign

import (
	"time"

	"github.com/trommel-dev/trommel/plan"
)

// cost estimates how long a task's plan runs, by the machine's clock. Zero: that is unknown.
func cost(t *task) time.Duration { return costOf(t, t.plan) }

// costOf is the same of another plan with the task's workload.
func costOf(t *task, p *plan.Plan) time.Duration { return t.learned.Cost(p) }
