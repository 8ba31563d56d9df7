package pattern

import (
	"path"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/plan"
)

// about is an object that a plan is about, and fields of it.
type about struct {
	key    plan.ResourceKey
	fields [][]string
}

// aboutOf lists the objects that a plan writes as another client or, if it writes none, those that its moments are
// about.
func aboutOf(p *plan.Plan) []about {
	var written, moments []about
	for i := range p.Actions {
		a := &p.Actions[i]
		if write := plan.EffectOf[*plan.Write](a); write != nil && !a.ResourceKey.IsZero() {
			fields := patched(a.Patch)
			if !write.Deletes.IsZero() {
				fields = [][]string{{"metadata", "deletionTimestamp"}} // what a client sets by that
			}
			written = append(written, about{a.ResourceKey, fields})
		}
		for _, d := range a.Trigger.Definitions {
			if c := &d.Condition; !c.ResourceKey.IsZero() {
				fields := slices.Concat(leavesOf(c.PrevState), leavesOf(c.CurState))
				moments = append(moments, about{c.ResourceKey, fields})
			}
		}
		if scope := a.Scope(); !scope.Everything() {
			moments = append(moments, about{scope.Key, nil})
		}
	}
	if len(written) > 0 {
		return written
	}
	return moments
}

// patched lists the fields that a patch changes.
func patched(patch any) (fields [][]string) {
	operations, _ := patch.([]any)
	for _, o := range operations {
		o, _ := o.(object)
		at, _ := o["path"].(string)
		var steps []string
		for step := range strings.SplitSeq(strings.TrimPrefix(at, "/"), "/") {
			steps = append(steps, strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
		}
		fields = append(fields, steps)
	}
	return append(fields, leavesOf(patch)...)
}

// leavesOf lists the fields of a state, with the lists as wholes.
func leavesOf(state any) (fields [][]string) {
	m, _ := state.(object)
	for name, v := range m {
		below, ok := v.(object)
		if !ok {
			fields = append(fields, []string{name})
			continue
		}
		for _, field := range leavesOf(below) {
			fields = append(fields, append([]string{name}, field...))
		}
	}
	return fields
}

// skips reports whether a plan of a pattern is left out that is about these objects.
func skips(s plan.Skip, pattern string, all []about) bool {
	if s.Pattern != "" && s.Pattern != pattern {
		return false
	}
	if s.Type+s.Name+s.Field == "" {
		return true
	}
	return slices.ContainsFunc(all, func(a about) bool {
		typ, group, grouped := strings.Cut(s.Type, ".")
		if s.Type != "" && (typ != a.key.Type || grouped && group != a.key.Group) {
			return false
		}
		if named, err := path.Match(s.Name, a.key.Name); s.Name != "" && (err != nil || !named) {
			return false
		}
		return s.Field == "" || slices.ContainsFunc(a.fields, func(field []string) bool {
			return baseline.Covers(s.Field, field)
		})
	})
}
