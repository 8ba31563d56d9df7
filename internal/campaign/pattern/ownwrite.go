package pattern

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

var ownWriteUnseen = Pattern{
	Name: "own-write-unseen", Finds: "duplicates, and decisions that count on the controller's own cache", chance: 2,
	drafts: holdOwnWrites,
}

// unseenFor is how long a controller does not see its own write. Its other events reach it meanwhile.
const unseenFor = 3 * time.Second

// holdOwnWrites holds the delivery of what the controller itself writes. Other events make it reconcile while its cache
// does not have its own write yet.
func holdOwnWrites(m *moment.Set) (all drafts) {
	for i := range m.Changes {
		c := &m.Changes[i]
		if c.By == "" || !slices.Contains(c.Taken, c.By) {
			continue
		}
		why := fmt.Sprintf("%s does not see its own write for %s: %s", c.By, unseenFor, m.Describe(i))
		signature := m.Signature(i)
		if !m.Hears(c.By, i, unseenFor, func(o *facts.Change) bool { return o.Key != c.Key }) {
			all.drop(signature, why, "nothing else reaches the controller meanwhile")
			continue
		}
		// The delivery may come before the write is answered.
		write, rule := m.When(moment.At("write", plan.BeforeControllerWrite, c.By), moment.Start, i)
		if rule != "" {
			all.drop(signature, why, rule)
			continue
		}
		scope, _ := m.Object(i)
		all.add(signature, why,
			build.PauseController(c.By, plan.BeforeControllerRecv).InCluster(m.Cluster(i)).Scope(scope).
				When(write.Trigger),
			build.ResumeController(c.By, plan.BeforeControllerRecv).InCluster(m.Cluster(i)).Scope(scope).
				When(m.Window(unseenFor)))
	}
	return all
}
