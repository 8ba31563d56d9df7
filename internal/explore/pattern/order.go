package pattern

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/plan"
)

// ranked is a candidate with what decides when it is run.
type ranked struct {
	Candidate
	nth   int     // of its signature
	turn  int     // among the n-th ones of its pattern and type of object
	value float64 // what it may find per second
}

// Times for which the length of a run is estimated.
const (
	settleTime  = 2 * time.Second // from the last change to the verdict
	restartTime = 2 * time.Second // until a restarted controller works again
	// takeoverTime is how long it takes until another process leads: client-go's usual lease, and a retry.
	takeoverTime = 17 * time.Second
)

// length estimates how much longer a plan makes the run of a workload.
func length(p *plan.Plan) time.Duration {
	d := settleTime
	for i := range p.Actions {
		a := &p.Actions[i]
		d += a.WaitBefore + a.WaitAfter
		if e := a.Effects(); e.Starts != "" {
			d += restartTime
		} else if e.Freezes != "" {
			d += takeoverTime
		}
		for _, t := range a.Trigger.Definitions {
			d += t.Condition.Timeout
		}
	}
	return d
}

// ordered returns the candidates in the order in which they are worth running: first one of each signature, then the
// second of each, and so on. Among these the patterns and types of objects take turns, and in each turn those come
// first that are likely to find most per second.
func (g *generator) ordered() []Candidate {
	byValue := func(a, b ranked) int { return cmp.Or(cmp.Compare(a.nth, b.nth), cmp.Compare(b.value, a.value)) }
	slices.SortStableFunc(g.all, byValue)
	type line struct {
		pattern, typ string
		nth          int
	}
	turns := map[line]int{}
	for i := range g.all {
		c := &g.all[i]
		typ, _, _ := strings.Cut(c.Signature, " ")
		l := line{c.Pattern, typ, c.nth}
		turns[l]++
		c.turn = turns[l]
	}
	slices.SortStableFunc(g.all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.nth, b.nth), cmp.Compare(a.turn, b.turn), byValue(a, b))
	})
	all := make([]Candidate, len(g.all))
	for i, c := range g.all {
		all[i] = c.Candidate
	}
	return all
}
