package pattern

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/record"
)

// Place is where a candidate is: which workload has it, and where in the list of the workload.
type Place struct{ Workload, Index int }

// placed is a plan with what decides when it is run.
type placed struct {
	Place
	*Candidate
	at, moment strike
	begun      bool
	// again is how many plans before it do the same at the same moment, in this workload or another one.
	again     int
	namesake  bool // see Order
	atRest    bool // see Candidate.AtRest
	nth       int  // of its signature, among those that are not the same
	round     int  // its number among the plans of its kind
	foremost  bool
	worth     float64
	turn      int // its number among the plans of its pattern in its class
	moments   int // how many plans its workload has
	kind, key string
}

// Order returns the plans of workloads in the order in which they are worth running. Each list has the candidates of a
// workload, as GenerateFor returns them.
//
// What differs only in the workload around it comes last: a plan that does the same to the same objects, at the same
// moment, as one of another workload. Of the others, first there is one plan of each pattern, type of object and
// operation, over all workloads, then the second one of each, and so on. In each of these rounds the patterns that find
// most come first, and among these the plans with most at stake: see findings.Stake. What a controller may do once more
// that is shown the past counts like what it is shown, and makes another kind of it. Before all else a controller is
// shown the mark for deletion of a namesake of what holds data, once at each kind of its writes: it may delete what is
// in use. An upgrade at rest comes first in each round, of one workload after the other: it shows what all upgrades of
// the workload have in common.
func Order(workloads ...[]Candidate) []Place {
	return OrderAfter(func(Place) bool { return false }, workloads...)
}

// OrderAfter is Order when some of the plans have begun. These count as the first ones of their kind, whatever was
// learned since.
func OrderAfter(begun func(Place) bool, workloads ...[]Candidate) []Place {
	var all []*placed
	for w, candidates := range workloads {
		plans := 0
		for i := range candidates {
			if c := &candidates[i]; c.Plan != nil {
				plans++
				p := newPlaced(w, i, c)
				p.begun = begun(p.Place)
				all = append(all, p)
			}
		}
		for _, p := range all[len(all)-plans:] {
			p.moments = plans
		}
	}
	// A short workload is quicker. In each, those come first that are likely to find more.
	slices.SortStableFunc(all, func(a, b *placed) int {
		return cmp.Or(first(a.begun, b.begun), cmp.Compare(a.Index, b.Index), cmp.Compare(a.moments, b.moments),
			cmp.Compare(a.Workload, b.Workload))
	})
	number(all, func(p *placed) string { return p.key }, func(p *placed, n int) { p.again = n })
	slices.SortStableFunc(all, func(a, b *placed) int { return cmp.Compare(a.again, b.again) })
	number(all, func(p *placed) string { return fmt.Sprint(p.again, p.Pattern, " ", p.Signature) },
		func(p *placed, n int) { p.nth = n })
	slices.SortStableFunc(all, func(a, b *placed) int {
		return cmp.Or(cmp.Compare(a.again, b.again), first(a.begun, b.begun), cmp.Compare(a.nth, b.nth),
			cmp.Compare(b.at.stake, a.at.stake), cmp.Compare(b.moment.stake, a.moment.stake))
	})
	number(all, func(p *placed) string { return fmt.Sprint(p.again, p.kind) }, func(p *placed, n int) {
		p.round = n
		p.namesake = p.namesake && n == 0
	})
	class := func(a, b *placed) int {
		return cmp.Or(cmp.Compare(a.again, b.again), first(a.namesake, b.namesake), cmp.Compare(a.round, b.round),
			first(a.atRest, b.atRest), first(a.foremost, b.foremost), cmp.Compare(b.at.stake, a.at.stake))
	}
	slices.SortStableFunc(all, func(a, b *placed) int { return cmp.Or(class(a, b), cmp.Compare(b.worth, a.worth)) })
	number(all, func(p *placed) string {
		return fmt.Sprint(p.again, p.namesake, p.round, p.foremost, p.at.stake, p.Pattern)
	}, func(p *placed, n int) { p.turn = n })
	slices.SortStableFunc(all, func(a, b *placed) int { return cmp.Or(class(a, b), cmp.Compare(a.turn, b.turn)) })
	places := make([]Place, len(all))
	for i, p := range all {
		places[i] = p.Place
	}
	return places
}

func newPlaced(workload, index int, c *Candidate) *placed {
	pattern := named(c.Pattern)
	p := &placed{
		Place: Place{workload, index}, Candidate: c, foremost: pattern.foremost,
		worth: pattern.chance / length(c.Plan).Seconds(),
	}
	p.at, p.moment = struck(c.Plan)
	p.kind = c.Pattern + " " + p.at.String()
	if p.namesake = c.Pattern == "stale" && p.at.what == marks && p.at.stake == findings.StakeLoss; p.namesake {
		p.kind += " " + p.moment.String()
	}
	if c.again.stake > p.at.stake {
		p.at.stake = c.again.stake
		p.kind += " " + c.again.String()
	}
	if p.atRest = c.AtRest(); p.atRest {
		p.kind, p.key = p.kind+" at rest", fmt.Sprint("after workload ", workload, " ")
	}
	// Times differ between workloads.
	p.key += c.Pattern + " " + c.Signature
	for i := range c.Plan.Actions {
		a := &c.Plan.Actions[i]
		p.key += fmt.Sprintf(" %s %s", a.Type, record.In(a.Cluster, a.ResourceKey.String()))
		for _, d := range a.Trigger.Definitions {
			p.key += fmt.Sprintf(" %s %d", record.In(d.Observe.Cluster, d.Condition.ResourceKey.String()),
				d.Condition.Repeat)
		}
	}
	return p
}

// named returns the pattern of a name. Others, as that of harmless plans, have no rank of their own.
func named(name string) Pattern {
	for _, p := range Patterns() {
		if p.Name == name {
			return p
		}
	}
	return Pattern{Name: name, chance: 1}
}

// number numbers the plans that have something in common, from 0 on.
func number(all []*placed, common func(*placed) string, set func(p *placed, n int)) {
	seen := map[string]int{}
	for _, p := range all {
		key := common(p)
		set(p, seen[key])
		seen[key]++
	}
}

// first compares: what has something comes before what has not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
