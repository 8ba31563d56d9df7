package pattern

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// Names of the patterns that upgrade controllers; see Upgrades.
const (
	Upgrade  = "upgrade"
	Rollback = "rollback"
)

// Upgrades makes plans that begin with one of the suite's builds and upgrade to another one, at each moment of what the
// workload does with the former. Name is that of their pattern.
//
// The first plan upgrades at rest, when the former build has done the whole workload. How that ends differs from the
// baseline where the latter build does not take up what the former has left; all other plans have that in common, so
// it is what is left of them without their actions.
func Upgrades(suite *plan.Suite, name string, from, to string, former *baseline.Baseline) []Candidate {
	g := newGenerator(suite, former)
	g.build = from
	label := from
	if name == Rollback {
		label = to
	}
	g.label = name + "-" + label
	for _, p := range Patterns() {
		if p.Name == name {
			g.pattern = p
		}
	}
	by := g.last()
	if by == "" {
		return nil // the former build does nothing
	}
	atRest := func(how plan.UpgradeHow, words string) *ranked {
		why := fmt.Sprintf("%s when %s has done all of the workload", words, naming(from))
		g.disturb(g.steady(by), by, "at rest "+string(how), why, build.Upgrade(to, how))
		return &g.all[len(g.all)-1]
	}
	none, _ := build.Plan(g.ref.Workload + "-" + name + "-none").Workload(g.ref.Workload).From(to).Build()
	without := none
	if at := atRest(plan.UpgradeKill, fmt.Sprintf("%s is installed", naming(to))); at.Plan != nil {
		at.Without, without = none, at.Plan
	}
	if at := atRest(plan.UpgradeRolling, fmt.Sprintf("%s takes over in a rolling update", naming(to))); at.Plan != nil {
		at.Without = without
	}
	first := len(g.all)
	// The latter build must do what the former was about to do, if it wants it, and undo what it does not want.
	g.killed(fmt.Sprintf("; %s goes on", naming(to)), func(string) *build.Action {
		return build.Upgrade(to, plan.UpgradeKill)
	})
	g.rolling(to)
	for i := first; i < len(g.all); i++ {
		g.all[i].Without = without
	}
	g.skip()
	return g.ordered()
}

// AtRest reports whether the candidate's plan upgrades when the former build has done the whole workload, and kills it
// for that: what comes then, the other upgrades of the workload have in common.
func (c *Candidate) AtRest() bool {
	return (c.Pattern == Upgrade || c.Pattern == Rollback) && c.Without != nil && len(c.Without.Actions) == 0
}

// naming names a build in sentences.
func naming(name string) string { return (&plan.Upgrading{To: name}).Name() }

// last is the controller that has made the last write; empty: none has made any.
func (g *generator) last() string {
	for i := len(g.ref.Changes) - 1; i >= 0; i-- {
		if by := g.ref.Changes[i].By; by != "" {
			return by
		}
	}
	return ""
}

// rolling begins a rolling update in the middle of each controller's writes: for as long as that takes, both builds are
// at work, unless one waits for the lease of the other.
func (g *generator) rolling(to string) {
	for _, by := range slices.Sorted(maps.Keys(g.writes)) {
		writes := g.writes[by]
		// The nearest to the middle that can be told.
		order := slices.Clone(writes)
		middle := len(writes) / 2
		slices.SortStableFunc(order, func(a, b int) int {
			far := func(i int) int { return max(i-writes[middle], writes[middle]-i) }
			return cmp.Compare(far(a), far(b))
		})
		for _, i := range order {
			d, rule := g.when("written", start, i, plan.AfterControllerWrite, by)
			if rule != "" {
				continue
			}
			g.add("rolling "+by, fmt.Sprintf("%s takes over in a rolling update, which begins when %s has written: %s",
				naming(to), by, g.describe(i)), build.Upgrade(to, plan.UpgradeRolling).Async().When(d))
			break
		}
	}
}
