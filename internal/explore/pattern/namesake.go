package pattern

import (
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// goneWithin is how long another client waits at most until what it has deleted is gone. Then it creates it in any
// case.
const goneWithin = 20 * time.Second

// namesake lets the controller's update of somebody else's object take effect, and loses the answer. Before the
// controller tries again, another client deletes the object and creates it anew. What the controller does now, it does
// to another object of that name.
func (g *generator) namesake() {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		if c.By == "" || c.Event != record.Updated || g.deletes(i) || c.Generated || !reference.IsCustom(c.Key.Type()) {
			continue
		}
		why := fmt.Sprintf("%s gets no answer to its own write, which takes effect: %s; before it tries again, "+
			"another client deletes the object and creates it anew", c.By, g.describe(i))
		signature := g.signature(i)
		manifest := g.askedFor(i)
		if manifest == nil {
			g.drop(signature, why, "nobody else has created the object")
			continue
		}
		write, rule := g.beforeWrite(i)
		if rule != "" {
			g.drop(signature, why, rule)
			continue
		}
		scope, _ := g.object(i)
		server := g.suite.APIServerNames()[0]
		tell, rule := g.trigger("took", start, i, plan.AfterAPIServerRecv, server)
		if rule != "" {
			g.drop(signature, why, rule)
			continue
		}
		// Counted from the write on, it is the first one.
		took := tell.Repeat(1)
		gone := build.Deleted(scope).Named("gone").At(plan.AfterAPIServerRecv, server)
		g.add(signature, why,
			build.FailCall(c.By, plan.Lost, 0).Scope(scope).Operations(plan.Operation(c.Op)).When(write),
			build.Delete(scope).When(took),
			build.Apply(manifest).When(build.Either(gone, build.Timeout(goneWithin).Named("late"))))
	}
}

// askedFor is the object of the i-th change as its creator would create it then; nil: a controller under test has
// created it, or it was there before.
func (g *generator) askedFor(i int) object {
	var asked object
	for _, k := range g.runs[0].byKey[g.ref.Changes[i].Key] {
		c := &g.ref.Changes[k]
		switch {
		case k > i:
			return asked
		case c.Event == record.Created && c.By != "", c.Cur == nil:
			asked = nil
		case c.Event == record.Created, c.By == "" && asked != nil:
			asked = reference.Anew(c.Cur, metadata.Of(c.Cur))
		}
	}
	return asked
}
