package propose

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// effect is what happens after a change of a kind of field, coarsely: which objects come and go, and which parts of
// which objects the controllers under test write. Two changes of one kind with the same effect are near duplicates: the
// plans that can be made from them strike at the same writes. Empty: the change has no effect that could be compared,
// or it counts something, and how far it goes is what matters.
func effect(rank int, changes []facts.Change, sample facts.Key) string {
	if rank == rankReplicas {
		return ""
	}
	const depth = 2 // spec.template, as a change of a template is one however deep it is
	parts, status := map[string]bool{}, map[string]bool{}
	for i := range changes {
		c := &changes[i]
		key := generatedNumber.ReplaceAllString(string(c.Key), "#")
		if c.Event != record.Updated {
			parts[c.Event+" "+key] = true
			continue
		}
		if c.By == "" {
			continue
		}
		for _, field := range baseline.Fields(c) {
			steps := strings.Split(field, ".")
			to := parts
			if steps[0] == "status" && c.Key == sample {
				to = status // counts on the way differ from run to run
			}
			to[key+" "+strings.Join(steps[:min(depth, len(steps))], ".")] = true
		}
	}
	if len(parts) == 0 {
		parts = status
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprint(rank, slices.Sorted(maps.Keys(parts)))
}

// same reports whether two workloads do the same: their steps differ in names only.
func same(a, b []plan.Step) bool {
	return slices.EqualFunc(a, b, func(a, b plan.Step) bool {
		a.Name, b.Name = "", ""
		return reflect.DeepEqual(a, b)
	})
}

// steps are the steps of a workload as values.
func (w *Workload) steps() (all []plan.Step) {
	for _, s := range w.Steps {
		all = append(all, *s)
	}
	return all
}
