package machine

import (
	"slices"
	"time"

	"github.com/trommel-dev/trommel/plan"
)

// skewing takes in that an action has begun: it makes a controller's wall clock wrong, or right. A second skew takes
// the place of the first.
func (m *Machine) skewing(i int, e plan.Effects) {
	right := e.EndsSkew
	if e.Skews != nil {
		right = e.Skews.By
	}
	if right != "" {
		m.skewed = slices.DeleteFunc(m.skewed, func(s pause) bool { return s.by == right })
	}
	if e.Skews != nil {
		m.skewed = append(m.skewed, pause{action: i, by: e.Skews.By})
	}
}

// wrongClocks describes the controllers whose clocks are wrong, in one clause for each.
func (m *Machine) wrongClocks(now time.Time) []string {
	return m.clauses(m.skewed, "the clock of %s has been wrong%s by %s, %s", now, m.endsSkew)
}

// endsSkew reports whether an action lets a wrong clock be right.
func (m *Machine) endsSkew(i int, s pause) bool {
	e := m.plan.Actions[i].Effects()
	return e.EndsSkew == s.by || e.Skews != nil && e.Skews.By == s.by && i > s.action
}
