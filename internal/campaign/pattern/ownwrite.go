package pattern

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// unseenFor is how long a controller does not see its own write. Its other events reach it meanwhile.
const unseenFor = 3 * time.Second

// ownWriteUnseen holds the delivery of what the controller itself writes: other events make it reconcile while its
// cache does not have its own write yet.
func (g *generator) ownWriteUnseen() {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		if c.By == "" || !slices.Contains(c.Taken, c.By) {
			continue
		}
		why := fmt.Sprintf("%s does not see its own write for %s: %s", c.By, unseenFor, g.describe(i))
		signature := g.signature(i)
		if !g.hears(c.By, i, unseenFor, func(o *facts.Change) bool { return o.Key != c.Key }) {
			g.drop(signature, why, "nothing else reaches the controller meanwhile")
			continue
		}
		// The delivery may come before the write is answered.
		d, rule := g.when("write", start, i, plan.BeforeControllerWrite, c.By)
		if rule != "" {
			g.drop(signature, why, rule)
			continue
		}
		scope, _ := g.object(i)
		g.add(signature, why,
			build.PauseController(c.By, plan.BeforeControllerRecv).InCluster(g.cluster(i)).Scope(scope).When(d),
			build.ResumeController(c.By, plan.BeforeControllerRecv).InCluster(g.cluster(i)).Scope(scope).
				When(g.window(unseenFor)))
	}
}

// hears reports whether a controller takes in a change of a kind within a time after the i-th.
func (g *generator) hears(by string, i int, within time.Duration, kind func(*facts.Change) bool) bool {
	end := g.ref.Changes[i].Time.Add(within)
	for k := i + 1; k < len(g.ref.Changes); k++ {
		c := &g.ref.Changes[k]
		if c.Time.After(end) {
			return false
		}
		if kind(c) && slices.Contains(c.Taken, by) {
			return true
		}
	}
	return false
}
