package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// mostHeld is how many steps HeldSteps names that the schedule does not make late.
const mostHeld = 3

// HeldSteps says, a line each, what became of the steps that the plan's schedule makes late. If there are none, or the
// plan is nil, the lines are about the steps that waited while the most others went on, at most three. A run that was
// not ordered has none.
func HeldSteps(r *record.Run, p *plan.Plan) (lines []string) {
	var late []plan.LateStep
	if p != nil && p.Schedule != nil {
		late = p.Schedule.Late
	}
	all := OrderedSteps(r)
	if len(late) == 0 {
		all = slices.DeleteFunc(all, func(s OrderedStep) bool { return s.Others == 0 })
		slices.SortStableFunc(all, func(a, b OrderedStep) int { return b.Others - a.Others })
		for _, s := range all[:min(len(all), mostHeld)] {
			lines = append(lines, s.text(r))
		}
		return lines
	}
	for _, l := range late {
		i := slices.IndexFunc(all, func(s OrderedStep) bool { return l.Is(s.Choice.Stream, s.Choice.Step) })
		if i < 0 {
			lines = append(lines, fmt.Sprintf("step %d of the stream %q did not come", cmp.Or(l.Step, 1), l.Stream))
			continue
		}
		lines = append(lines, all[i].text(r))
	}
	return lines
}

// OrderedStep is a step of an ordered run from when it came until it went on.
type OrderedStep struct {
	Choice     record.Choice
	Came, Went time.Time
	Others     int // steps that went on in between
}

func (s OrderedStep) text(r *record.Run) string {
	return fmt.Sprintf("%s was held from %s to %s, while %s went on", s.Choice.What, Since(r, s.Came), Since(r, s.Went),
		wording.Count(s.Others, "other step"))
}

// OrderedSteps are the deliveries, writes and answers that a schedule has let go on, in that order.
func OrderedSteps(r *record.Run) (all []OrderedStep) {
	came := map[int]time.Time{} // by Seq
	for _, e := range r.Events {
		if e.Observation != nil {
			came[e.Seq] = e.Time
		}
	}
	choices, at := r.Choices()
	for i, began := range record.Waited(choices) {
		c := choices[i]
		if c.Event == 0 {
			continue
		}
		s := OrderedStep{Choice: c, Came: came[c.Event], Went: at[i]}
		for _, other := range choices[began:i] {
			if other.Stream != record.TimeStream {
				s.Others++
			}
		}
		all = append(all, s)
	}
	return all
}
