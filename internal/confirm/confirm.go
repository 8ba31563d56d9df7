// Package confirm has the checks that decide whether a finding is due to the plan that found it. A check says which
// runs it needs, and what their results mean. It runs nothing itself: a session, a test and a campaign run its plans,
// and share one answer.
package confirm

import (
	"slices"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Bugs returns the findings about the controllers.
func Bugs(all []record.Finding) []record.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f record.Finding) bool { return !f.IsBug() })
}

// Idle reports whether a run carried out none of its plan's actions, and had no schedule that disturbs. What it has
// found is then not due to the plan.
func Idle(p *plan.Plan, m *record.Meta) bool {
	return len(p.Actions) > 0 && m.ActionsFired == 0 && !p.Schedule.Disturbs()
}

// Within reports whether others have all of some findings, each at least as bad. If an object is replaced after one
// plan, that does not confirm that it is missing after another one.
func Within(findings, others []record.Finding) bool {
	return !slices.ContainsFunc(findings, func(f record.Finding) bool {
		return !slices.ContainsFunc(others, func(other record.Finding) bool {
			return f.Same(other) && f.Does().Rank() >= other.Does().Rank()
		})
	})
}
