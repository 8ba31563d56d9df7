package pattern

import (
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// intermediate restarts the controller after each of its effective writes. It must then do what it was about to do.
func (g *generator) intermediate() {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		if c.By == "" {
			continue
		}
		why := fmt.Sprintf("%s is killed right after its own write: %s", c.By, g.describe(i))
		signature := g.signature(i)
		if g.full(signature, why) {
			continue
		}
		d, rule := g.trigger("written", start, i, plan.AfterControllerWrite, c.By)
		if rule != "" {
			g.drop(signature, why, rule)
			continue
		}
		chance := 0.5
		if g.goesOn(i) {
			chance = 1
		}
		g.addWith(chance, signature, why, build.RestartController(c.By).When(d))
	}
}

// goesOn reports whether the reconcile that made a change writes more after it, or may do so: what a restart then
// interrupts is half done.
func (g *generator) goesOn(i int) bool {
	c := &g.ref.Changes[i]
	writes := g.writes[c.By]
	at, _ := slices.BinarySearch(writes, i+1)
	return slices.ContainsFunc(writes[at:], func(k int) bool { return g.ref.Changes[k].Reconcile == c.Reconcile })
}
