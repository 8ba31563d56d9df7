package pattern

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
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
		At(plan.AfterControllerWrite, c.By).InCluster(g.home(c.By)).Named("taken")
	chance := 0.5
	var thaw build.Trigger
	if k, how := g.reversed(i); k >= 0 {
		if undone, rule := g.when("undone", i, k, plan.AfterAPIServerRecv, g.server(k)); rule == "" {
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
	g.zombieAtItsEnd(i, lease, write, thaw)
}

const (
	// usualLease is for how long a lease is held without being renewed, by client-go's defaults. A leader that fails to
	// renew its lease stops when two thirds of that time are over; they count from its first failure, or later.
	usualLease = 15 * time.Second
	// justBefore is how long before that moment it is frozen.
	justBefore = 500 * time.Millisecond
)

// zombieAtItsEnd lets the leader's renewals fail from the i-th change on, which it is about to make, and freezes it at
// the last moment at which it still leads. While it is frozen it should have stopped, and then the lease ends. It goes
// on as in zombieAt: what it was about to do, it does, or gives up, while it stops. That is the same for all writes, so
// one plan for each controller suffices.
func (g *generator) zombieAtItsEnd(i int, lease string, write, thaw build.Trigger) {
	by := g.ref.Changes[i].By
	signature := "the end of " + lease
	if slices.ContainsFunc(g.all, func(r ranked) bool { return r.Signature == signature && r.Plan != nil }) {
		return
	}
	object, exact := g.object(i)
	if !exact {
		return // other objects of such a name would be held, too
	}
	why := fmt.Sprintf("a process of %s cannot renew its lease, and goes on with its write after it should have "+
		"stopped and another one has become the leader: %s", by, g.describe(i))
	stops := cmp.Or(g.ref.LeaseLasts[by], usualLease) * 2 / 3
	g.addWith(0.5, signature, why,
		build.PauseController(by, plan.BeforeControllerWrite).InCluster(g.cluster(i)).Scope(object).When(write),
		build.FailCall(by, plan.Refused, http.StatusServiceUnavailable).InCluster(g.home(by)).Scope(lease).
			UntilRestored().When(build.AtOnce()),
		build.FreezeController(by).When(build.Timeout(stops-justBefore)),
		// The new leader can take the lease, and the write is sent when the old one goes on.
		build.RestoreCalls(by).InCluster(g.home(by)).Scope(lease).When(build.AtOnce()),
		build.ResumeController(by, plan.BeforeControllerWrite).InCluster(g.cluster(i)).Scope(object).
			When(build.AtOnce()),
		build.ThawController(by).When(thaw))
}
