package machine

import (
	"fmt"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
)

// Need is an observation point that a plan needs in a process.
type Need struct {
	Point wire.Point
	Call  string // name of an annotated call; empty: any
	Fails bool   // the call must be one that can be made to fail
	Where string // which part of the plan needs it, for messages
}

// Needs lists the points that the plan needs in the process with that identity.
func Needs(p *plan.Plan, identity string) []Need {
	var needs []Need
	for i := range p.Actions {
		a := &p.Actions[i]
		for j := range a.Trigger.Definitions {
			d := &a.Trigger.Definitions[j]
			if d.Observe.ObserveBy != identity {
				continue
			}
			if point, _ := wirePoint(d.Observe.Timing); point != "" {
				needs = append(needs, Need{Point: point, Call: d.Condition.Call,
					Where: fmt.Sprintf("action %d, trigger %q", i+1, d.Name)})
			}
		}
		e := a.Effects()
		if e.Fails != nil && e.Fails.By == identity {
			need := Need{Point: wire.ControllerWrite, Where: fmt.Sprintf("action %d", i+1)}
			if call := e.Fails.Call; call != "" {
				need.Point, need.Call, need.Fails = wire.AnnotatedCall, call, true
			}
			needs = append(needs, need)
		}
		for _, p := range []*plan.Pause{e.Pauses, e.Resumes} {
			if p == nil || p.By != identity {
				continue
			}
			if point, _ := wirePoint(p.At); point != "" {
				needs = append(needs, Need{Point: point, Where: fmt.Sprintf("action %d, pauseAt", i+1)})
			}
		}
	}
	return needs
}

// In reports whether the point is compiled into the binary that the manifest describes.
func (n Need) In(m wire.Manifest) bool {
	for _, p := range m.Points {
		if p.Point == n.Point && (n.Call == "" || p.Name == n.Call) && (!n.Fails || p.Fails) {
			return true
		}
	}
	return false
}
