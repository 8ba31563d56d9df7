package confirm

import (
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// Pace is how slow controllers are: they read for a time, and then not for a time, again and again. A step of the
// workload that waits for them ends while they may read. The next steps must come when they may not read, so that they
// see several steps as one.
type Pace struct {
	Name       string // in the plan's name
	open, shut time.Duration
	times      int
}

// Times is how often the controllers may read, and then not.
func (how Pace) Times() int { return how.times }

// The paces.
var (
	SlowPace = Pace{"slow", 50 * time.Millisecond, 500 * time.Millisecond, 50}
	// SlowerPace is for workloads that wait only for a time, and for plans that hold controllers for seconds.
	SlowerPace = Pace{"slower", 50 * time.Millisecond, 6 * time.Second, 8}
)

// Paces returns those that may show that a finding is a matter of time. The steps are those of the plan's workload; how
// it ended without faults is in ref. Differ returns the differences of the plan's run from that.
func Paces(
	p *plan.Plan, steps []plan.Step, ref *baseline.Baseline, differ func() ([]baseline.Difference, error),
) ([]Pace, error) {
	if ref == nil || len(ref.Controllers) == 0 || len(p.Actions) == 0 {
		return nil, nil
	}
	if Waits(steps) {
		differences, err := differ()
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(differences, func(d baseline.Difference) bool { return d.Field != "" }) {
			return nil, nil // only fields could be explained
		}
	}
	finished := ref.AnyFinished()
	if slices.ContainsFunc(steps, func(s plan.Step) bool { return s.Sleep > 0 }) ||
		slices.ContainsFunc(p.Actions, func(a plan.Action) bool {
			pause := plan.EffectOf[*plan.Pause](&a)
			return pause != nil && (finished || !pause.OfAPIServer())
		}) {
		return []Pace{SlowPace, SlowerPace}, nil
	}
	return []Pace{SlowPace}, nil
}

// Waits reports whether a workload always waits for something between two changes that it makes.
func Waits(steps []plan.Step) bool {
	changed := false
	for _, s := range steps {
		switch {
		case s.Wait != nil:
			changed = false
		case s.Sleep > 0, s.AdvanceTime > 0:
		case changed:
			return false
		default:
			changed = true
		}
	}
	return true
}

// Slow returns a plan whose controllers are slow and otherwise undisturbed. The workload is the plan's.
func Slow(p *plan.Plan, how Pace, controllers []string) (*plan.Plan, error) {
	slow := *p
	slow.Build = p.LastBuild()
	slow.Description = "The controllers are slow, and otherwise undisturbed."
	var err error
	slow.Actions, err = how.actions(controllers)
	return &slow, err
}

// actions make controllers slow.
func (how Pace) actions(controllers []string) ([]plan.Action, error) {
	const at = plan.BeforeControllerRead
	trigger := func(i int, d time.Duration) build.Trigger {
		if i > 0 {
			return build.AtOnce()
		}
		return build.Timeout(d)
	}
	var actions []*build.Action
	for range how.times {
		for i, name := range controllers {
			actions = append(actions, build.PauseController(name, at).When(trigger(i, how.open)))
		}
		for i, name := range controllers {
			actions = append(actions, build.ResumeController(name, at).When(trigger(i, how.shut)))
		}
	}
	// The first pause is in force before the workload begins.
	actions = slices.Insert(actions[1:], 0, build.PauseController(controllers[0], at).When(build.AtOnce()))
	p, err := build.Plan("slow").Then(actions...).Build()
	if err != nil {
		return nil, err
	}
	return p.Actions, nil
}
