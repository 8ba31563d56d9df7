package facts

import (
	"slices"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// Reached lists, by controller under test, the points that it reached in a traced run, and by name the annotated calls.
func Reached(r *record.Run) map[string][]string {
	all := map[string][]string{}
	for _, e := range r.Events {
		o := e.Observation
		if o == nil || o.Point == wire.APIServerRecv {
			continue
		}
		name := PointName(o.Point, o.CallName)
		if at, found := slices.BinarySearch(all[o.By], name); !found {
			all[o.By] = slices.Insert(all[o.By], at, name)
		}
	}
	return all
}

// Calls counts, by controller under test and name, the annotated calls that returned in each traced run. Of each it has
// the number of the run with the fewest.
func Calls(runs []*record.Run) map[string]map[string]int {
	var least map[string]map[string]int
	for n, r := range runs {
		all := map[string]map[string]int{}
		for _, e := range r.Events {
			o := e.Observation
			if o == nil || o.Point != wire.AnnotatedCall || o.Phase != wire.After {
				continue
			}
			if all[o.By] == nil {
				all[o.By] = map[string]int{}
			}
			all[o.By][o.CallName]++
		}
		if n == 0 {
			least = all
			continue
		}
		for by, calls := range least {
			for name, count := range calls {
				calls[name] = min(count, all[by][name])
			}
		}
	}
	return least
}

// PointName names a point in Reached; call is the name of an annotated call.
func PointName(p wire.Point, call string) string {
	if p == wire.AnnotatedCall {
		return string(p) + " " + call
	}
	return string(p)
}
