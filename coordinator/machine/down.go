package machine

import (
	"slices"

	"github.com/trommel-dev/trommel/plan"
)

// Holding reports whether anything is held or paused.
func (m *Machine) Holding() bool { return len(m.held)+len(m.pauses) > 0 }

// Held returns what is held. The caller must not change it.
func (m *Machine) Held() Holds { return m.held }

// AllDown lists the controllers and API servers that the plan has killed and not started again.
func (m *Machine) AllDown() []string {
	var all []string
	for i := range m.plan.Actions {
		stop := plan.EffectOf[*plan.Stop](&m.plan.Actions[i])
		if stop != nil && !slices.Contains(all, stop.Process) && m.Down(stop.Process) {
			all = append(all, stop.Process)
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
		switch a := &m.plan.Actions[i]; {
		case a.Starts(identity):
			down = false
		case a.Stops(identity):
			down = true
		}
	}
	return down
}
