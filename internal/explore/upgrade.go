package explore

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/trommel-dev/trommel/internal/explore/pattern"
)

// upgrades reports whether plans of a pattern that upgrades are made.
func (c *campaign) upgrades(name string) bool {
	return c.Plans == nil && len(c.Suite.Builds) > 0 && c.Builds != nil &&
		slices.ContainsFunc(pattern.Patterns(), func(p pattern.Pattern) bool { return p.Name == name && p.In(c.Patterns) })
}

// between makes the plans that upgrade from one build to another one. What they are compared with is the reference of
// the latter, but what runs without their actions show is theirs alone: that an upgrade at rest ends differently does
// not excuse other plans.
func (c *campaign) between(learned []Learned) ([]Learned, error) {
	var all []Learned
	for i := range learned {
		old := &learned[i]
		if old.build == "" || old.Reference == nil || c.Plans != nil {
			continue
		}
		k := slices.IndexFunc(learned, func(l Learned) bool {
			return l.build == "" && l.Reference != nil && l.Workload == old.Reference.Workload
		})
		if k < 0 {
			continue
		}
		own := &learned[k]
		for _, way := range []struct {
			pattern  string
			from, to *Learned
		}{{pattern.Upgrade, old, own}, {pattern.Rollback, own, old}} {
			if !c.upgrades(way.pattern) {
				continue
			}
			l, err := c.oneWay(way.pattern, way.from, way.to, old.build)
			if err != nil {
				return nil, err
			}
			all = append(all, *l)
		}
	}
	return all, nil
}

// oneWay makes the plans that upgrade, or roll back, from one build to another one.
func (c *campaign) oneWay(name string, from, to *Learned, build string) (*Learned, error) {
	l := *to
	l.Workload, l.scope = to.Reference.Workload, fmt.Sprintf("-%s-%s", name, build)
	ref := *to.Reference
	ref.Alternatives, ref.Kept, ref.Tried = slices.Clone(ref.Alternatives), slices.Clone(ref.Kept), slices.Clone(ref.Tried)
	for _, t := range from.Reference.Types {
		if !slices.Contains(ref.Types, t) {
			ref.Types = append(slices.Clip(ref.Types), t)
		}
	}
	l.Reference = &ref
	l.Allowed = filepath.Join(filepath.Dir(to.Allowed), fmt.Sprintf("allowed-%s-%s.json", name, build))
	if from.Anew || to.Anew {
		if err := forget(l.Allowed); err != nil {
			return nil, err
		}
	}
	if err := ref.ReadAllowed(l.Allowed); err != nil {
		return nil, err
	}
	l.source.Controllers = map[string]string{}
	for _, s := range []struct {
		suffix string
		of     *Learned
	}{{"", to}, {"@" + from.build + " before", from}} {
		for controller, hash := range s.of.source.Controllers {
			l.source.Controllers[controller+s.suffix] = hash + " " + s.of.source.Suite
		}
	}
	l.candidates = pattern.Upgrades(c.Suite, name, from.build, to.build, from.Reference)
	if l.candidates == nil {
		c.say("%s: no plans of the pattern %s: the former build changes nothing", l.Workload, name)
		l.candidates = []pattern.Candidate{}
	}
	l.build = ""
	return &l, nil
}
