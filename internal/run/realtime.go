package run

import (
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/instrumentation/points"
	"github.com/trommel-dev/trommel/internal/run/addons"
	"github.com/trommel-dev/trommel/plan"
)

// realTime says why a run of the plan (nil: any plan) must go in real time; empty: its cluster may have a clock of its
// own. What lives in real time must not meet objects from the future.
func (s *Session) realTime(p *plan.Plan) string {
	kind, known := plan.LookupClusterKind(s.suite.Cluster.Type)
	switch {
	case s.suite.Time == plan.RealTime:
		return "time: real"
	case known && !slices.Contains(kind.Can, plan.OwnClock):
		return fmt.Sprintf("a cluster of type %s lives in real time", kind.Type)
	case p != nil && addons.Disrupts(p):
		return "the controllers of disruptions, and the injectors, live in real time"
	}
	if has, err := points.HasClock(s.controlPlane); err == nil && !has {
		return "the control plane cannot be given another clock"
	}
	for i, b := range s.binaries {
		if has, err := points.HasClock(b.Path); err == nil && !has && i < len(s.suite.Controllers) {
			return fmt.Sprintf("the executable of %s cannot be given another clock", s.suite.Controllers[i].Name)
		}
	}
	return ""
}
