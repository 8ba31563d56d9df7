package pattern

import (
	"fmt"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// conflict changes an object, as another client, between the controller's read of it and the update that rests on the
// read. The API server refuses the update; the controller must try again. It changes an annotation that means
// nothing to anybody, and that is masked.
func (g *generator) conflict() {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		if c.By == "" || c.Event == record.Created || c.Op == wire.Delete {
			continue
		}
		why := fmt.Sprintf("another client changes %s (the annotation %s) when %s is about to write it: %s", c.Key,
			baseline.ConflictAnnotation, c.By, g.describe(i))
		signature := g.signature(i)
		key, _ := g.object(i)
		rule := ""
		if !restsOnVersion(c) {
			rule = "the write does not say which version it rests on: nothing can conflict with it"
		}
		var d build.Trigger
		if rule == "" {
			d, rule = g.when("write", start, i, plan.BeforeControllerWrite, c.By)
		}
		if rule != "" {
			g.drop(signature, why, rule)
			continue
		}
		g.add(signature, why, build.Patch(key, object{"metadata": object{"annotations": object{
			baseline.ConflictAnnotation: "changed by another client",
		}}}).InCluster(g.cluster(i)).When(d))
	}
}

// restsOnVersion reports whether a write is refused if the object has changed since it was read.
func restsOnVersion(c *facts.Change) bool {
	return metadata.Text(metadata.Of(c.Sent), "resourceVersion") != "" && c.Op != wire.Apply
}
