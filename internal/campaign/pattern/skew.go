package pattern

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// skewFor is how long deliveries of one type are held at most.
const skewFor = 3 * time.Second

// skew holds what a controller is told of one type of object while the others move on: from a change that somebody else
// has made until the controller has made its next write, or for a time.
func (g *generator) skew() {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		for _, by := range c.Taken {
			if c.By == by {
				continue // the controller knows what it has written; see ownWriteUnseen
			}
			g.skewAt(i, by)
		}
	}
}

func (g *generator) skewAt(i int, by string) {
	c := &g.ref.Changes[i]
	typ := c.Key.Type()
	why := fmt.Sprintf("%s hears nothing of objects of type %s from: %s; until its next write, or for %s", by,
		record.In(g.cluster(i), typ), g.describe(i), skewFor)
	signature := g.signature(i)
	end := c.Time.Add(skewFor)
	if !slices.ContainsFunc(g.followUps(i, by), func(k int) bool { return !g.ref.Changes[k].Time.After(end) }) {
		g.drop(signature, why, "the controller has written nothing because of it")
		return
	}
	// While the change is held, the controller does not write because of it, and nothing follows from such writes.
	follows := map[facts.Key]bool{}
	if !g.hears(by, i, skewFor, func(o *facts.Change) bool {
		if o.By == by || o.Event == record.Created {
			follows[o.Key] = true
		}
		return (o.Key.Type() != typ || o.Key.Cluster() != c.Key.Cluster()) && !follows[o.Key]
	}) {
		g.drop(signature, why, "nothing of another type reaches the controller meanwhile")
		return
	}
	from, rule := g.when("from", start, i, plan.BeforeControllerRecv, by)
	if rule != "" {
		g.drop(signature, why, rule)
		return
	}
	var until build.Trigger = g.window(skewFor)
	if k := g.nextWrite(i, by); k >= 0 {
		// A write that is not like that in all runs is not waited for.
		if written, rule := g.when("written", i, k, plan.AfterControllerWrite, by); rule == "" {
			until = build.Either(written, until)
		}
	}
	scope := typ + "/*/*"
	if key, err := plan.ParseResourceKey(c.Key.Local()); err == nil && key.Namespace == "" {
		scope = typ + "//*"
	}
	g.add(signature, why,
		build.PauseController(by, plan.BeforeControllerRecv).InCluster(g.cluster(i)).Scope(scope).When(from),
		build.ResumeController(by, plan.BeforeControllerRecv).InCluster(g.cluster(i)).Scope(scope).When(until))
}

// nextWrite is the controller's first effective write after the i-th change; -1: there is none.
func (g *generator) nextWrite(i int, by string) int {
	writes := g.writes[by]
	if at, _ := slices.BinarySearch(writes, i+1); at < len(writes) {
		return writes[at]
	}
	return -1
}
