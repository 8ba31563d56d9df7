package campaign

import (
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
)

// onlyUpgrades reports whether no other plans are made.
func (c *Config) onlyUpgrades() bool {
	return len(c.Patterns) > 0 && !slices.ContainsFunc(c.Patterns, func(name string) bool {
		return name != pattern.Upgrade && name != pattern.Rollback
	})
}

// between makes the plans that upgrade from one build to another one. What they are compared with is the baseline of
// the latter, but what runs without their actions show is theirs alone: that an upgrade at rest ends differently does
// not excuse other plans.
func (c *campaign) between(learned []*learn.Learned) ([]*learn.Learned, error) {
	var all []*learn.Learned
	for _, old := range learned {
		if old.Build == "" || old.Scope != "" || old.Baseline == nil || c.Plans != nil || c.paired[old] {
			continue
		}
		k := slices.IndexFunc(learned, func(l *learn.Learned) bool {
			return l.Build == "" && l.Scope == "" && l.Baseline != nil && l.Workload == old.Baseline.Workload
		})
		if k < 0 {
			continue
		}
		c.paired[old] = true
		own, n := learned[k], 0
		for _, way := range []struct {
			pattern  string
			from, to *learn.Learned
		}{{pattern.Upgrade, old, own}, {pattern.Rollback, own, old}} {
			if !c.learner.Upgrades(way.pattern) {
				continue
			}
			both, err := c.oneWay(way.pattern, way.from, way.to, old.Build)
			if err != nil {
				return nil, err
			}
			for _, l := range both {
				l.Place = learn.Place{2, old.Place[1], n}
				n++
			}
			all = append(all, both...)
		}
	}
	return all, nil
}

// oneWay makes the plans that upgrade, or roll back, from one build to another one. The upgrade at rest is apart from
// the others: it is what is left of them without their actions, and must not excuse itself.
func (c *campaign) oneWay(name string, from, to *learn.Learned, build string) (both []*learn.Learned, err error) {
	candidates := pattern.Upgrades(c.Suite, name, from.Build, to.Build, from.Baseline)
	if len(candidates) == 0 {
		c.Say("%s: no plans of the pattern %s: the former build changes nothing", to.Baseline.Workload, name)
		return nil, nil
	}
	for _, part := range []struct {
		suffix  string
		without func(pattern.Candidate) bool
	}{
		{"", func(c pattern.Candidate) bool { return c.AtRest() }},
		{"-at-rest", func(c pattern.Candidate) bool { return !c.AtRest() }},
	} {
		l, err := learn.Apart(from, to, fmt.Sprintf("%s-%s%s", name, build, part.suffix))
		if err != nil {
			return nil, err
		}
		l.Candidates = slices.DeleteFunc(slices.Clone(candidates), part.without)
		both = append(both, l)
	}
	return both, nil
}
