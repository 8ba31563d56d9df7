package pattern

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// Harmless returns a few plans that do what happens to each controller now and then: it is restarted when it has
// nothing to do, or one of its writes is refused once, or one of each other kind is. What a status says after that, and
// nothing else does, it says of what has happened. Why of each candidate completes "it also ends like that". See
// GenerateFor about steps.
func Harmless(suite *plan.Suite, steps []plan.Step, ref *baseline.Baseline) []Candidate {
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
			g.add(by+" refused", fmt.Sprintf("if one write of %s is refused (%s)", by, g.describe(i)), g.refuse(i, d))
			g.refuseOthers(by, i)
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

// refuse refuses the i-th change's write once.
func (g *generator) refuse(i int, d build.Trigger) *build.Action {
	scope, _ := g.object(i)
	c := &g.ref.Changes[i]
	return build.FailCall(c.By, plan.Refused, http.StatusInternalServerError).InCluster(g.cluster(i)).Scope(scope).
		Operations(plan.Operation(c.Op)).When(d)
}

// refuseOthers refuses one write of each kind, type and operation, of a controller that a trigger can name, but of the
// kind of the i-th change: a status may tell of each kind in another way.
func (g *generator) refuseOthers(by string, i int) {
	kind := func(i int) string { return g.ref.Changes[i].Key.Type() + " " + string(g.ref.Changes[i].Op) }
	done := map[string]bool{kind(i): true}
	last := start
	var actions []*build.Action
	var words []string
	for _, k := range g.writes[by] {
		if done[kind(k)] || facts.IsCustom(g.ref.Changes[k].Key.Type()) {
			continue
		}
		d, rule := g.beforeWriteAfter(last, k)
		if rule != "" {
			continue
		}
		done[kind(k)], last = true, k
		actions = append(actions, g.refuse(k, d))
		words = append(words, g.describe(k))
	}
	if len(actions) > 0 {
		g.add(by+" refused others", fmt.Sprintf("if one write of each kind of %s is refused (%s)", by,
			strings.Join(words, "; ")), actions...)
	}
}

// firstWrite is a controller's first write of something else than custom resources that a trigger can name, preferably
// the first creation: a controller tells of its errors in the status of a custom resource. The condition is nil if
// there is none.
func (g *generator) firstWrite(by string) (i int, d build.Trigger) {
	writes := slices.DeleteFunc(slices.Clone(g.writes[by]), func(i int) bool {
		return facts.IsCustom(g.ref.Changes[i].Key.Type())
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
