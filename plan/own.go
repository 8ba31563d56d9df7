package plan

import (
	"maps"
	"slices"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// MutationDetector is the variable of the environment with which client-go checks whether the objects of its caches are
// changed; see its tools/cache/mutation_detector.go.
const MutationDetector = "KUBE_CACHE_MUTATION_DETECTOR"

// Within returns the suite with what the plan has of its own merged in (its steps, invariants and history), and the
// name of the workload that exercises the controllers. What the plan switches in controllers is not merged in: the
// suite describes objects, and these are the same in all plans. The plan must be complete. The result shares what the
// plan does not add with the original.
func (p *Plan) Within(s *Suite) (merged *Suite, workload string) {
	if len(p.Steps)+len(p.Invariants)+len(p.History) == 0 {
		return s, p.Workload
	}
	m := *s
	workload = p.Workload
	if len(p.Steps) > 0 {
		workload = p.TestName
		m.Workloads = maps.Clone(s.Workloads)
		set(&m.Workloads, workload, Workload{Steps: p.Steps})
	}
	m.Invariants = slices.Concat(s.Invariants, p.Invariants)
	m.History = slices.Concat(s.History, p.History)
	return &m, workload
}

// Listing lists the controllers that use no streaming lists in the whole run because an action says so, each with the
// number of the first such action; the first action is 1.
func (p *Plan) Listing() map[string]int {
	var all map[string]int
	for i := range p.Actions {
		if lists := EffectOf[*NoStreaming](&p.Actions[i]); lists != nil && all[lists.Controller] == 0 {
			set(&all, lists.Controller, i+1)
		}
	}
	return all
}

// cloneSteps copies steps as far as completing them changes them.
func cloneSteps(steps []Step) []Step {
	all := slices.Clone(steps)
	for i := range all {
		if all[i].Delete != nil {
			d := *all[i].Delete
			all[i].Delete = &d
		}
		if all[i].Patch != nil {
			patch := *all[i].Patch
			all[i].Patch = &patch
		}
	}
	return all
}

// own checks what the plan has of its own that otherwise a suite has.
func (c *checker) own(at *yamlfile.Place) {
	p := c.plan
	if len(p.Steps) > 0 && p.Workload != "" {
		at.Field("steps").Errorf("the plan has both a workload and steps of its own; it takes one")
	}
	if at.File().Root == nil && len(p.Steps)+len(p.Invariants) > 0 {
		c.ownInGo(at)
		return
	}
	suite := ""
	if c.suite != nil {
		suite = c.suite.File
	}
	for i := range p.Steps {
		if at := at.Field("steps").Item(i); !at.Failed() {
			p.Steps[i].check(at, suite, c.suite)
		}
	}
	checkInvariants(p.Invariants, at.Field("invariants"))
	if c.suite == nil {
		return
	}
	c.suite.checkClusterOfSteps(at.Field("steps"), p.Steps)
	for i := range p.Invariants {
		c.suite.checkClusterName(at.Field("invariants").Item(i).Field("cluster"), p.Invariants[i].Cluster)
		name := p.Invariants[i].Name
		same := func(other Invariant) bool { return other.Name == name }
		if name != "" && slices.ContainsFunc(c.suite.Invariants, same) {
			at.Field("invariants").Item(i).Errorf("duplicate invariant %q; the suite has it", name)
		}
	}
}

// ownInGo is own for a plan that was built in Go. The rules for steps and invariants are about what a file says, so
// they are applied to the file that the plan would be written to.
func (c *checker) ownInGo(at *yamlfile.Place) {
	data, err := Marshal(&Plan{Steps: c.plan.Steps, Invariants: c.plan.Invariants})
	if err != nil {
		at.Errorf("%v", err)
		return
	}
	file := &Plan{source: &yamlfile.File{Format: layout}}
	src := file.source
	if src.Parse(data, "plan") {
		src.Decode(file, "a plan")
		own := &checker{plan: file, suite: c.suite}
		own.own(src.Whole())
	}
	for _, e := range src.Mistakes {
		at.Errorf("%s", e.Message)
	}
}

// checkInvariants checks a list of invariants.
func checkInvariants(all []Invariant, at *yamlfile.Place) {
	var names []string
	for i := range all {
		if at := at.Item(i); !at.Failed() {
			all[i].check(at)
			if name := all[i].Name; name != "" && slices.Contains(names, name) {
				at.Errorf("duplicate invariant %q", name)
			}
			names = append(names, all[i].Name)
		}
	}
}
