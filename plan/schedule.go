package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// Strategy says how the steps of an ordered run are chosen, see docs/orders.md.
type Strategy string

// The strategies.
const (
	FIFO   Strategy = "fifo"   // what has waited for longest goes first
	Random Strategy = "random" // each step is equally likely
	Swarm  Strategy = "swarm"  // some streams, chosen by the seed, are slower than others
	PCT    Strategy = "pct"    // streams have priorities, which change Depth times
)

// Schedule says in which order the steps of a run go on. What reaches the controllers under test and what leaves them
// then waits until the whole run is at rest, and one step at a time goes on.
type Schedule struct {
	Strategy Strategy `yaml:"strategy" called:"strategy" words:"fifo random swarm pct" default:"fifo"`
	Seed     int      `yaml:"seed" range:"0 999999"` // of random, swarm and pct
	Depth    int      `yaml:"depth" range:"0 100"`   // of pct: how often a priority changes
	// Late are steps that wait until nothing else can go on, and until more time has passed.
	Late []LateStep `yaml:"late" item:"a late step"`
	// Choices are the streams whose steps go on, in this order. After them the strategy chooses.
	Choices []string `yaml:"choices"`
}

// LateStep is a step that goes on later than the strategy would let it.
type LateStep struct {
	Stream string `yaml:"stream"`
	Step   int    `yaml:"step" default:"1"` // its number in the stream, from 1
}

// Is reports whether it is a step with that number in a stream.
func (l LateStep) Is(stream string, step int) bool {
	return l.Stream == stream && cmp.Or(l.Step, 1) == step
}

// Disturbs reports whether the plan does something to the controllers: it has actions, or a schedule by which steps may
// be late.
func (p *Plan) Disturbs() bool { return len(p.Actions) > 0 || p.Schedule.Disturbs() }

// Disturbs reports whether steps may be late by the schedule. Nil is none.
func (s *Schedule) Disturbs() bool {
	return s != nil && (s.Strategy != FIFO && s.Strategy != "" || len(s.Late)+len(s.Choices) > 0)
}

// Explain says in sentences what the schedule does.
func (s *Schedule) Explain() string {
	text := "What reaches the controllers and what leaves them goes on one step at a time, when the run is at rest"
	switch s.Strategy {
	case FIFO:
		text += ", in the order in which it came."
	default:
		text += fmt.Sprintf(", in an order that the strategy %s with the seed %d chooses.", s.Strategy, s.Seed)
	}
	if n := len(s.Choices); n > 0 {
		text += fmt.Sprintf(" The first %d choices are given.", n)
	}
	for _, l := range s.Late {
		text += fmt.Sprintf("\nStep %d of the stream %q is late: it waits until nothing else can go on.", l.Step,
			l.Stream)
	}
	return text
}

// check reports the mistakes in a schedule.
func (s *Schedule) check(p *Plan, at *yamlfile.Place) {
	if p.Pace != "" {
		at.Errorf("the plan has both a pace and a schedule: the schedule says when a step of the workload begins")
	}
	if s.Depth > 0 && s.Strategy != PCT {
		at.Field("depth").Errorf("only the strategy pct has a depth")
	}
	for i, l := range s.Late {
		at := at.Field("late").Item(i)
		if at.Failed() {
			continue
		}
		if l.Stream == "" {
			at.Errorf("a late step needs a stream, such as \"db-operator receives pod\"")
		}
		if l.Step < 0 {
			at.Field("step").Errorf("the first step of a stream is 1")
		}
		if slices.Contains(s.Late[:i], l) {
			at.Errorf("the same late step is there twice")
		}
	}
}
