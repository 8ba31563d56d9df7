package campaign

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/plan"
)

// upgradeIn reports whether one of the steps installs another build.
func upgradeIn(steps []plan.Step) bool {
	return slices.ContainsFunc(steps, func(s plan.Step) bool { return s.Upgrade != nil })
}

// upgrades reports whether plans of a pattern that upgrades are made.
func (c *Config) upgrades(name string) bool {
	return c.Plans == nil && len(c.Suite.Builds) > 0 && c.Builds != nil &&
		c.chosen(name)
}

// onlyUpgrades reports whether no other plans are made.
func (c *Config) onlyUpgrades() bool {
	return len(c.Patterns) > 0 && !slices.ContainsFunc(c.Patterns, func(name string) bool {
		return name != pattern.Upgrade && name != pattern.Rollback
	})
}

// build makes the suite's builds that the campaign needs. The budget does not pay for that. What cannot be built is
// said where it is needed.
func (lr *learner) build() {
	if lr.Builds == nil {
		return
	}
	began := time.Now()
	get := func(name string) {
		if name != "" && lr.Life().Err() == nil {
			_, _ = lr.Builds.Get(lr.Life(), name)
		}
	}
	for _, w := range lr.workloads() {
		get(w.build)
	}
	for _, p := range lr.Plans {
		for _, name := range p.Builds(slices.Concat(p.Steps, lr.Suite.Workloads[WorkloadOf(p)].Steps)) {
			get(name)
		}
	}
	lr.clock.LeaveOut(time.Since(began))
}

// between makes the plans that upgrade from one build to another one. What they are compared with is the baseline of
// the latter, but what runs without their actions show is theirs alone: that an upgrade at rest ends differently does
// not excuse other plans.
func (c *campaign) between(learned []Learned) ([]Learned, error) {
	var all []Learned
	for i := range learned {
		old := &learned[i]
		if old.build == "" || old.Baseline == nil || c.Plans != nil {
			continue
		}
		k := slices.IndexFunc(learned, func(l Learned) bool {
			return l.build == "" && l.Baseline != nil && l.Workload == old.Baseline.Workload
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
			both, err := c.oneWay(way.pattern, way.from, way.to, old.build)
			if err != nil {
				return nil, err
			}
			all = append(all, both...)
		}
	}
	return all, nil
}

// oneWay makes the plans that upgrade, or roll back, from one build to another one. The upgrade at rest is apart from
// the others: it is what is left of them without their actions, and must not excuse itself.
func (c *campaign) oneWay(name string, from, to *Learned, build string) (both []Learned, err error) {
	candidates := pattern.Upgrades(c.Suite, name, from.build, to.build, from.Baseline)
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
		l, err := apart(from, to, fmt.Sprintf("%s-%s%s", name, build, part.suffix))
		if err != nil {
			return nil, err
		}
		l.candidates = slices.DeleteFunc(slices.Clone(candidates), part.without)
		both = append(both, *l)
	}
	return both, nil
}

// apart is what is known of a workload with a build, for plans that begin with another one. What runs without their
// actions show is in a file of its own.
func apart(from, to *Learned, scope string) (*Learned, error) {
	l := *to
	l.Workload, l.scope = to.Baseline.Workload, "-"+scope
	ref := *to.Baseline
	ref.Alternatives, ref.Kept = slices.Clone(ref.Alternatives), slices.Clone(ref.Kept)
	ref.Tried = slices.Clone(ref.Tried)
	for _, t := range from.Baseline.Types {
		if !slices.Contains(ref.Types, t) {
			ref.Types = append(slices.Clip(ref.Types), t)
		}
	}
	l.source.Controllers = map[string]string{}
	for _, s := range []struct {
		suffix string
		of     *Learned
	}{{"", to}, {" before", from}} {
		for controller, hash := range s.of.source.Controllers {
			l.source.Controllers[controller+s.suffix] = hash + " " + s.of.source.Suite
		}
	}
	ref.Source = l.source // what is allowed depends on both builds
	l.Baseline = &ref
	dir := filepath.Dir(to.Allowed)
	l.File, l.Allowed = filepath.Join(dir, "baseline-"+scope+".json"), filepath.Join(dir, "allowed-"+scope+".json")
	if from.Anew || to.Anew {
		if err := forget(l.Allowed); err != nil {
			return nil, err
		}
	}
	if err := ref.ReadAllowed(l.Allowed); err != nil {
		return nil, err
	}
	return &l, nil
}
