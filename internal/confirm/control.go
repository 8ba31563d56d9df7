package confirm

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/expr"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// Control is a plan without the part that it is about. What its run finds, too, is due to something else.
type Control struct {
	Plan *plan.Plan
	How  string // what is different, in words
	Due  string // what it means if all findings come with it, too
	// Anew: what the plan creates anew may end as if it had been created at once.
	Anew bool
}

// Left returns the findings of a plan that do not come in a run of its control. They are due to what the plan is about.
func (c *Control) Left(found, with []record.Finding) []record.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f record.Finding) bool {
		return slices.ContainsFunc(with, f.Same)
	})
}

// Killed kills the processes that a plan thaws. A frozen leader also leaves its work undone until there is a new
// leader, which may take longer than a workload waits. That is not due to what the process does when it goes on. The
// result is nil if the plan thaws nothing.
func Killed(of *plan.Plan) *Control {
	p := *of
	p.TestName += "-killed"
	p.Actions = slices.Clone(p.Actions)
	thaws := false
	for i := range p.Actions {
		if thaw := plan.EffectOf[*plan.Thaw](&p.Actions[i]); thaw != nil && !thaw.Kill {
			p.Actions[i].Kill, thaws = true, true
		}
	}
	if !thaws {
		return nil
	}
	return &Control{
		Plan: &p, How: "with the frozen process killed",
		Due: "the same comes if the frozen process is killed and not thawed: it is not due to what the process does " +
			"too late",
	}
}

// Answered leaves out the lost answers of a plan in which another client writes. If the other client deletes an object,
// for example, the dependents of that object are missing afterwards in any case. The result is nil if the plan has no
// lost answer, or no other client.
func Answered(of *plan.Plan) *Control {
	p := *of
	p.TestName += "-answered"
	p.Actions = slices.DeleteFunc(slices.Clone(of.Actions), func(a plan.Action) bool {
		fails := plan.EffectOf[*plan.CallFailure](&a)
		return fails != nil && fails.Answer == plan.Lost
	})
	if len(p.Actions) == len(of.Actions) ||
		!plan.AnyHas[*plan.Write](p.Actions) {
		return nil
	}
	return &Control{
		Plan: &p, How: "with no answer lost", Anew: true,
		Due: "the same comes if the answer is not lost: it is due to what the other client does",
	}
}

// Quietly makes a plan's changes that only cause conflicts when nothing is in conflict with them: after the workload's
// steps, when the controllers have had time to come to rest. What a controller derives from all that an object has,
// such as a hash of its annotations, differs then, too. The result is nil if the plan does anything else than such
// changes.
func Quietly(of *plan.Plan, steps []plan.Step, suite *plan.Suite) *Control {
	if len(of.Actions) == 0 {
		return nil
	}
	p := Undisturbed(of)
	p.TestName = of.TestName + "-quietly"
	p.Workload, p.Steps = "", append(slices.Clone(steps), plan.Step{Name: "the controllers come to rest", Sleep: rest})
	for i := range of.Actions {
		a := &of.Actions[i]
		if !judge.Conflicts(a) {
			return nil
		}
		p.Steps = append(p.Steps, plan.Step{
			Name: fmt.Sprintf("another client changes %s", a.ResourceKey), Cluster: a.Cluster,
			Patch: &plan.PatchStep{ResourceKey: a.ResourceKey, PatchType: a.PatchType, Patch: a.Patch},
		})
	}
	p.Complete(suite)
	return &Control{
		Plan: &p, How: "with the other client's change after the workload",
		Due: "the same comes if the other client makes its change when nothing is in conflict with it: it is due to " +
			"the change itself, for instance because a controller keeps a hash of all annotations",
	}
}

// rest is the time for controllers to come to rest. The run's clock skips what nothing happens in.
const rest = 10 * time.Second

