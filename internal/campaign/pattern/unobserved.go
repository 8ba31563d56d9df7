package pattern

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

var unobserved = Pattern{Name: "unobserved", Finds: "missed transitions", chance: 4, foremost: true, drafts: holdReads}

// unobservedFor is how much longer than twice the usual time reads are held at most.
const unobservedFor = 3 * time.Second

// holdReads keeps the controller from reading an object until a change of the object has been undone. It begins at the
// change, or after one of the writes with which the controller has reacted to it.
func holdReads(m *moment.Set) (all drafts) {
	for i := range m.Changes {
		c := &m.Changes[i]
		for _, u := range m.Undone(i) {
			if c.Event == record.Created && u.By != moment.Restored {
				continue // a controller that has not seen an object yet is only slow
			}
			for _, by := range c.Taken {
				if slices.Contains(m.Changes[u.At].Taken, by) && c.By != by {
					all = append(all, unobservedUntil(m, i, by, u)...)
				}
			}
		}
	}
	return all
}

// unobservedUntil makes the plans in which a controller cannot read a change's object until that change is undone.
func unobservedUntil(m *moment.Set, i int, by string, u moment.Undoing) (all drafts) {
	chance := missed(m, i)
	if u.By != moment.Restored {
		chance /= 4 // in the end the controller is shown what it had missed, and something more
	}
	if m.Changes[u.At].By == by {
		if u.By == moment.Restored {
			all.drop(m.Signature(i),
				fmt.Sprintf("%s cannot read %s while it changes and changes back", by, m.Changes[i].Key),
				"the controller itself changes it back, and cannot do so while its reads are held")
		}
		return all
	}
	all = append(all, unobservedFrom(m, i, i, by, u, chance))
	for n, k := range m.Reactions(i, by) {
		if k >= u.At {
			break
		}
		more := chance
		if n == 0 {
			more = 2 * chance // it has begun to react, and the rest is still to be done
		}
		all = append(all, unobservedFrom(m, i, k, by, u, more))
	}
	return all
}

// missed is how likely a controller errs if it does not see a change: more so if the change asks for something else.
func missed(m *moment.Set, i int) float64 {
	inSpec := func(path string) bool { return strings.HasPrefix(path, "spec.") }
	if slices.ContainsFunc(facts.Paths(m.Changed[i]), inSpec) {
		return 2
	}
	return 1
}

// unobservedFrom holds a controller's reads of the i-th change's object from the k-th change on until it is undone.
func unobservedFrom(m *moment.Set, i, k int, by string, u moment.Undoing, chance float64) draft {
	timing := plan.AfterControllerRecv
	if k != i {
		timing = plan.AfterControllerWrite
	}
	d := draft{
		signature: m.Signature(i) + " / " + m.Signature(k), chance: chance,
		why: fmt.Sprintf("%s cannot read %s from: %s; until: %s", by, m.Changes[i].Key, m.Describe(k), u.How),
	}
	if other := namesakeIn(m, i); other != "" {
		d.dropped = fmt.Sprintf("before a cached read its cluster is unknown: reads of the "+
			"object of this name in %s would be held, too", other)
		return d
	}
	from, until, rule := m.Both(
		k, moment.At("from", timing, by), u.At, moment.At("until", plan.AfterControllerRecv, by),
	)
	if d.dropped = rule; rule != "" {
		return d
	}
	// The workload may wait for the controller before it undoes the change. Then nothing would ever go on.
	limit, rule := m.Limit(m.Runs.Longest(from.Occurrence, until.Occurrence), unobservedFor)
	if d.dropped = rule; rule != "" {
		return d
	}
	d.why += fmt.Sprintf("; for %s at most", limit)
	scope, _ := m.Object(i)
	d.actions = []*build.Action{
		build.PauseController(by, plan.BeforeControllerRead).InCluster(m.Cluster(i)).Scope(scope).When(from.Trigger),
		build.ResumeController(by, plan.BeforeControllerRead).InCluster(m.Cluster(i)).Scope(scope).
			When(build.Either(until.Trigger, build.Timeout(limit).Named("late"))),
	}
	return d
}

// namesakeIn returns another cluster in which there is an object of the same type and name as that of a change, at any
// time of the first run. It is empty if there is none.
func namesakeIn(m *moment.Set, i int) (cluster string) {
	key := m.Changes[i].Key
	for k := range m.Changes {
		if in := m.Cluster(k); in != key.Cluster() && m.Changes[k].Key.Local() == key.Local() &&
			(cluster == "" || in < cluster) {
			cluster = in
		}
	}
	return cluster
}
