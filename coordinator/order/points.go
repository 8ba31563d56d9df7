package order

import (
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Point is a choice of a run at which another one was possible.
type Point struct {
	Number int           // of the choice
	Late   plan.LateStep // makes the step late that has gone on there
	What   string        // the step in words
}

// OfAPIServer reports whether the point's step is an event at an API server, which is late for all who watch there.
func (p Point) OfAPIServer() bool {
	by, _, _ := strings.Cut(p.Late.Stream, " ")
	return plan.IsAPIServer(by)
}

// Points are the choices at which a step went on that can be late, from one on, in order. Steps of the workload are
// left out: they only go on when nothing else can.
func Points(choices []record.Choice, from int) (all []Point) {
	for _, c := range choices {
		if c.Number < from || c.Stream == record.TimeStream || c.Stream == Workload {
			continue
		}
		all = append(all, Point{c.Number, plan.LateStep{Stream: c.Stream, Step: c.Step}, c.What})
	}
	return all
}

// Trace identifies the order of a run's steps, in a text. Where time has passed counts, too.
func Trace(choices []record.Choice) string {
	var text []byte
	for _, c := range choices {
		text = append(append(text, c.Stream...), '\n')
	}
	return string(text)
}

// Slowest are the points of a run at which a step went on that had waited while others went on, or while time passed;
// those first that waited for the most.
func Slowest(choices []record.Choice) []Point {
	type waited struct {
		Point
		length int
	}
	var all []waited
	for i, first := range record.Waited(choices) {
		cost := 0
		for _, other := range choices[first:i] {
			cost++
			if other.Stream == record.TimeStream {
				cost += passCounts
			}
		}
		if points := Points(choices[i:i+1], 0); cost > 0 && len(points) > 0 {
			all = append(all, waited{points[0], cost})
		}
	}
	slices.SortStableFunc(all, func(a, b waited) int { return b.length - a.length })
	points := make([]Point, len(all))
	for i, w := range all {
		points[i] = w.Point
	}
	return points
}

// passCounts is as how many further choices one counts that lets time pass.
const passCounts = 5
