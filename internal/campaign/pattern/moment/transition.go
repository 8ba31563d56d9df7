package moment

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// maxFields is how many fields a trigger names at most: as general as the workload allows.
const maxFields = 2

// transition distinguishes an update from others by parts of the states before and after. Nil: anything.
type transition struct{ before, after object }

// transitions lists what may distinguish an update from others at a point.
func (h *History) transitions(c *facts.Change, at plan.Timing) []transition {
	_, prev, cur := shown(c, at)
	switch {
	case c.Marked():
		return []transition{{
			object{"metadata": object{"deletionTimestamp": plan.Absent}},
			object{"metadata": object{"deletionTimestamp": plan.Present}},
		}}
	case c.Event == record.Deleted:
		return []transition{{nil, object{"metadata": object{"finalizers": plan.Absent}}}}
	}
	fields := slices.DeleteFunc(h.Baseline.Changed(&facts.Change{Key: c.Key, Prev: prev, Cur: cur}),
		func(f facts.Field) bool {
			return !h.inAllRuns(c, f) || at == plan.BeforeControllerWrite && !sends(c, f)
		})
	// Fields in lists are at the same index only as long as the list stays as it is.
	slices.SortStableFunc(fields, func(a, b facts.Field) int {
		return cmp.Compare(len(a.PrevIndex)+len(a.CurIndex), len(b.PrevIndex)+len(b.CurIndex))
	})
	if len(fields) == 0 {
		return nil
	}
	if fields[0].Path[0] == "status" {
		// How a status comes to a value depends on what its writer has seen in between.
		var all []transition
		for n, f := range fields {
			before, after := object{}, object{}
			setField(after, f.Path, f.CurIndex, f.Cur)
			fillPlaces(before, f.Path, f.CurIndex)
			if len(after) > 0 && n < maxFields {
				all = append(all, transition{orNil(before), after})
			}
		}
		return all
	}
	before, after := object{}, object{}
	for n, f := range fields {
		if n == maxFields || n > 0 && (f.InList() || f.Path[0] == "status") {
			break
		}
		setField(before, f.Path, f.PrevIndex, f.Prev)
		setField(after, f.Path, f.CurIndex, f.Cur)
		// A place stands for an item, also in the state in which the item does not exist.
		if f.PrevIndex == nil {
			fillPlaces(before, f.Path, f.CurIndex)
		}
		if f.CurIndex == nil {
			fillPlaces(after, f.Path, f.PrevIndex)
		}
	}
	return []transition{{orNil(before), orNil(after)}}
}

// sends reports whether a write has the field's new value before the API server has seen it. A default is added only
// there, and a value may be written in another way. If it is not known what was sent, everything counts.
func sends(c *facts.Change, f facts.Field) bool {
	if c.Sent == nil || f.Cur == nil {
		return true
	}
	path := f.Path
	if i := slices.Index(path, facts.Item); i >= 0 {
		return ValueAt(c.Sent, path[:i]) != nil
	}
	return reflect.DeepEqual(ValueAt(c.Sent, path), f.Cur)
}

func orNil(o object) object {
	if len(o) == 0 {
		return nil // a state that says nothing
	}
	return o
}

// inAllRuns reports whether an object's field changes in the same way in every run without faults. Addresses that a
// controller copies do not count: they are assigned in the order in which pods start, and may be the same by chance.
func (h *History) inAllRuns(c *facts.Change, f facts.Field) bool {
	if c.By != "" && (isAddress(f.Cur) || isAddress(f.Prev)) {
		return false
	}
	for _, other := range h.Runs[1:] {
		if !slices.ContainsFunc(other.ByKey[c.Key], func(k int) bool {
			return slices.ContainsFunc(other.fields(k), func(o facts.Field) bool {
				return o.Where == f.Where && reflect.DeepEqual(o.Cur, f.Cur) && slices.Equal(o.CurIndex, f.CurIndex) &&
					(f.Path[0] == "status" ||
						reflect.DeepEqual(o.Prev, f.Prev) && slices.Equal(o.PrevIndex, f.PrevIndex))
			})
		}) {
			return false
		}
	}
	return true
}

// isAddress reports whether a value is the address of a machine, pod or service.
func isAddress(v any) bool {
	text, _ := v.(string)
	ip, err := netip.ParseAddr(text)
	return err == nil && !ip.IsUnspecified() && !ip.IsLoopback()
}
