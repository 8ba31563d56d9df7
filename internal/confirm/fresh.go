package confirm

import (
	"slices"

	"github.com/trommel-dev/trommel/plan"
)

// Fresh returns a plan of one step: it creates at once what a workload of these steps asks for in the end. Each object
// is in the cluster of the same index. What the controllers make of that is right in any case, whatever was there
// before. With slow the controllers are slow. The name of the plan is only a suffix.
func Fresh(
	objects []map[string]any, clusters []string, steps []plan.Step, slow *Pace, controllers []string,
) (*plan.Plan, error) {
	var create []plan.Step // one for what is one after the other in a cluster
	for i, object := range objects {
		if i == 0 || clusters[i] != clusters[i-1] {
			create = append(create, plan.Step{Cluster: clusters[i], Apply: &plan.ApplyStep{}})
		}
		to := create[len(create)-1].Apply
		to.Objects = append(to.Objects, object)
	}
	last := len(steps)
	for last > 0 && (steps[last-1].Wait != nil || steps[last-1].Sleep > 0) {
		last--
	}
	p := &plan.Plan{
		TestName: "-fresh", Steps: slices.Concat(create, steps[last:]),
		Description: "What the workload asks for in the end is created at once.",
	}
	if slow != nil {
		p.TestName += "-" + slow.Name
		p.Description += " The controllers are slow."
		var err error
		if p.Actions, err = slow.actions(controllers); err != nil {
			return nil, err
		}
	}
	return p, nil
}
