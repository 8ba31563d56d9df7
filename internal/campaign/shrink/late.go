package shrink

import (
	"context"
	"fmt"

	"github.com/trommel-dev/trommel/coordinator/order"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// How many steps that were slow in a run are tried as the only late one, and how many of these in pairs.
const (
	singlesTried = 24
	pairedTried  = 6
)

// makeLate takes the schedule away if the actions alone show the finding. Otherwise it replaces a schedule that a seed
// or a list of choices makes by one in which a step, or two, are late, if that shows the finding too. The record is
// that of a run of the plan. The error is that of shows.
func (s *search) makeLate(ctx context.Context, r *record.Run) error {
	if len(s.best.Actions) > 0 && s.best.Schedule != nil {
		if ok, err := s.try(ctx, edit{"without the schedule", func(p *plan.Plan) bool {
			p.Schedule = nil
			return true
		}}); err != nil || ok {
			return err
		}
	}
	if now := s.best.Schedule; now == nil || now.Strategy == plan.FIFO && len(now.Choices) == 0 {
		return nil
	}
	choices, _ := r.Choices()
	slow := order.Slowest(choices)
	slow = slow[:min(len(slow), singlesTried)]
	late := func(what string, steps ...plan.LateStep) (bool, error) {
		return s.try(ctx, edit{what, func(p *plan.Plan) bool {
			p.Schedule = &plan.Schedule{Late: steps}
			return true
		}})
	}
	for _, p := range slow {
		if ok, err := late("if only "+p.What+" is late", p.Late); err != nil || ok {
			return err
		}
	}
	for i, p := range slow[:min(len(slow), pairedTried)] {
		for _, q := range slow[:i] {
			what := fmt.Sprintf("if only %s and %s are late", q.What, p.What)
			if ok, err := late(what, q.Late, p.Late); err != nil || ok {
				return err
			}
		}
	}
	return nil
}

// lateSteps are those of the schedule.
func lateSteps() parts {
	return parts{
		list: func(p *plan.Plan) (all []string) {
			if p.Schedule == nil {
				return nil
			}
			for _, l := range p.Schedule.Late {
				all = append(all, fmt.Sprintf("late step %d of %s", l.Step, l.Stream))
			}
			return all
		},
		drop: func(p *plan.Plan, gone func(int) bool) bool {
			left := *p.Schedule
			left.Late = without(left.Late, gone)
			p.Schedule = &left
			return true
		},
	}
}
