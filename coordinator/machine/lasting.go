package machine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/trommel-dev/trommel/plan"
)

// lasting holds the effects that are in force until something ends them, by the action that began them. Pauses and
// failures of calls are kept apart: they decide what becomes of observations.
type lasting map[int]plan.Lasting

// began takes in an effect of an action that has begun.
func (l lasting) began(action int, e plan.Effect) {
	maps.DeleteFunc(l, func(_ int, have plan.Lasting) bool { return have.EndedBy(e) })
	if e, ok := e.(plan.Lasting); ok {
		l[action] = e
	}
}

// lasts describes what is in force: since when, by which action, and what ends it.
func (m situation) lasts() []string {
	var clauses []string
	for _, began := range slices.Sorted(maps.Keys(m.lasting)) {
		e := m.lasting[began]
		end := m.endOf(func(i int) bool {
			return i > began && slices.ContainsFunc(m.plan.Actions[i].Effects(), e.EndedBy)
		}, onlyTheEnd)
		clauses = append(clauses, fmt.Sprintf("%s%s by %s, %s", e.Clause(), since(" for %s", m.now, m.since[began]),
			m.Name(began), end))
	}
	return clauses
}
