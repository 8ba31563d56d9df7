package learn

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/plan"
)

// workload is one of the suite, or that of a plan with steps of its own.
type workload struct {
	name  string
	steps []plan.Step // nil: the suite has it
	build string      // of the suite, with which it is run; empty: the suite itself
	// types are recorded besides those that the first run shows.
	types []plan.ResourceKey
}

// id names the workload with its build, in names of files and plans, and in messages.
func (w workload) id() string {
	if w.build == "" {
		return w.name
	}
	return w.name + "@" + w.build
}

// workloadOf is what a plan is compared with: its workload without faults. A plan that upgrades is to end as if its
// last build had done all, unless its own steps upgrade.
func workloadOf(p *plan.Plan) workload {
	w := workload{name: WorkloadOf(p), build: p.LastBuild()}
	if len(p.Steps) > 0 {
		w.steps = p.Steps
		if upgradeIn(p.Steps) {
			w.build = p.Build
		}
	}
	return w
}

// workloads are those that are learned.
func (c *Config) workloads() []workload {
	var all []workload
	if c.Plans != nil {
		for _, p := range c.Plans {
			w := workloadOf(p)
			if !slices.ContainsFunc(all, func(other workload) bool { return other.id() == w.id() }) {
				all = append(all, w)
			}
		}
		return all
	}
	chosen := c.Workloads
	if len(chosen) == 0 {
		chosen = slices.Sorted(maps.Keys(c.Suite.Workloads))
	}
	for _, name := range chosen {
		all = append(all, workload{name: name})
	}
	if c.Upgrades(pattern.Upgrade) || c.Upgrades(pattern.Rollback) {
		for _, name := range chosen {
			for _, build := range c.Suite.BuildNames() {
				all = append(all, workload{name: name, build: build})
			}
		}
	}
	return all
}

// IDOf names what a plan is compared with: its workload, and the build with which that is run.
func IDOf(p *plan.Plan) string { return workloadOf(p).id() }

// upgradeIn reports whether one of the steps installs another build.
func upgradeIn(steps []plan.Step) bool {
	return slices.ContainsFunc(steps, func(s plan.Step) bool { return s.Upgrade != nil })
}

// Upgrades reports whether plans of a pattern that upgrades are made.
func (c *Config) Upgrades(name string) bool {
	return c.Plans == nil && len(c.Suite.Builds) > 0 && c.Builds != nil &&
		pattern.Chosen(name, c.Patterns)
}

// inPromise returns the indices of workloads in the order in which they are learned. Those that the user has chosen
// come in his order. Otherwise those come first from which plans promise most.
func inPromise(workloads []workload, chosen []string, suite *plan.Suite) []int {
	order := make([]int, len(workloads))
	for i := range order {
		order[i] = i
	}
	promise := func(w workload) int {
		return schedule.Promise(slices.Concat(w.steps, suite.Workloads[w.name].Steps))
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := workloads[i], workloads[j]
		if len(chosen) > 0 {
			return cmp.Compare(slices.Index(chosen, a.name), slices.Index(chosen, b.name))
		}
		return cmp.Or(cmp.Compare(promise(a), promise(b)), cmp.Compare(a.name, b.name)) // its builds beside it
	})
	return order
}
