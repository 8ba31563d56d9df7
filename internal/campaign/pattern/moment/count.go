package moment

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/plan"
)

// Runs are the runs without faults. The first one is that whose changes the plans strike at.
type Runs []*Trace

// Occurrence is a change together with its like in each run without faults.
type Occurrence struct {
	Change int   // of the first run
	Runs   []int // where it is in each run
}

// Start is the moment before the first change.
var Start = Occurrence{Change: -1}

// count returns how often a condition must be satisfied after an occurrence until it is by a change of the first run,
// and where that is in each run. If it is not equally often in all runs, rule says why.
func (r Runs) count(d *plan.Definition, after Occurrence, i int) (repeat int, at Occurrence, rule string) {
	m, err := plan.NewMatcher(&d.Condition)
	if err != nil {
		return 0, at, err.Error()
	}
	all, err := r[0].matches(m, d, after.Change)
	if err != nil {
		return 0, at, err.Error()
	}
	n := slices.Index(all, i)
	if n < 0 {
		return 0, at, fmt.Sprintf("its own trigger does not match it: %s", d.Condition.Type)
	}
	at = Occurrence{i, []int{i}}
	for k, other := range r[1:] {
		since := Start.Change
		if after.Runs != nil {
			since = after.Runs[k+1]
		}
		found, err := other.matches(m, d, since)
		switch {
		case err != nil:
			return 0, at, err.Error()
		case len(found) <= n:
			return 0, at, InSomeRuns
		case n > 0 && len(found) != len(all):
			return 0, at, unevenly
		}
		at.Runs = append(at.Runs, found[n])
	}
	return n + 1, at, ""
}

// Elapsed returns the shortest and the longest time between two occurrences.
func (r Runs) Elapsed(from, to Occurrence) (least, most time.Duration) {
	for k, t := range r {
		d := t.Changes[to.Runs[k]].Time.Sub(t.Changes[from.Runs[k]].Time)
		if k == 0 || d < least {
			least = d
		}
		most = max(most, d)
	}
	return least, most
}

// Longest returns the longest time between two occurrences, rounded.
func (r Runs) Longest(from, to Occurrence) time.Duration {
	_, most := r.Elapsed(from, to)
	return most.Round(100 * time.Millisecond)
}

// Rules by which a change is dropped if no condition is satisfied by it alone in all runs without faults.
const (
	InSomeRuns = "it does not happen in all runs without faults, or not in the same order"
	unevenly   = "the like of it happens before it, and not equally often in all runs without faults"
)
