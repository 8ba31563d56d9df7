package pattern

import (
	"fmt"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

var conflict = Pattern{
	Name: "conflict", Finds: "updates that are given up after a conflict with another client", chance: 1,
	drafts: changeBetween,
}

// changeBetween changes an object, as another client, between the controller's read of it and the update that rests on
// the read. The API server refuses the update; the controller must try again. The plan changes an annotation that means
// nothing and that is masked.
func changeBetween(m *moment.Set) (all drafts) {
	for i := range m.Changes {
		c := &m.Changes[i]
		if c.By == "" || c.Event == record.Created || c.Op == wire.Delete {
			continue
		}
		why := fmt.Sprintf("another client changes %s (the annotation %s) when %s is about to write it: %s", c.Key,
			baseline.ConflictAnnotation, c.By, m.Describe(i))
		signature := m.Signature(i)
		if !restsOnVersion(c) {
			all.drop(signature, why, "the write does not say which version it rests on: nothing can conflict with it")
			continue
		}
		write, rule := m.When(moment.At("write", plan.BeforeControllerWrite, c.By), moment.Start, i)
		if rule != "" {
			all.drop(signature, why, rule)
			continue
		}
		key, _ := m.Object(i)
		all.add(signature, why, build.Patch(key, object{"metadata": object{"annotations": object{
			baseline.ConflictAnnotation: "changed by another client",
		}}}).InCluster(m.Cluster(i)).When(write.Trigger))
	}
	return all
}

// restsOnVersion reports whether a write is refused if the object has changed since it was read.
func restsOnVersion(c *facts.Change) bool {
	return metadata.Text(metadata.Of(c.Sent), "resourceVersion") != "" && c.Op != wire.Apply
}
