package build

import (
	"time"

	"github.com/trommel-dev/trommel/plan"
)

// RestartAfterWrite is the intermediate-state pattern: the controller is killed right after a write, before it takes
// its next step, and started again. It is observed at the controller, after the write, unless the condition says
// otherwise.
func RestartAfterWrite(testName, controller string, write *Condition) *PlanBuilder {
	return Plan(testName).Then(
		RestartController(controller).When(write.observed(plan.AfterControllerWrite, controller)))
}

// Stale describes a [StaleRead].
type Stale struct {
	Controller string
	APIServer  string // the one that becomes stale
	Scope      string // the resource key for which it is stale; default: everything

	// Seen is the last event that the API server sees. It is observed there, after it is received, unless it says
	// otherwise.
	Seen *Condition
	// Reconnect is the event at which the controller is moved to that API server. It is observed by apiserver-1, after
	// it is received, unless it says otherwise.
	Reconnect Trigger
	// WaitBefore is the time between Reconnect and the move.
	WaitBefore time.Duration
	// WithoutStreamingLists is that of [Action.WithoutStreamingLists].
	WithoutStreamingLists bool
	// Resume is how long the API server stays stale after the move began. Default: 20 s.
	Resume time.Duration
}

// StaleRead is the stale-state pattern: an API server is paused, the controller is moved to it and sees old state, and
// the API server is resumed.
func StaleRead(testName string, s Stale) *PlanBuilder {
	if s.Resume == 0 {
		s.Resume = 20 * time.Second
	}
	if c, ok := s.Reconnect.(*Condition); ok {
		s.Reconnect = c.observed(plan.AfterAPIServerRecv, "apiserver-1")
	}
	move := ReconnectController(s.Controller, s.APIServer).WaitBefore(s.WaitBefore).Async().When(s.Reconnect)
	if s.WithoutStreamingLists {
		move.WithoutStreamingLists()
	}
	return Plan(testName).Then(
		PauseAPIServer(s.APIServer).Scope(s.Scope).When(s.Seen.observed(plan.AfterAPIServerRecv, s.APIServer)),
		move,
		ResumeAPIServer(s.APIServer).Scope(s.Scope).When(Timeout(s.Resume)),
	)
}

// SkipObservation is the unobserved-state pattern: from a change on, until the object changes again, the controller
// does not read it, so it never acts on the state between the two. key is the object's. The change is observed at the
// controller, before it is received, unless the condition says otherwise.
func SkipObservation(testName, controller, key string, change *Condition) *PlanBuilder {
	if change == nil {
		return Plan(testName).Then(PauseController(controller, plan.BeforeControllerRead)) // Build reports it
	}
	next := func(c *Condition) *Condition { return c.At(plan.AfterControllerRecv, controller) }
	var end Trigger
	switch to, _ := change.definition.Condition.CurState.(State); {
	case change.definition.Condition.Type == plan.OnObjectDeletion:
		end = Either(next(Created(key)), next(Updated(key)))
	case len(to) > 0:
		end = Either(next(AnyFieldModified(key, to)), next(Deleted(key)))
	default:
		end = Either(next(Updated(key)), next(Deleted(key)))
	}
	return Plan(testName).Then(
		PauseController(controller, plan.BeforeControllerRead).Scope(key).AvoidOngoingRead().
			When(change.observed(plan.BeforeControllerRecv, controller)),
		ResumeController(controller, plan.BeforeControllerRead).Scope(key).When(end),
	)
}

// observed sets the observation point of a condition without one. A nil condition stays nil; Build reports it.
func (c *Condition) observed(timing plan.Timing, by string) Trigger {
	if c == nil {
		return nil
	}
	if c.definition.Observe.Timing == "" && c.definition.Condition.Type != plan.OnTimeout &&
		c.definition.Condition.Type != plan.OnNone {
		return c.At(timing, by)
	}
	return c
}
