package machine

import (
	"slices"
	"time"

	"github.com/trommel-dev/trommel/plan"
)

// connecting takes in that an action has begun: it disturbs a controller's connection to another cluster, or restores
// it. A second disturbance takes the place of the first.
func (m *Machine) connecting(i int, e plan.Effects) {
	for _, of := range []*plan.Disconnection{e.Disconnects, e.Connects} {
		if of != nil {
			m.disturbed = slices.DeleteFunc(m.disturbed, func(p pause) bool {
				return p.by == of.By && p.cluster == of.Cluster
			})
		}
	}
	if d := e.Disconnects; d != nil {
		m.disturbed = append(m.disturbed, pause{action: i, by: d.By, cluster: d.Cluster})
	}
}

// disturbances describes the connections that are disturbed, in one clause for each.
func (m *Machine) disturbances(now time.Time) []string {
	return m.clauses(m.disturbed, "a connection of %s has been disturbed%s by %s, %s", now, m.restores)
}

// restores reports whether an action restores a disturbed connection, or disturbs it in another way.
func (m *Machine) restores(i int, p pause) bool {
	e, of := m.plan.Actions[i].Effects(), &plan.Disconnection{By: p.by, Cluster: p.cluster}
	return of.SameAs(e.Connects) || of.SameAs(e.Disconnects) && i > p.action
}
