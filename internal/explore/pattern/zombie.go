package pattern

import (
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// zombieFor is how long the new leader has at most, beyond the usual time, to do what the frozen one was about to do.
const zombieFor = 5 * time.Second

// zombie freezes the leader when it is about to write, until another process has become the leader and has done its
// work. Then the old leader goes on: its write takes effect too late. client-go's leader election does not prevent
// that, so a controller must be able to stand it.
func (g *generator) zombie() {
	for _, by := range g.ref.Controllers {
		why := fmt.Sprintf("a process of %s goes on with a write after another one has become the leader", by)
		switch leases := g.ref.Leases[by]; {
		case len(g.writes[by]) == 0:
		case g.ref.Replicas[by] < 2:
			g.drop(by, why, "the controller runs only one process (replicas: of the suite)")
		case len(leases) == 0:
			g.drop(by, why, "the controller has no leader election by a lease")
		case len(leases) > 1:
			g.drop(by, why, "the controller has several leases, and which of them is for its writes is not known")
		default:
			for _, i := range g.writes[by] {
				g.zombieAt(i, leases[0])
			}
		}
	}
}

// zombieAt freezes the leader before the i-th change, which it is about to make. If the change is undone later, the
// leader goes on then: what it writes is not wanted any more. Otherwise it goes on when the new leader has made the
// change.
func (g *generator) zombieAt(i int, lease string) {
	c := &g.ref.Changes[i]
	why := fmt.Sprintf("a process of %s goes on with its write after another one has become the leader: %s", c.By,
		g.describe(i))
	signature := g.signature(i)
	write, rule := g.beforeWrite(i)
	if rule != "" {
		g.drop(signature, why, rule)
		return
	}
	// An update that changes the holder: the old leader does not renew its lease meanwhile.
	taken := build.Updated(lease).To(object{"spec": object{"holderIdentity": plan.Present}}).
		At(plan.AfterControllerWrite, c.By).Named("taken")
	chance := 0.5
	var thaw build.Trigger
	if k, how := g.reversed(i); k >= 0 {
		if undone, rule := g.when("undone", i, k, plan.AfterAPIServerRecv, g.suite.APIServerNames()[0]); rule == "" {
			// Others may undo the change before there is a new leader.
			late := build.Timeout(zombieFor + 2*g.between(i, k)).Named("late")
			thaw = build.Either(build.Both(taken, undone), build.Sequence(taken, late))
			why += "; the write is undone by then: " + how
			chance = 1
		}
	}
	if thaw == nil {
		// The new leader makes the change for the first time, so it is not counted.
		again, rule := g.trigger("again", start, i, plan.AfterControllerWrite, c.By)
		if rule != "" {
			g.drop(signature, why, rule)
			return
		}
		thaw = build.Sequence(taken, build.Either(again.Repeat(1), build.Timeout(zombieFor).Named("late")))
		why += "; the new leader has made the same write by then"
	}
	g.addWith(chance, signature, why, build.FreezeController(c.By).When(write), build.ThawController(c.By).When(thaw))
}
