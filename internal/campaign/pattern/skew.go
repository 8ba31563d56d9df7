package pattern

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

var skew = Pattern{
	Name: "skew", Finds: "decisions from two different moments", chance: 1, drafts: holdTypes,
}

// skewFor is how long deliveries of one type are held at most.
const skewFor = 3 * time.Second

// holdTypes holds the deliveries of one type of object to a controller while the other types move on: from another
// client's change until the controller has made its next write, or for a time.
func holdTypes(m *moment.Set) (all drafts) {
	for i := range m.Changes {
		for _, by := range m.Changes[i].Taken {
			if m.Changes[i].By != by { // the controller knows what it has written; see ownWriteUnseen
				all = append(all, skewAt(m, i, by))
			}
		}
	}
	return all
}

func skewAt(m *moment.Set, i int, by string) draft {
	c := &m.Changes[i]
	typ := c.Key.Type()
	d := draft{
		signature: m.Signature(i), chance: 1,
		why: fmt.Sprintf("%s hears nothing of objects of type %s from: %s; until its next write, or for %s", by,
			record.In(m.Cluster(i), typ), m.Describe(i), skewFor),
	}
	end := c.Time.Add(skewFor)
	if !slices.ContainsFunc(m.FollowUps(i, by), func(k int) bool { return !m.Changes[k].Time.After(end) }) {
		d.dropped = "the controller has written nothing because of it"
		return d
	}
	// While the change is held, the controller does not write because of it, and nothing follows from such writes.
	follows := map[facts.Key]bool{}
	if !m.Hears(by, i, skewFor, func(o *facts.Change) bool {
		if o.By == by || o.Event == record.Created {
			follows[o.Key] = true
		}
		return (o.Key.Type() != typ || o.Key.Cluster() != c.Key.Cluster()) && !follows[o.Key]
	}) {
		d.dropped = "nothing of another type reaches the controller meanwhile"
		return d
	}
	from, rule := m.When(moment.At("from", plan.BeforeControllerRecv, by), moment.Start, i)
	if d.dropped = rule; rule != "" {
		return d
	}
	var until build.Trigger = m.Window(skewFor)
	if k := m.NextWrite(i, by); k >= 0 {
		// A write that is not like that in all runs is not waited for.
		written, rule := m.When(moment.At("written", plan.AfterControllerWrite, by), from.Occurrence, k)
		if rule == "" {
			until = build.Either(written.Trigger, until)
		}
	}
	scope := typ + "/*/*"
	if key, err := plan.ParseResourceKey(c.Key.Local()); err == nil && key.Namespace == "" {
		scope = typ + "//*"
	}
	d.actions = []*build.Action{
		build.PauseController(by, plan.BeforeControllerRecv).InCluster(m.Cluster(i)).Scope(scope).When(from.Trigger),
		build.ResumeController(by, plan.BeforeControllerRecv).InCluster(m.Cluster(i)).Scope(scope).When(until),
	}
	return d
}
