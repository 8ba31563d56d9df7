package machine

import (
	"slices"
)

// Holding reports whether anything is held or paused.
func (m *Machine) Holding() bool { return len(m.held)+len(m.pauses) > 0 }

// Held is how many observations are held.
func (m *Machine) Held() int { return len(m.held) }

// AllDown lists the controllers and API servers that the plan has killed and not started again.
func (m *Machine) AllDown() []string {
	var all []string
	for i := range m.plan.Actions {
		stopped := m.plan.Actions[i].Effects().Stops
		if stopped != "" && !slices.Contains(all, stopped) && m.Down(stopped) {
			all = append(all, stopped)
		}
	}
	return all
}

// Down reports whether the plan has killed the controller, or the API server, and not started it again.
func (m *Machine) Down(identity string) bool {
	down := false
	for i := range m.plan.Actions {
		if !m.finished[i] || m.ended {
			continue
		}
		switch e := m.plan.Actions[i].Effects(); {
		case e.StartsIt(identity):
			down = false
		case e.StopsIt(identity):
			down = true
		}
	}
	return down
}
