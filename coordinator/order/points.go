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
// left out: they only go on when nothing else can. So are events that only the control plane receives.
func Points(choices []record.Choice, from int) (all []Point) {
	for _, p := range pointsOf(choices) {
		if p != nil && p.Number >= from {
			all = append(all, *p)
		}
	}
	return all
}

// pointsOf returns the point of each choice; nil: its step cannot be late.
func pointsOf(choices []record.Choice) []*Point {
	all, lacks := make([]*Point, len(choices)), lacking(choices)
	for i, c := range choices {
		if c.Stream != record.TimeStream && c.Stream != Workload && !lacks[i] {
			all[i] = &Point{c.Number, plan.LateStep{Stream: c.Stream, Step: c.Step}, c.What}
		}
	}
	return all
}

// Slowest are the points of a run at which a step went on that had waited while others went on, or while time passed;
// those first that waited for the most.
func Slowest(choices []record.Choice) []Point {
	type waited struct {
		Point
		length int
	}
	var all []waited
	points := pointsOf(choices)
	for i, first := range record.Waited(choices) {
		cost := 0
		for _, other := range choices[first:i] {
			cost++
			if other.Stream == record.TimeStream {
				cost += passCounts
			}
		}
		if points[i] != nil && cost > 0 {
			all = append(all, waited{*points[i], cost})
		}
	}
	slices.SortStableFunc(all, func(a, b waited) int { return b.length - a.length })
	slowest := make([]Point, len(all))
	for i, w := range all {
		slowest[i] = w.Point
	}
	return slowest
}

// passCounts is as how many further choices one counts that lets time pass.
const passCounts = 5
