package pattern

import (
	"fmt"
	"maps"
	"slices"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// intermediate restarts the controller after each of its effective writes, and after each annotated call. It must then
// do what it was about to do, also if it is restarted once more at its next write.
func (g *generator) intermediate() {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		if c.By == "" {
			continue
		}
		why := fmt.Sprintf("%s is killed right after its own write: %s", c.By, g.describe(i))
		signature := g.signature(i)
		d, rule := g.when("written", start, i, plan.AfterControllerWrite, c.By)
		if rule != "" {
			g.drop(signature, why, rule)
			continue
		}
		if !g.goesOn(i) {
			g.addWith(0.5, signature, why, build.RestartController(c.By).When(d))
			continue
		}
		g.addWith(1, signature, why, build.RestartController(c.By).When(d))
		k := g.nextWrite(i, c.By)
		if again, rule := g.when("again", i, k, plan.AfterControllerWrite, c.By); rule == "" {
			g.addWith(0.5, "twice "+signature+" / "+g.signature(k),
				fmt.Sprintf("%s, and after its next one, too: %s", why, g.describe(k)),
				build.RestartController(c.By).When(d), build.RestartController(c.By).When(again))
		}
	}
	for _, by := range slices.Sorted(maps.Keys(g.ref.Calls)) {
		calls := g.ref.Calls[by]
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			for n := range calls[name] {
				g.add("call "+by+" "+name, fmt.Sprintf("%s is killed right after its call %d of %s", by, n+1, name),
					build.RestartController(by).When(
						build.Called(name).Named("called").At(plan.AfterAnnotatedCall, by).Repeat(n+1)))
			}
		}
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
