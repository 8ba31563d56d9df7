package confirm

import (
	"slices"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// unhurriedFor is how long there is between the steps of an unhurried workload: the first that is as long as the run of
// the plan.
var unhurriedFor = []time.Duration{4 * time.Second, 16 * time.Second, time.Minute, 5 * time.Minute}

// MayBeOfTime reports whether a workload that takes longer may explain a finding: a field differs or is set back, or an
// object is created more often, as by what a timer starts.
func MayBeOfTime(found []record.Finding) bool {
	return slices.ContainsFunc(found, func(f record.Finding) bool {
		return f.Judge == record.JudgeRevert ||
			f.Judge == record.JudgeBaseline && (f.Field != "" || f.Does() == record.HarmReplaced)
	})
}

// TakesTime reports whether a plan has actions, and whether there may be time between the steps of its workload.
func TakesTime(p *plan.Plan, steps []plan.Step) bool {
	return len(p.Actions) > 0 && !Jumps(steps) &&
		!slices.ContainsFunc(steps, func(s plan.Step) bool { return s.Go != "" || s.Upgrade != nil })
}

// Between is how long there is between the steps, if the workload of the plan's run took so long. In real time it is
// short, because the user waits for it.
func Between(took time.Duration, virtual bool) time.Duration {
	between := unhurriedFor[len(unhurriedFor)-1]
	for _, d := range slices.Backward(unhurriedFor) {
		if took <= d {
			between = d
		}
	}
	if !virtual {
		between = min(between, unhurriedFor[1])
	}
	return between
}

// Unhurried gives a plan without actions these steps, with time between them.
func Unhurried(p *plan.Plan, steps []plan.Step, between time.Duration) {
	p.Description = "There is time between the steps, and nothing is done to the controllers."
	p.Workload, p.Steps = "", nil
	for i := range steps {
		if s := &steps[i]; i > 0 && s.Wait == nil && s.Sleep == 0 {
			p.Steps = append(p.Steps, plan.Step{Sleep: between})
		}
		p.Steps = append(p.Steps, steps[i])
	}
	p.Steps = append(p.Steps, plan.Step{Sleep: between})
}

// Jumps reports whether a workload lets the clock jump. That is hard on all processes: requests expire, and everything
// that is put off comes at once.
func Jumps(steps []plan.Step) bool {
	return slices.ContainsFunc(steps, func(s plan.Step) bool { return s.AdvanceTime > 0 })
}
