package shrink

import (
	"context"
	"slices"

	"github.com/trommel-dev/trommel/coordinator/order"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// makePauses replaces a schedule in which a few steps are late by actions that pause and resume, if these show the
// finding too: such a plan says which object's event is held, and runs on clusters of all types. The record is that of
// a run of the plan. The error is that of shows.
func (s *search) makePauses(ctx context.Context, r *record.Run) error {
	now := s.best.Schedule
	if now == nil || now.Strategy != plan.FIFO || len(now.Choices) > 0 || len(s.best.Actions) > 0 {
		return nil
	}
	for _, whole := range []bool{false, true} { // of one object, or of all of the type
		actions, ok := pausesFor(r, now.Late, whole)
		if !ok {
			return nil
		}
		if ok, err := s.try(ctx, edit{"with pauses instead of the schedule", func(p *plan.Plan) bool {
			p.Schedule, p.Actions = nil, slices.Clone(actions)
			return true
		}}); err != nil || ok {
			return err
		}
	}
	return nil
}

// pausesFor returns actions that hold each of the late steps of a run for as long as the schedule does at most, and
// those behind it. Whole: for all objects of its type. False: a step is not in the record.
func pausesFor(r *record.Run, late []plan.LateStep, whole bool) (all []plan.Action, ok bool) {
	choices, _ := r.Choices()
	b := build.Plan("pauses")
	for _, l := range late {
		i := slices.IndexFunc(choices, func(c record.Choice) bool { return l.Is(c.Stream, c.Step) })
		if i < 0 || choices[i].Event == 0 {
			return nil, false
		}
		at, n := nth(r, choices[i].Event)
		condition, timing, ok := conditionOf(at)
		if !ok {
			return nil, false
		}
		key := keyOf(at)
		if whole {
			key.Name = "*"
		}
		pause, resume := build.PauseController(at.By, timing), build.ResumeController(at.By, timing)
		if at.Point == wire.APIServerRecv {
			pause, resume = build.PauseAPIServer(at.By), build.ResumeAPIServer(at.By)
		}
		b.Then(pause.Scope(key.String()).When(condition.Repeat(n).At(timing, at.By)),
			resume.Scope(key.String()).When(build.Timeout(order.Longest)))
	}
	p, err := b.Build()
	if err != nil {
		return nil, false
	}
	return p.Actions, true
}

// nth returns an observation by its number, and how many of the same kind there were until then.
func nth(r *record.Run, seq int) (at *record.Observation, n int) {
	for _, e := range slices.Backward(r.Events) {
		o := e.Observation
		switch {
		case o == nil || e.Seq > seq:
		case e.Seq == seq:
			at, n = o, 1
		case at != nil && o.By == at.By && o.Point == at.Point && o.Phase == at.Phase &&
			changes(o.Op) == changes(at.Op) && keyOf(o) == keyOf(at):
			n++
		}
	}
	if at == nil {
		at = &record.Observation{}
	}
	return at, n
}

// changes is what a plan's trigger can wait for; empty: it cannot.
func changes(op wire.Operation) plan.TriggerType {
	switch op {
	case wire.Create:
		return plan.OnObjectCreation
	case wire.Update, wire.Patch, wire.Apply:
		return plan.OnObjectUpdate
	case wire.Delete:
		return plan.OnObjectDeletion
	}
	return ""
}

// orderedTimings are the points at which a schedule holds steps.
var orderedTimings = []struct {
	point  wire.Point
	phase  wire.Phase
	timing plan.Timing
}{
	{wire.APIServerRecv, wire.Before, plan.BeforeAPIServerRecv},
	{wire.ControllerRecv, wire.Before, plan.BeforeControllerRecv},
	{wire.ControllerWrite, wire.Before, plan.BeforeControllerWrite},
	{wire.ControllerWrite, wire.After, plan.AfterControllerWrite},
}

// conditionOf returns what waits for an observation like this one, and when it is made. False: no trigger can.
func conditionOf(o *record.Observation) (c *build.Condition, timing plan.Timing, ok bool) {
	for _, t := range orderedTimings {
		if t.point == o.Point && t.phase == o.Phase {
			timing = t.timing
		}
	}
	waits := conditions[changes(o.Op)]
	if waits == nil || timing == "" || o.Name == "" {
		return nil, "", false
	}
	return waits(keyOf(o).String()), timing, true
}

// conditions are those of the triggers that changes returns.
var conditions = map[plan.TriggerType]func(key string) *build.Condition{
	plan.OnObjectCreation: build.Created, plan.OnObjectUpdate: build.Updated, plan.OnObjectDeletion: build.Deleted,
}

func keyOf(o *record.Observation) plan.ResourceKey {
	return plan.ResourceKey{Type: o.KindOrResource(), Group: o.Group, Namespace: o.Namespace, Name: o.Name}
}
