package pattern

import (
	"fmt"
	"net/http"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

var denied = Pattern{
	Name: "denied", Finds: "errors that are swallowed, and work that is given up", chance: 1, drafts: refuseKinds,
}

// deniedFor is how long the API server refuses a kind of calls.
const deniedFor = 3 * time.Second

// refusals are the HTTP statuses with which calls are refused.
var refusals = []int{
	http.StatusForbidden, http.StatusInternalServerError, http.StatusConflict, http.StatusTooManyRequests,
}

// refuseKinds refuses all writes of a controller of one kind to one type of object for a while, from the first one on.
// The controller must try again.
func refuseKinds(m *moment.Set) (all drafts) {
	begun := map[string]bool{} // by controller, type and operation
	for i := range m.Changes {
		c := &m.Changes[i]
		typ := record.In(m.Cluster(i), c.Key.Type())
		kind := fmt.Sprintf("%s %s", typ, c.Op)
		by := c.By + " " + kind
		if c.By == "" || begun[by] {
			continue
		}
		write, rule := m.BeforeWrite(i)
		begun[by] = rule == ""
		for _, status := range refusals {
			why := fmt.Sprintf("every %s of a %s by %s is refused (%d %s) for %s, from here on: %s", c.Op, typ, c.By,
				status, http.StatusText(status), deniedFor, m.Describe(i))
			signature := fmt.Sprintf("%s %d", kind, status)
			if rule != "" {
				all.drop(signature, why, rule)
				continue
			}
			scope := c.Key.Type() + "/*/*"
			all.add(signature, why,
				build.FailCall(c.By, plan.Refused, status).InCluster(m.Cluster(i)).Scope(scope).
					Operations(plan.Operation(c.Op)).UntilRestored().When(write.Trigger),
				build.RestoreCalls(c.By).InCluster(m.Cluster(i)).Scope(scope).When(m.Window(deniedFor)))
		}
	}
	return all
}
