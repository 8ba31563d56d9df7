package pattern

import (
	"fmt"
	"maps"
	"slices"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// intermediate restarts the controller after each of its effective writes, and after each annotated call. It must then
// do what it was about to do.
func (g *generator) intermediate() { g.killed("", build.RestartController) }

// killed kills the controller by an action after each of its effective writes, and after each annotated call. Then says
// what happens after that.
func (g *generator) killed(then string, by func(controller string) *build.Action) {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		if c.By == "" {
			continue
		}
		why := fmt.Sprintf("%s is killed right after its own write: %s%s", c.By, g.describe(i), then)
		signature := g.signature(i)
		d, rule := g.when("written", start, i, plan.AfterControllerWrite, c.By)
		if rule != "" {
			g.drop(signature, why, rule)
			continue
		}
		chance := 0.5
		if g.goesOn(i) {
			chance = 1
		}
		g.addWith(chance, signature, why, by(c.By).When(d))
	}
	g.calls(func(caller, name string, n int) {
		g.add("call "+caller+" "+name,
			fmt.Sprintf("%s is killed right after its call %d of %s%s", caller, n, name, then),
			by(caller).When(build.Called(name).Named("called").At(plan.AfterAnnotatedCall, caller).Repeat(n)))
	})
}

// calls calls f for each annotated call that a controller makes in the baseline, the n-th of its function; the first
// is 1.
func (g *generator) calls(f func(by, name string, n int)) {
	for _, by := range slices.Sorted(maps.Keys(g.ref.Calls)) {
		for _, name := range slices.Sorted(maps.Keys(g.ref.Calls[by])) {
			for n := range g.ref.Calls[by][name] {
				f(by, name, n+1)
			}
		}
	}
}

// twice restarts the controller after an effective write that its reconcile goes on after, and the process that is
// started then after its next write.
func (g *generator) twice() {
	for i := range g.ref.Changes {
		by := g.ref.Changes[i].By
		k := g.nextWrite(i, by)
		if by == "" || k < 0 || !g.goesOn(i) {
			continue
		}
		why := fmt.Sprintf("%s is killed right after its own write: %s; and again after the next one: %s", by,
			g.describe(i), g.describe(k))
		signature := g.signature(i) + " / " + g.signature(k)
		d, again, rule := g.both(
			i, point{"written", plan.AfterControllerWrite, by}, k, point{"again", plan.AfterControllerWrite, by},
		)
		if rule != "" {
			g.drop(signature, why, rule)
			continue
		}
		g.add(signature, why, build.RestartController(by).When(d), build.RestartController(by).When(again))
	}
}

// goesOn reports whether the reconcile that made a change writes more after it, or may do so: what a restart then
// interrupts is half done.
func (g *generator) goesOn(i int) bool { return len(g.goingOn(i)) > 0 }

// goingOn lists the writes after the i-th change of the reconcile that has made it, as far as that is known.
func (g *generator) goingOn(i int) (writes []int) {
	c := &g.ref.Changes[i]
	all := g.writes[c.By]
	at, _ := slices.BinarySearch(all, i+1)
	for _, k := range all[at:] {
		if g.ref.Changes[k].Reconcile == c.Reconcile {
			writes = append(writes, k)
		}
	}
	return writes
}
