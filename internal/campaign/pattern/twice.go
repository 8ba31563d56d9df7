package pattern

import (
	"fmt"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

var twice = Pattern{
	Name: "twice", Finds: "work that a second crash leaves in an unexpected state", chance: 2,
	drafts: killTwice,
}

// killTwice restarts the controller after an effective write that its reconcile goes on after, and restarts the new
// process after its next write.
func killTwice(m *moment.Set) (all drafts) {
	for i := range m.Changes {
		by := m.Changes[i].By
		k := m.NextWrite(i, by)
		if by == "" || k < 0 || !m.GoesOn(i) {
			continue
		}
		why := fmt.Sprintf("%s is killed right after its own write: %s; and again after the next one: %s", by,
			m.Describe(i), m.Describe(k))
		signature := m.Signature(i) + " / " + m.Signature(k)
		written, again, rule := m.Both(
			i, moment.At("written", plan.AfterControllerWrite, by),
			k, moment.At("again", plan.AfterControllerWrite, by),
		)
		if rule != "" {
			all.drop(signature, why, rule)
			continue
		}
		all.add(signature, why, build.RestartController(by).When(written.Trigger),
			build.RestartController(by).When(again.Trigger))
	}
	return all
}
