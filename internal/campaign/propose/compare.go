package propose

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
)

// historyMasks are fields that tell what was before: a changed object's differ from those of one that was created so.
var historyMasks = []baseline.Mask{
	{Type: "controllerrevision.apps", Path: "**", Reason: "history"},
	{Type: "*", Path: "**.collisionCount", Reason: "history"},
	{Type: "*", Path: "**.restarts", Reason: "history"},
	{Type: "*", Path: "**.restartCount", Reason: "history"},
	{Type: "*", Path: "**.currentRevision", Reason: "history"},
	{Type: "*", Path: "**.revisionHistory", Reason: "history"},
	{Type: "*", Path: "metadata.ownerReferences.[].uid", Reason: "generated"},
	{Type: "*", Path: "metadata.annotations.kubectl.kubernetes.io/last-applied-configuration", Reason: "who wrote it"},
}

// Differences lists in what the end of a run in which an object was changed differs from the end of one in which it was
// created like that. Only the sample and what the controllers under test have made count; masks are those of runs that
// do the same, and of the history that only a changed object has.
func Differences(
	sample facts.Key, masks []baseline.Mask, changed, fresh []facts.Change,
) []baseline.Difference {
	ref := &baseline.Baseline{
		Masks:   baseline.Masks{Given: slices.Concat(masks, historyMasks)},
		Objects: facts.Objects(atTheEnd(sample, fresh), fresh...),
	}
	all := ref.Compare(facts.Objects(atTheEnd(sample, changed), changed...))
	return slices.DeleteFunc(all, func(d baseline.Difference) bool { return hasHistory(d) })
}

// hasHistory reports whether a difference is one of objects that only keep history.
func hasHistory(d baseline.Difference) bool { return d.Key.Type() == "controllerrevision.apps" }

// generatedNumber is the part of a key that stands for a generated name.
var generatedNumber = regexp.MustCompile(`#[0-9]+`)

// atTheEnd lists what there is at the end as creations, in a form that does not tell how it came about: generated names
// are counted among those that are left, and of conditions only the true ones are left.
func atTheEnd(sample facts.Key, changes []facts.Change) []facts.Change {
	all := facts.Objects(changes)
	var keys []facts.Key
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if o := all[key]; o.End != nil && (o.Ours || key == sample) && !replaced(o.End) {
			keys = append(keys, key)
		}
	}
	// Sorting the keys as text would put #10 before #2.
	slices.SortStableFunc(keys, func(a, b facts.Key) int { return compareNumbers(string(a), string(b)) })
	numbers := map[string]string{} // new numbers, by the old key up to the number
	next := map[string]int{}       // by the new key before the number
	var ends []facts.Change
	for _, key := range keys {
		old, renamed, rest := "", "", string(key)
		for {
			at := generatedNumber.FindStringIndex(rest)
			if at == nil {
				break
			}
			old += rest[:at[1]]
			renamed += rest[:at[0]]
			if numbers[old] == "" {
				next[renamed]++
				numbers[old] = "#" + strconv.Itoa(next[renamed])
			}
			renamed += numbers[old]
			rest = rest[at[1]:]
		}
		end, _ := withoutHistory(all[key].End).(map[string]any)
		ends = append(ends, facts.Change{Key: facts.Key(renamed + rest), Event: "created", Cur: end})
	}
	return ends
}

// compareNumbers orders texts like slices.Sort, but shorter ones of the same beginning first.
func compareNumbers(a, b string) int {
	pad := func(s string) string {
		return generatedNumber.ReplaceAllStringFunc(s, func(n string) string { return fmt.Sprintf("#%010s", n[1:]) })
	}
	return strings.Compare(pad(a), pad(b))
}

// replaced reports whether an object is what is left of an older version: a ReplicaSet that was scaled to zero.
func replaced(object map[string]any) bool {
	return object["kind"] == "ReplicaSet" && lookup(object, []string{"spec", "replicas"}) == 0.0
}

// isZero reports whether a value says the same as its absence: a status that was never written has no count, and one
// that was counts none.
func isZero(v any) bool { return v == nil || v == 0.0 || v == "" || v == false }

// withoutHistory returns a copy of a value in which lists of conditions are mappings from the true ones, and in which
// fields without a value are absent.
func withoutHistory(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for name, item := range v {
			if _, ok := item.([]any); ok && name == "conditions" {
				types := map[string]any{}
				for _, t := range trueConditions(v) {
					types[t] = true
				}
				m[name] = types
				continue
			}
			if item = withoutHistory(item); !isZero(item) {
				m[name] = item
			}
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = withoutHistory(item)
		}
		return list
	}
	return v
}
