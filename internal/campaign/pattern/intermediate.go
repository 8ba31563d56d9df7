package pattern

import (
	"fmt"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// The pattern intermediate restarts the controller after each of its effective writes, and after each annotated call.
// The controller must then go on with its work.
var intermediate = Pattern{
	Name: "intermediate", Finds: "half-done work that is never finished", chance: 4, foremost: true,
	drafts: func(m *moment.Set) drafts { return killed(m, "", build.RestartController) },
}

// killed kills the controller by an action after each of its effective writes, and after each annotated call. Then says
// what happens after that.
func killed(m *moment.Set, then string, by func(controller string) *build.Action) (all drafts) {
	for i := range m.Changes {
		c := &m.Changes[i]
		if c.By == "" {
			continue
		}
		why := fmt.Sprintf("%s is killed right after its own write: %s%s", c.By, m.Describe(i), then)
		signature := m.Signature(i)
		written, rule := m.When(moment.At("written", plan.AfterControllerWrite, c.By), moment.Start, i)
		if rule != "" {
			all.drop(signature, why, rule)
			continue
		}
		chance := 0.5
		if m.GoesOn(i) {
			chance = 1
		}
		all.addWith(chance, signature, why, by(c.By).When(written.Trigger))
	}
	for _, c := range m.Calls() {
		all.add("call "+c.By+" "+c.Name,
			fmt.Sprintf("%s is killed right after its call %d of %s%s", c.By, c.N, c.Name, then),
			by(c.By).When(build.Called(c.Name).Named("called").At(plan.AfterAnnotatedCall, c.By).Repeat(c.N)))
	}
	return all
}