// Restarted only restarts the controller where a plan shows it the past: when the controller is moved to an API server
// that is behind, or when deliveries to it or its reads begin to be held. A write that the controller must not see is
// complete then. Everything else that shows the past is left out. The result is nil if the plan shows no past, or if it
// freezes processes, for which see [Killed].
func Restarted(of *plan.Plan, suite *plan.Suite) (*Control, error) {
	p := *of
	p.TestName += "-restarted"
	p.Actions = nil
	moves := plan.AnyHas[*plan.Move](of.Actions)
	var waits []plan.Trigger // of actions that were left out since the last one that was not
	done := false
	for _, a := range of.Actions {
		move, pause := plan.EffectOf[*plan.Move](&a), plan.EffectOf[*plan.Pause](&a)
		controller := ""
		switch {
		case plan.Has[*plan.Freeze](&a):
			return nil, nil
		case move != nil:
			controller = move.Controller
		case pause != nil && !pause.OfAPIServer() && !moves && !done:
			controller = pause.By
		case pause != nil, plan.Has[*plan.Resume](&a):
			waits = append(waits, a.Trigger)
			continue
		}
		trigger, err := inTurn(append(waits, a.Trigger))
		if err != nil {
			return nil, err
		}
		if controller != "" {
			only, err := build.Plan("restart").Then(build.RestartController(controller).When(build.AtOnce())).Build()
			if err != nil {
				return nil, err
			}
			a, done = only.Actions[0], true
			for i := range trigger.Definitions {
				if at := &trigger.Definitions[i].Observe.Timing; *at == plan.BeforeControllerWrite {
					*at = plan.AfterControllerWrite
				}
			}
		}
		a.Trigger, waits = trigger, nil
		p.Actions = append(p.Actions, a)
	}
	if !done {
		return nil, nil
	}
	p.Complete(suite)
	return &Control{Plan: &p, How: "with a restart only"}, nil
}

// OnlyRestarted says that a finding does not need the past.
const OnlyRestarted = "the same comes if the controller is only restarted at that moment: it need not be shown the past"

// later is how long after its moment a kill comes that is to meet nothing unfinished. The run's clock skips what
// nothing happens in.
const later = time.Second

// Later kills the controller a second after the moment of a plan that only kills or restarts one, once. If a finding
// does not come then, it is due to the moment. The result is nil for other plans.
func Later(of *plan.Plan, suite *plan.Suite) (*Control, error) {
	if len(of.Actions) != 1 || !onlyKills(&of.Actions[0], suite) {
		return nil, nil
	}
	p := *of
	p.TestName += "-later"
	p.Actions = slices.Clone(of.Actions)
	wait := plan.Trigger{Expression: "later", Definitions: []plan.Definition{
		{Name: "later", Condition: plan.Condition{Type: plan.OnTimeout, Timeout: later}},
	}}
	trigger, err := inTurn([]plan.Trigger{of.Actions[0].Trigger, wait})
	if err != nil {
		return nil, err
	}
	p.Actions[0].Trigger = trigger
	p.Complete(suite)
	return &Control{Plan: &p, How: "with the kill a second later"}, nil
}

// onlyKills reports whether all that an action does is to kill a controller, and perhaps to start it again.
func onlyKills(a *plan.Action, suite *plan.Suite) (kills bool) {
	for _, e := range a.Effects() {
		switch e := e.(type) {
		case *plan.Stop:
			kills = slices.ContainsFunc(suite.Controllers, func(c plan.Controller) bool { return c.Name == e.Process })
		case *plan.Start:
		default:
			return false
		}
	}
	return kills
}

// inTurn is satisfied when the triggers are, one after the other.
func inTurn(all []plan.Trigger) (plan.Trigger, error) {
	var t plan.Trigger
	var parts []string
	for n, one := range all {
		e, err := expr.Parse(one.Expression)
		if err != nil {
			return t, err
		}
		text := one.Expression
		prefix := ""
		if len(all) > 1 {
			prefix = fmt.Sprintf("%c-", 'a'+n) // they may have names in common
		}
		for _, name := range slices.Backward(e.Names()) {
			text = text[:name.Offset] + prefix + text[name.Offset:]
		}
		for _, d := range one.Definitions {
			d.Name = prefix + d.Name
			t.Definitions = append(t.Definitions, d)
		}
		parts = append(parts, "("+text+")")
	}
	t.Expression = strings.Join(parts, ";")
	return t, nil
}
