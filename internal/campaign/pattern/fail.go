package pattern

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// lostAnswer lets each effective write of a controller take effect, and tells the controller that its timeout has
// expired. It does not know then whether it has written.
func (g *generator) lostAnswer() {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		if c.By == "" {
			continue
		}
		why := fmt.Sprintf("%s gets no answer to its own write, which takes effect: %s", c.By, g.describe(i))
		signature := g.signature(i)
		d, rule := g.beforeWrite(i)
		if rule != "" {
			g.drop(signature, why, rule)
			continue
		}
		scope, _ := g.object(i)
		g.add(signature, why,
			build.FailCall(c.By, plan.Lost, 0).InCluster(g.cluster(i)).Scope(scope).
				Operations(plan.Operation(c.Op)).When(d))
	}
	g.calls(func(by, name string, n int) {
		why := fmt.Sprintf("%s gets no answer to its call %d of %s, which takes effect", by, n, name)
		if !slices.Contains(g.ref.Failing[by], name) {
			g.drop("call "+by+" "+name, why, "the function returns no error")
			return
		}
		g.add("call "+by+" "+name, why, build.FailCall(by, plan.Lost, 0).Call(name).When(
			build.Called(name).Named("called").At(plan.BeforeAnnotatedCall, by).Repeat(n)))
	})
}

// deniedFor is how long the API server refuses a kind of calls.
const deniedFor = 3 * time.Second

// refusals are the HTTP statuses with which calls are refused.
var refusals = []int{
	http.StatusForbidden, http.StatusInternalServerError, http.StatusConflict, http.StatusTooManyRequests,
}

// denied refuses all writes of a controller of one kind to one type of object for a while, from the first one on. It
// must try again.
func (g *generator) denied() {
	begun := map[string]bool{} // by controller, type and operation
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		if c.By == "" {
			continue
		}
		kind := fmt.Sprintf("%s %s", record.In(g.cluster(i), c.Key.Type()), c.Op)
		if by := c.By + " " + kind; !begun[by] {
			d, rule := g.beforeWrite(i)
			begun[by] = rule == ""
			for _, status := range refusals {
				why := fmt.Sprintf("every %s of a %s by %s is refused (%d %s) for %s, from here on: %s", c.Op,
					record.In(g.cluster(i), c.Key.Type()), c.By, status, http.StatusText(status), deniedFor,
					g.describe(i))
				signature := fmt.Sprintf("%s %d", kind, status)
				if rule != "" {
					g.drop(signature, why, rule)
					continue
				}
				scope := c.Key.Type() + "/*/*"
				g.add(signature, why,
					build.FailCall(c.By, plan.Refused, status).InCluster(g.cluster(i)).Scope(scope).
						Operations(plan.Operation(c.Op)).UntilRestored().When(d),
					build.RestoreCalls(c.By).InCluster(g.cluster(i)).Scope(scope).When(g.window(deniedFor)))
			}
		}
	}
}

// beforeWrite returns the condition that a controller's write satisfies before it is sent. If there is none, rule says
// why.
func (g *generator) beforeWrite(i int) (d build.Trigger, rule string) {
	return g.beforeWriteAfter(start, i)
}

// beforeWriteAfter is beforeWrite for a trigger that is enabled at the change before it.
func (g *generator) beforeWriteAfter(before, i int) (d build.Trigger, rule string) {
	c := &g.ref.Changes[i]
	object, _ := g.object(i)
	if c.Generated && c.Event == record.Created && !strings.HasSuffix(object, "*") {
		return nil, "the API server generates its name: nothing names it before the call"
	}
	return g.when("write", before, i, plan.BeforeControllerWrite, c.By)
}
