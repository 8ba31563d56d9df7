package generate

import (
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// unobserved keeps the controller from reading an object until a change of the object has been undone. It begins at the
// change, or after one of the writes with which the controller has reacted to it.
func (g *generator) unobserved() {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		undone, how := g.undone(i)
		if undone < 0 {
			continue
		}
		u := &g.ref.Changes[undone]
		for _, by := range c.Taken {
			if !slices.Contains(u.Taken, by) || c.By == by {
				continue
			}
			if u.By == by {
				g.drop(g.signature(i), fmt.Sprintf("%s cannot read %s while it changes and changes back", by, c.Key),
					"the controller itself changes it back, and cannot do so while its reads are held")
				continue
			}
			moments := []int{i}
			for _, k := range g.reactions(i, by) {
				if k < undone {
					moments = append(moments, k)
				}
			}
			for _, k := range moments {
				timing := plan.AfterControllerRecv
				if k != i {
					timing = plan.AfterControllerWrite
				}
				why := fmt.Sprintf("%s cannot read %s from: %s; until: %s", by, c.Key, g.describe(k), how)
				signature := g.signature(i) + " / " + g.signature(k)
				if g.full(signature, why) {
					continue
				}
				from, rule := g.trigger("from", start, k, timing, by)
				var until *build.Condition
				if rule == "" {
					until, rule = g.trigger("until", k, undone, plan.AfterControllerRecv, by)
				}
				if rule != "" {
					g.drop(signature, why, rule)
					continue
				}
				scope, _ := g.object(i)
				g.add(signature, why,
					build.PauseController(by, plan.BeforeControllerRead).Scope(scope).When(from),
					build.ResumeController(by, plan.BeforeControllerRead).Scope(scope).When(until))
			}
		}
	}
}
