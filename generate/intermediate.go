package generate

import (
	"fmt"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// intermediate restarts the controller after each of its effective writes. It must then do what it was about to do.
func (g *generator) intermediate() {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		if c.By == "" {
			continue
		}
		why := fmt.Sprintf("%s is killed right after its own write: %s", c.By, describe(c))
		signature := g.signature(c)
		d, rule := g.trigger("written", start, i, plan.AfterControllerWrite, c.By)
		if rule != "" {
			g.drop(signature, why, rule)
			continue
		}
		g.add(signature, why, build.RestartController(c.By).When(d))
	}
}
