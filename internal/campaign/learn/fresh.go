package learn

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/run"
	steps "github.com/trommel-dev/trommel/internal/workload"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Fresh is a run of one step: it creates what a workload asks for in the end. What the controllers make of that is
// right in any case, whatever there was before.
type Fresh struct {
	Suite    *plan.Suite
	Workload string      // its name, without the build
	Build    string      // see Learned
	Steps    []plan.Step // of the workload
	Pace     plan.Pace
	Baseline *baseline.Baseline
	Done     *record.Run   // a run of the workload
	Slow     *confirm.Pace // the controllers are slow in this way; nil: they are not
}

// Run carries it out. It returns nil if what the workload asks for is unknown. once runs a plan, and Run returns its
// error. A run that does not pass is an error.
func (f Fresh) Run(
	ctx context.Context,
	once func(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, *record.Meta, error),
) (*record.Run, error) {
	objects, clusters, ok, err := facts.Asked(f.Done, steps.FieldManager)
	if err != nil || !ok {
		return nil, err
	}
	others, in, ok, err := f.unrecorded()
	if err != nil || !ok {
		return nil, err
	}
	objects, clusters = slices.Concat(others, objects), slices.Concat(in, clusters)
	p, err := confirm.Fresh(objects, clusters, f.Steps, f.Slow, f.Baseline.Controllers)
	if err != nil {
		return nil, err
	}
	w := workload{name: f.Workload, build: f.Build}
	p.TestName, p.Build, p.Pace = w.id()+p.TestName, f.Build, f.Pace
	p.Complete(f.Suite)
	if err := p.Validate(f.Suite); err != nil {
		return nil, err
	}
	r, meta, err := once(ctx, p, run.RunOptions{History: f.Baseline.Types})
	if err != nil {
		return nil, err
	}
	if meta.Verdict != record.Pass {
		return nil, fmt.Errorf("what it asks for in the end, created at once, does not pass: %s", meta.Reason)
	}
	return r, nil
}

// unrecorded lists what the workload asks for of types that runs do not record, such as the namespace of the other
// objects: as its steps apply it last, in the order of its first appearance. Not ok: a step changes such an object in
// another way than by applying it.
func (f Fresh) unrecorded() (objects []map[string]any, clusters []string, ok bool, err error) {
	type key struct{ cluster, typ, group, namespace, name string }
	var order []key
	asked := map[key]map[string]any{}
	// named is the object that a step names. It may leave out the group, and the namespace of what is in none.
	named := func(cluster string, of plan.ResourceKey) int {
		return slices.IndexFunc(order, func(k key) bool {
			return k.cluster == cluster && of.Matches(k.typ, k.group, true, k.namespace, k.name)
		})
	}
	for i := range f.Steps {
		s := &f.Steps[i]
		switch {
		case s.Apply != nil:
			applied, _, err := manifests.OfStep(f.Suite, s.Apply)
			if err != nil {
				return nil, nil, false, err
			}
			for _, u := range applied {
				gvk := u.GroupVersionKind()
				k := key{s.Cluster, strings.ToLower(gvk.Kind), gvk.Group, u.GetNamespace(), u.GetName()}
				if f.recorded(k.typ, k.group) {
					continue
				}
				if asked[k] == nil {
					order = append(order, k)
				}
				asked[k] = u.Object
			}
		case s.Delete != nil:
			if at := named(s.Cluster, s.Delete.ResourceKey); at >= 0 {
				delete(asked, order[at])
				order = slices.Delete(order, at, at+1)
			}
		case s.Patch != nil && named(s.Cluster, s.Patch.ResourceKey) >= 0:
			return nil, nil, false, nil
		}
	}
	for _, k := range order {
		objects, clusters = append(objects, asked[k]), append(clusters, k.cluster)
	}
	return objects, clusters, true, nil
}

// recorded reports whether runs record objects of a type, see [baseline.Types].
func (f Fresh) recorded(typ, group string) bool {
	return slices.ContainsFunc(f.Baseline.Types, func(k plan.ResourceKey) bool {
		return k.Group == group && (k.Type == typ || facts.IsResource(k.Type, typ))
	})
}
