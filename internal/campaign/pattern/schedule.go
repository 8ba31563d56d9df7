package pattern

import (
	"fmt"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// Schedules is the name of the pattern order. Its plans have a schedule instead of actions. The first plan of a
// workload orders it without making anything late. The others follow from its run, see Scheduled.
const Schedules = "order"

var schedules = Pattern{
	Name: Schedules, Finds: "what depends on the order of deliveries, writes and answers", OnRequest: true,
	Endless: true, chance: 1,
	drafts: func(m *moment.Set) drafts {
		return drafts{{
			signature: "workload " + m.Baseline.Workload, chance: 1, schedule: &plan.Schedule{},
			why: "steps go on in the order in which they come",
		}}
	},
}

// Faults are the patterns whose plans are run in other orders, too: a controller is killed, gets no answer, is refused
// calls, or is shown the past by another API server.
func Faults() []string { return []string{intermediate.Name, lostAnswer.Name, denied.Name, stale.Name} }

// Scheduled returns a plan of the pattern order. Label ends its name; the signature distinguishes it from the others of
// all workloads. The actions are those of a plan of another pattern, or none.
func Scheduled(
	suite *plan.Suite, workload, label, signature, why string, s *plan.Schedule, actions ...plan.Action,
) (Candidate, error) {
	c := Candidate{Pattern: Schedules, Signature: signature, Why: why}
	name := fmt.Sprintf("%s-%s-%s", workload, Schedules, label)
	p, err := build.Plan(name).Description(why).Workload(workload).Schedule(*s).Build()
	if err != nil {
		return c, err
	}
	p.Actions = actions
	p.Complete(suite)
	c.Plan = p
	return c, p.Validate(suite)
}
