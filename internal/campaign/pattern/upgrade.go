package pattern

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// Names of the patterns that upgrade controllers; see Upgrades.
const (
	Upgrade  = "upgrade"
	Rollback = "rollback"
)

var upgrade = Pattern{
	Name: Upgrade, Finds: "what a former version has left, and the new one does not take up", chance: 4,
	needs: func(s *plan.Suite) bool { return len(s.Builds) > 0 },
}

var rollback = Pattern{
	Name: Rollback, Finds: "what the new version has left, and the former one does not take up", OnRequest: true,
	chance: 2,
}

// Upgrades makes plans that begin with one of the suite's builds and upgrade to another one, at each moment of what the
// workload does with the former. Name is that of their pattern.
//
// The first plan upgrades at rest, when the former build has done the whole workload. How that ends differs from the
// baseline where the latter build does not take up what the former has left; all other plans have that in common, so
// it is what is left of them without their actions.
func Upgrades(suite *plan.Suite, name string, from, to string, former *baseline.Baseline) []Candidate {
	m := moment.New(suite, former, nil)
	by := m.LastWriter()
	if by == "" {
		return nil // the former build does nothing
	}
	p := newPlanner(m, nil)
	label, pattern := from, upgrade
	if name == Rollback {
		label, pattern = to, rollback
	}
	p.build, p.label = from, name+"-"+label
	none, _ := build.Plan(former.Workload + "-" + name + "-none").Workload(former.Workload).From(to).Build()
	without := none
	p.take(pattern, drafts{upgradeAtRest(m, by, from, to, plan.UpgradeKill)})
	if atRest := &p.all[0]; atRest.Plan != nil {
		atRest.Without, without = none, atRest.Plan
	}
	p.take(pattern, drafts{upgradeAtRest(m, by, from, to, plan.UpgradeRolling)})
	// The latter build must do what the former was about to do, if it wants it, and undo what it does not want.
	p.take(pattern, killed(m, fmt.Sprintf("; %s goes on", naming(to)), func(string) *build.Action {
		return build.Upgrade(to, plan.UpgradeKill)
	}))
	p.take(pattern, rolling(m, to))
	for i := range p.all[1:] {
		p.all[1+i].Without = without
	}
	p.leaveOut()
	return p.ordered()
}

// upgradeAtRest upgrades when the former build has done all of the workload; by has made the last write.
func upgradeAtRest(m *moment.Set, by, from, to string, how plan.UpgradeHow) draft {
	words := "%s is installed"
	if how == plan.UpgradeRolling {
		words = "%s takes over in a rolling update"
	}
	why := fmt.Sprintf(words+" when %s has done all of the workload", naming(to), naming(from))
	return disturb(m, steady(m, by), by, "at rest "+string(how), why, build.Upgrade(to, how))
}

// AtRest reports whether the candidate's plan upgrades when the former build has done the whole workload, and kills it
// for that: what comes then, the other upgrades of the workload have in common.
func (c *Candidate) AtRest() bool {
	return (c.Pattern == Upgrade || c.Pattern == Rollback) && c.Without != nil && len(c.Without.Actions) == 0
}

// naming names a build in sentences.
func naming(name string) string { return (&plan.Upgrading{To: name}).Name() }

// rolling begins a rolling update in the middle of each controller's writes. During the update both builds are at work,
// unless one waits for the lease of the other.
func rolling(m *moment.Set, to string) (all drafts) {
	for _, by := range slices.Sorted(maps.Keys(m.Writes)) {
		writes := m.Writes[by]
		// The write nearest to the middle that makes a trigger.
		order := slices.Clone(writes)
		middle := len(writes) / 2
		slices.SortStableFunc(order, func(a, b int) int {
			far := func(i int) int { return max(i-writes[middle], writes[middle]-i) }
			return cmp.Compare(far(a), far(b))
		})
		for _, i := range order {
			written, rule := m.When(moment.At("written", plan.AfterControllerWrite, by), moment.Start, i)
			if rule != "" {
				continue
			}
			why := fmt.Sprintf("%s takes over in a rolling update, which begins when %s has written: %s", naming(to),
				by, m.Describe(i))
			all.add("rolling "+by, why, build.Upgrade(to, plan.UpgradeRolling).Async().When(written.Trigger))
			break
		}
	}
	return all
}
