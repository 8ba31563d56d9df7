package pattern

import (
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

var lostAnswer = Pattern{
	Name: "lost-answer", Finds: "writes that are done twice, and errors that are swallowed", chance: 3, foremost: true,
	drafts: loseAnswers,
}

// loseAnswers lets each effective write of a controller take effect, and reports a timeout to the controller. The
// controller does not know then whether it has written.
func loseAnswers(m *moment.Set) (all drafts) {
	for i := range m.Changes {
		c := &m.Changes[i]
		if c.By == "" {
			continue
		}
		why := fmt.Sprintf("%s gets no answer to its own write, which takes effect: %s", c.By, m.Describe(i))
		signature := m.Signature(i)
		write, rule := m.BeforeWrite(i)
		if rule != "" {
			all.drop(signature, why, rule)
			continue
		}
		all.add(signature, why, answerLost(m, i, write))
	}
	for _, c := range m.Calls() {
		why := fmt.Sprintf("%s gets no answer to its call %d of %s, which takes effect", c.By, c.N, c.Name)
		signature := "call " + c.By + " " + c.Name
		if !slices.Contains(m.Baseline.Failing[c.By], c.Name) {
			all.drop(signature, why, "the function returns no error")
			continue
		}
		all.add(signature, why, build.FailCall(c.By, plan.Lost, 0).Call(c.Name).When(
			build.Called(c.Name).Named("called").At(plan.BeforeAnnotatedCall, c.By).Repeat(c.N)))
	}
	return all
}

// answerLost loses the answer to a write.
func answerLost(m *moment.Set, i int, write moment.Moment) *build.Action {
	c := &m.Changes[i]
	scope, _ := m.Object(i)
	return build.FailCall(c.By, plan.Lost, 0).InCluster(m.Cluster(i)).Scope(scope).
		Operations(plan.Operation(c.Op)).When(write.Trigger)
}
