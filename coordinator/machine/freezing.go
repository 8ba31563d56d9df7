package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// freezing takes in that an action has begun.
func (m *Machine) freezing(i int, e plan.Effects) {
	if e.Freezes != "" {
		m.frozen = append(m.frozen, pause{action: i, by: e.Freezes})
	}
	if e.Thaws != "" {
		m.frozen = slices.DeleteFunc(m.frozen, func(f pause) bool { return f.by == e.Thaws })
	}
}

// unfrozen takes in that a frozen process has ended.
func (m *Machine) unfrozen(e record.Event) {
	m.frozen = slices.DeleteFunc(m.frozen, func(f pause) bool { return f.action == *e.Lapsed })
}

// onIce describes the frozen processes, in one clause for each.
func (m *Machine) onIce(now time.Time) []string {
	return m.clauses(m.frozen, "a process of %s has been frozen%s by %s, %s", now, m.thaws)
}

// clauses describes what lasts: of whom, for how long, by which action, and what ends it.
func (m *Machine) clauses(list []pause, format string, now time.Time, ends func(i int, p pause) bool) []string {
	var clauses []string
	for _, p := range list {
		clauses = append(clauses, fmt.Sprintf(format, p.by, lasting(" for %s", now, m.since[p.action]),
			m.Name(p.action), m.endOf(p, ends)))
	}
	return clauses
}

// thaws reports whether an action thaws a frozen process or kills it.
func (m *Machine) thaws(i int, f pause) bool {
	e := m.plan.Actions[i].Effects()
	return e.Thaws == f.by || e.StopsIt(f.by) && i > f.action
}
