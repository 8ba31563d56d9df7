package findings

import (
	"cmp"
	"slices"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// One is what found something: a plan in a campaign, or a run.
type One struct {
	Findings []record.Finding
	Cause    string // see CauseOf
	Sure     bool   // its findings were confirmed
}

// Group is what several plans or runs have found that is probably one bug.
type Group struct {
	Finding record.Finding // the worst that all of them show, as the first one does
	Members []int          // indices; the first is confirmed, if any is
}

// Groups puts together what has the same cause and does the same harm: to the same type of objects of the same type of
// owners, whatever these are called. What else such a run shows follows from that. Everything is in one group. The
// worst harm comes first, and then what most have found. Of a group, the confirmed ones come first, of these the ones
// that show the worst, and then those that come first in the list, which should be the simplest.
//
// This is the only grouping: summaries, pages, JSON, annotations and the search for smaller plans have it in common.
func Groups(all []One) []Group {
	type effect struct {
		cause, what string
		rank        int
	}
	of := func(i int) []effect {
		var effects []effect
		for _, f := range all[i].Findings {
			effects = append(effects, effect{all[i].Cause, f.Effect(), f.Does().Rank()})
		}
		if effects == nil {
			effects = []effect{{all[i].Cause, "", record.HarmRemark.Rank()}}
		}
		slices.SortStableFunc(effects, func(a, b effect) int { return a.rank - b.rank })
		return effects
	}
	// The rank may differ: what was lost in one run is missing in another.
	like := func(a, b effect) bool { return a.cause == b.cause && a.what == b.what }
	var left []int
	effects := make([][]effect, len(all))
	for i := range all {
		left = append(left, i)
		effects[i] = of(i)
	}
	var groups []Group
	for len(left) > 0 {
		// The worst harm that is left, in the way that most show it.
		var most effect
		count := 0
		for _, i := range left {
			n := 0
			for _, j := range left {
				if slices.ContainsFunc(effects[j], func(e effect) bool { return like(e, effects[i][0]) }) {
					n++
				}
			}
			if worst := effects[i][0]; count == 0 || worst.rank < most.rank || worst.rank == most.rank && n > count {
				most, count = worst, n
			}
		}
		has := func(i int, want effect) bool {
			return slices.ContainsFunc(effects[i], func(e effect) bool { return like(e, want) })
		}
		var members []int
		for _, i := range left {
			if has(i, most) {
				members = append(members, i)
			}
		}
		order := func(i, j int) int {
			return cmp.Or(sureFirst(all[i], all[j]), effects[i][0].rank-effects[j][0].rank, cmp.Compare(i, j))
		}
		slices.SortFunc(members, order)
		// What shows nothing worse than something that the first one shows, too, is a part of the same.
		first := members[0]
		for _, i := range left {
			if !slices.Contains(members, i) && has(first, effects[i][0]) {
				members = append(members, i)
			}
		}
		slices.SortFunc(members[1:], order)
		g := Group{Members: members}
		sorted := slices.SortedStableFunc(slices.Values(all[first].Findings), record.ByHarm)
		if at := slices.IndexFunc(sorted, func(f record.Finding) bool { return f.Effect() == most.what }); at >= 0 {
			g.Finding = sorted[at]
		}
		groups = append(groups, g)
		left = slices.DeleteFunc(left, func(i int) bool { return slices.Contains(members, i) })
	}
	return groups
}

// Joins reports whether what a plan has found joins what a run without a plan's actions has: the same is wrong, and it
// is not worse. In a status, one cause shows in several fields, and which of them differ is a matter of time, so the
// fields of a status count as one. What is worse, such as an object that is lost where the other run only replaces it,
// is a finding of its own.
func Joins(found, without record.Finding) bool {
	if found.Does().Rank() < without.Does().Rank() {
		return false
	}
	if ofStatus(found) && ofStatus(without) {
		found.Field, without.Field = "", ""
	}
	return found.Same(without)
}

// ofStatus reports whether a run ended with another status.
func ofStatus(f record.Finding) bool {
	return f.Judge == record.JudgeReference && f.Field != "" && f.Does().Rank() >= record.HarmStatus.Rank()
}

func sureFirst(a, b One) int {
	switch {
	case a.Sure == b.Sure:
		return 0
	case a.Sure:
		return -1
	}
	return 1
}

// Causes of what is found: what a plan does to the controllers.
const (
	Stale       = "when the past is shown" // API servers or deliveries were held, or a process was frozen
	Upgraded    = "when the suite's own build takes over"
	RolledBack  = "when another build takes over"
	Interrupted = "when work is interrupted"
	Disturbed   = "when others write"
	Undisturbed = "when nothing is done"
)

// CauseOf is what a plan with these actions does to the controllers. A plan that shows the past to a controller may
// restart it, too: the most peculiar of its actions counts.
func CauseOf(actions []plan.Action) string {
	cause := Undisturbed
	for i := range actions {
		switch e := actions[i].Effects(); {
		case e.Pauses != nil, e.Moves != nil, e.Freezes != "":
			return Stale
		case e.Writes:
			cause = Disturbed
		case e.Upgrades != nil && cause != Disturbed:
			if cause = Upgraded; e.Upgrades.To != "" {
				cause = RolledBack
			}
		case cause == Undisturbed:
			cause = Interrupted
		}
	}
	return cause
}
