package pattern

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// Harmless returns a few plans that do what happens to each controller now and then: it is restarted when it has
// nothing to do, or one of its writes is refused once. What a status says after that, and nothing else does, it says of
// what has happened. Why of each candidate completes "it also ends like that". See GenerateFor about steps.
func Harmless(suite *plan.Suite, steps []plan.Step, ref *reference.Reference) []Candidate {
	g := newGenerator(suite, ref)
	if g.own = steps; len(steps) > 0 {
		g.steps = steps
	}
	g.pattern = Pattern{Name: "harmless", chance: 1}
	for _, by := range ref.Controllers {
		if len(g.writes[by]) == 0 {
			continue
		}
		why := fmt.Sprintf("if %s is restarted when it has nothing to do", by)
		g.disturb(g.steady(by), by, by, why, build.RestartController(by))
		if i, d := g.firstWrite(by); d != nil {
			scope, _ := g.object(i)
			c := &ref.Changes[i]
			g.add(by+" refused", fmt.Sprintf("if one write of %s is refused (%s)", by, g.describe(i)),
				build.FailCall(by, plan.Refused, http.StatusInternalServerError).Scope(scope).
					Operations(plan.Operation(c.Op)).When(d))
		}
	}
	var all []Candidate
	for _, r := range g.all {
		if r.Plan != nil {
			if r.Plan.Pace == "" {
				r.Plan.Pace = ref.Pace
			}
			all = append(all, r.Candidate)
		}
	}
	return all
}

// firstWrite is a controller's first write of something else than custom resources that a trigger can name, preferably
// the first creation: a controller tells of its errors in the status of a custom resource. The condition is nil if
// there is none.
func (g *generator) firstWrite(by string) (i int, d build.Trigger) {
	writes := slices.DeleteFunc(slices.Clone(g.writes[by]), func(i int) bool {
		return reference.IsCustom(g.ref.Changes[i].Key.Type())
	})
	slices.SortStableFunc(writes, func(a, b int) int {
		rank := func(i int) int {
			if g.ref.Changes[i].Event == record.Created {
				return 0
			}
			return 1
		}
		return rank(a) - rank(b)
	})
	for _, i := range writes {
		if d, rule := g.beforeWrite(i); rule == "" {
			return i, d
		}
	}
	return 0, nil
}
