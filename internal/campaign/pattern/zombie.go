package pattern

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

var zombie = Pattern{
	Name: "zombie", Finds: "writes after the lease was lost that undo what the new leader has done", chance: 2,
	drafts: freezeLeaders,
}

// zombieFor is how long the new leader has at most, beyond the usual time, to do what the frozen one was about to do.
const zombieFor = 5 * time.Second

// freezeLeaders freezes the leader when it is about to write, until another process has become the leader and has done
// its work. Then the old leader goes on: its write takes effect too late. client-go's leader election does not prevent
// that, so a controller must be able to stand it.
func freezeLeaders(m *moment.Set) (all drafts) {
	for _, by := range m.Baseline.Controllers {
		why := fmt.Sprintf("a process of %s goes on with a write after another one has become the leader", by)
		switch leases := m.Baseline.Leases[by]; {
		case len(m.Writes[by]) == 0:
		case m.Baseline.Replicas[by] < 2:
			all.drop(by, why, "the controller runs only one process (replicas: of the suite)")
		case len(leases) == 0:
			all.drop(by, why, "the controller has no leader election by a lease")
		case len(leases) > 1:
			all.drop(by, why, "the controller has several leases, and which of them is for its writes is not known")
		default:
			for _, i := range m.Writes[by] {
				all = append(all, zombieAt(m, i, leases[0])...)
			}
		}
	}
	return all
}

// zombieAt freezes the leader before a change that it is about to make. If the change is undone later, the leader goes
// on then: its write is no longer wanted. Otherwise it goes on when the new leader has made the change.
func zombieAt(m *moment.Set, i int, lease string) (all drafts) {
	c := &m.Changes[i]
	why := fmt.Sprintf("a process of %s goes on with its write after another one has become the leader: %s", c.By,
		m.Describe(i))
	signature := m.Signature(i)
	write, rule := m.BeforeWrite(i)
	if rule != "" {
		all.drop(signature, why, rule)
		return all
	}
	// An update that changes the holder: the old leader does not renew its lease meanwhile.
	taken := build.Updated(lease).To(object{"spec": object{"holderIdentity": plan.Present}}).
		At(plan.AfterControllerWrite, c.By).InCluster(m.Home(c.By)).Named("taken")
	chance := 0.5
	var thaw build.Trigger
	if k, how := m.Reversed(i); k >= 0 {
		undone, rule := m.When(moment.At("undone", plan.AfterAPIServerRecv, m.Server(k)), write.Occurrence, k)
		if rule == "" {
			// Others may undo the change before there is a new leader.
			late := build.Timeout(zombieFor + 2*m.Runs.Longest(write.Occurrence, undone.Occurrence)).Named("late")
			thaw = build.Either(build.Both(taken, undone.Trigger), build.Sequence(taken, late))
			why += "; the write is undone by then: " + how
			chance = 1
		}
	}
	if thaw == nil {
		// The new leader makes the change for the first time, so it is not counted.
		again, rule := m.Like(moment.At("again", plan.AfterControllerWrite, c.By), i)
		if rule != "" {
			all.drop(signature, why, rule)
			return all
		}
		thaw = build.Sequence(taken, build.Either(again, build.Timeout(zombieFor).Named("late")))
		why += "; the new leader has made the same write by then"
	}
	all.addWith(chance, signature, why,
		build.FreezeController(c.By).When(write.Trigger), build.ThawController(c.By).When(thaw))
	return append(all, zombieAtItsEnd(m, i, lease, write.Trigger, thaw)...)
}

const (
	// usualLease is for how long a lease is held without being renewed, by client-go's defaults. A leader that fails to
	// renew its lease stops when two thirds of that time are over; they count from its first failure, or later.
	usualLease = 15 * time.Second
	// justBefore is how long before that moment it is frozen.
	justBefore = 500 * time.Millisecond
)

// zombieAtItsEnd lets the leader's renewals fail from a change on that it is about to make, and freezes it at the last
// moment at which it still leads. While it is frozen it should have stopped, and then the lease ends. It goes on as in
// zombieAt: it makes its write, or gives it up, while it stops. That is the same for all writes, so one plan for each
// controller suffices.
func zombieAtItsEnd(m *moment.Set, i int, lease string, write, thaw build.Trigger) drafts {
	object, exact := m.Object(i)
	if !exact {
		return nil // other objects of such a name would be held, too
	}
	by := m.Changes[i].By
	stops := cmp.Or(m.Baseline.LeaseLasts[by], usualLease) * 2 / 3
	return drafts{{
		signature: "the end of " + lease, chance: 0.5, once: true,
		why: fmt.Sprintf("a process of %s cannot renew its lease, and goes on with its write after it should have "+
			"stopped and another one has become the leader: %s", by, m.Describe(i)),
		actions: []*build.Action{
			build.PauseController(by, plan.BeforeControllerWrite).InCluster(m.Cluster(i)).Scope(object).When(write),
			build.FailCall(by, plan.Refused, http.StatusServiceUnavailable).InCluster(m.Home(by)).Scope(lease).
				UntilRestored().When(build.AtOnce()),
			build.FreezeController(by).When(build.Timeout(stops - justBefore)),
			// The new leader can take the lease, and the write is sent when the old one goes on.
			build.RestoreCalls(by).InCluster(m.Home(by)).Scope(lease).When(build.AtOnce()),
			build.ResumeController(by, plan.BeforeControllerWrite).InCluster(m.Cluster(i)).Scope(object).
				When(build.AtOnce()),
			build.ThawController(by).When(thaw),
		},
	}}
}
