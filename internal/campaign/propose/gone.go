package propose

import (
	"maps"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// held are the types whose objects hold data or make others, and are waited for first. Controllers under test need not
// touch them: of a StatefulSet's volume claims Kubernetes is the maker. Their states are recorded in any case.
var held = []plan.ResourceKey{
	{Type: "persistentvolumeclaim", Namespace: "*", Name: "*"},
	{Type: "statefulset", Group: "apps", Namespace: "*", Name: "*"},
}

// leftovers waits for what goes after the sample, or with it, as a run has shown it, if its names are known: first of
// all volume claims and StatefulSets, then the last of the others. The steps are in the order in which it went.
func leftovers(changes []facts.Change, sample facts.Key) []*plan.Step {
	const most = 6
	end := states(changes)
	begun := slices.IndexFunc(changes, func(c facts.Change) bool {
		return c.Key == sample && (c.Marked() || c.Event == record.Deleted)
	})
	if begun < 0 {
		return nil
	}
	type left struct {
		key   plan.ResourceKey
		at    int
		first bool
	}
	var all []left
	for i := begun + 1; i < len(changes); i++ {
		c := &changes[i]
		key, ok := named(c)
		if ok && c.Event == record.Deleted && c.Key != sample && end[c.Key] == nil {
			all = slices.DeleteFunc(all, func(l left) bool { return l.key == key }) // an earlier namesake
			all = append(all, left{key, i, isHeld(key)})
		}
	}
	slices.SortStableFunc(all, func(a, b left) int {
		if a.first != b.first {
			if a.first {
				return -1
			}
			return 1
		}
		return b.at - a.at
	})
	all = all[:min(most, len(all))]
	slices.SortFunc(all, func(a, b left) int { return a.at - b.at })
	var steps []*plan.Step
	for _, l := range all {
		steps = append(steps, absent(l.key))
	}
	return steps
}

// stays are the volume claims and StatefulSets that the sample's deletion leaves, as a run has shown it.
func stays(changes []facts.Change) (names []string) {
	end := states(changes)
	for _, key := range slices.Sorted(maps.Keys(end)) {
		at := slices.IndexFunc(changes, func(c facts.Change) bool {
			return c.Key == key && c.Event == record.Created
		})
		if at < 0 || end[key] == nil {
			continue
		}
		if parsed, ok := named(&changes[at]); ok && isHeld(parsed) {
			names = append(names, parsed.Type+" "+parsed.Name)
		}
	}
	return names
}

func isHeld(key plan.ResourceKey) bool {
	return slices.ContainsFunc(held, func(h plan.ResourceKey) bool {
		return h.Type == key.Type && h.Group == key.Group
	})
}

// named is the key of a change's object if a plan can name it.
func named(c *facts.Change) (plan.ResourceKey, bool) {
	key, err := plan.ParseResourceKey(c.Key.Local())
	return key, err == nil && !c.Generated && !strings.Contains(string(c.Key), "#")
}
