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
		if f := plan.EffectOf[*plan.CallFailure](a); f != nil && f.By == identity {
			need := Need{Point: wire.ControllerWrite, Where: fmt.Sprintf("action %d", i+1)}
			if f.Call != "" {
				need.Point, need.Call, need.Fails = wire.AnnotatedCall, f.Call, true
			}
			needs = append(needs, need)
		}
		if point := pausePoint(a, identity); point != "" {
			needs = append(needs, Need{Point: point, Where: fmt.Sprintf("action %d, pauseAt", i+1)})
		}
	}
	return needs
}

// pausePoint returns the point at which the action pauses or resumes the process; empty: none.
func pausePoint(a *plan.Action, identity string) wire.Point {
	var by string
	var at plan.Timing
	if p := plan.EffectOf[*plan.Pause](a); p != nil {
		by, at = p.By, p.At
	} else if r := plan.EffectOf[*plan.Resume](a); r != nil {
		by, at = r.By, r.At
	}
	if by != identity {
		return ""
	}
	point, _ := wirePoint(at)
	return point
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
