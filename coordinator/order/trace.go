package order

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Trace identifies the order of a run's steps, in a text. Runs whose orders differ only in steps that commute have the
// same trace. (Mazurkiewicz, 1977: traces are the classes of such orders; the text is the first one of its class.)
//
// Two steps that follow each other commute if the second one already waited when the first one went on, and both are
// receipts by different processes, or one is a delivery to a controller and the other a call of another one. What makes
// a step come is always the choice before it first waited, because choices are made at rest. Time, steps of the
// workload, and API servers' receipts and calls commute with nothing that they may have an effect on. What only the
// control plane receives is left out.
func Trace(choices []record.Choice) string {
	waited := record.Waited(choices)
	// after lists, for each choice, those that come after it in each order of the class; before counts the opposite.
	after, before := make([][]int, len(choices)), make([]int, len(choices))
	for i := range choices {
		for j := range i {
			if j == waited[i]-1 || !commute(choices[j].Stream, choices[i].Stream) {
				after[j] = append(after[j], i)
				before[i]++
			}
		}
	}
	lacks := lacking(choices)
	compare := func(a, b int) int { return strings.Compare(choices[a].Stream, choices[b].Stream) }
	var ready []int
	for i := range choices {
		if before[i] == 0 {
			ready = append(ready, i)
		}
	}
	var text strings.Builder
	for len(ready) > 0 {
		next := slices.MinFunc(ready, compare) // two of the same stream never are ready together
		ready = slices.DeleteFunc(ready, func(i int) bool { return i == next })
		if !lacks[next] {
			fmt.Fprintln(&text, choices[next].Stream)
		}
		for _, i := range after[next] {
			if before[i]--; before[i] == 0 {
				ready = append(ready, i)
			}
		}
	}
	return text.String()
}

// commute reports whether the steps of two streams have the same effect in both orders, if neither makes the other
// come.
func commute(a, b string) bool {
	byA, doesA, ok := strings.Cut(a, " ")
	byB, doesB, okB := strings.Cut(b, " ")
	if !ok || !okB || byA == byB { // time, the workload, or the same process
		return false
	}
	receivesA, receivesB := strings.HasPrefix(doesA, receives), strings.HasPrefix(doesB, receives)
	// A call reads and changes what API servers have and send. It has no effect on what waits before a controller.
	return receivesA && receivesB || receivesA && !plan.IsAPIServer(byA) || receivesB && !plan.IsAPIServer(byB)
}

// receives begins the second word of a stream of deliveries, or of events at an API server.
const receives = "receives "
