package pattern

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/effect"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// maxFields is how many fields a trigger names at most: as general as the workload allows.
const maxFields = 2

// start is the moment before the first change.
const start = -1

// trigger returns the condition that the i-th change satisfies, and no change between the one before and it, if it is
// observed at a point by a process. The change before is the one that fires the plan's previous action: a trigger
// counts from then on, and was made of it first. The change satisfies the condition in every run without faults. If
// there is no such condition, rule says why.
func (g *generator) trigger(
	name string, before, i int, timing plan.Timing, by string,
) (t *build.Condition, rule string) {
	c := &g.ref.Changes[i]
	object, _ := g.object(i)
	key, err := plan.ParseResourceKey(object)
	if err != nil {
		return nil, err.Error()
	}
	d := plan.Definition{
		Condition: plan.Condition{ResourceKey: key, Where: g.where[c.Key], Repeat: 1},
		Observe:   plan.ObservationPoint{Timing: timing, ObserveBy: by, Cluster: c.Key.Cluster()},
	}
	kind, prev, cur := shown(c, timing)
	switch kind {
	case plan.Created:
		d.Condition.Type, t = plan.OnObjectCreation, build.Created(key.String())
		rule = g.locate(&d, before, i)
	case plan.Deleted:
		d.Condition.Type, t = plan.OnObjectDeletion, build.Deleted(key.String())
		rule = g.locate(&d, before, i)
	default:
		d.Condition.Type, t = plan.OnObjectUpdate, build.Updated(key.String())
		var told transition
		if told, rule = g.telling(&d, c, prev, cur, before, i); told.before != nil {
			t.From(told.before)
		}
		if told.after != nil {
			t.To(told.after)
		}
	}
	if rule != "" {
		return nil, rule
	}
	return t.Named(name).Where(d.Condition.Where).Repeat(d.Condition.Repeat).At(timing, by).
		InCluster(c.Key.Cluster()), ""
}

// when is the moment at which the i-th change passes an observation point, and no change between the one before and it.
// If the like of it does not happen equally often until then in all runs without faults, it is counted from another
// change that comes before it in all of them: the last one from which on it can be told.
func (g *generator) when(
	name string, before, i int, timing plan.Timing, by string,
) (t build.Trigger, rule string) {
	d, rule := g.named(name, before, i, timing, by)
	if rule != unevenly {
		return d, rule
	}
	for k, tried := i-1, 0; k > before && tried < anchors; k-- {
		at, from := g.before(k, i, timing, by)
		if at == "" {
			continue
		}
		tried++
		since, none := g.named("since", before, k, at, from)
		if none != "" {
			continue
		}
		if d, none := g.named(name, k, i, timing, by); none == "" {
			return build.Sequence(since, d), ""
		}
	}
	return nil, rule
}

// point is where a change is observed, and how the condition on it is called.
type point struct {
	name   string
	timing plan.Timing
	by     string
}

// both returns the moments at which the i-th change passes a point, and after it the k-th one another point.
func (g *generator) both(i int, at point, k int, then point) (first, second build.Trigger, rule string) {
	if first, rule = g.when(at.name, start, i, at.timing, at.by); rule != "" {
		return nil, nil, rule
	}
	second, rule = g.when(then.name, i, k, then.timing, then.by)
	return first, second, rule
}

// before is where the k-th change is observed for certain before the i-th one passes a point; empty: nowhere.
func (g *generator) before(k, i int, timing plan.Timing, by string) (at plan.Timing, from string) {
	c, then := &g.ref.Changes[k], &g.ref.Changes[i]
	switch {
	case timing == plan.BeforeAPIServerRecv || timing == plan.AfterAPIServerRecv:
		return plan.AfterAPIServerRecv, by
	case c.By == by:
		return plan.AfterControllerWrite, by
	case slices.Contains(c.Taken, by) && then.By == by && then.MayFollowFrom(c):
		return plan.AfterControllerRecv, by
	}
	return "", ""
}

// named is trigger, also for an update that has other values in each run: it is told by a field that changes in it.
func (g *generator) named(
	name string, before, i int, timing plan.Timing, by string,
) (t *build.Condition, rule string) {
	t, rule = g.trigger(name, before, i, timing, by)
	c := &g.ref.Changes[i]
	if rule == "" || c.Prev == nil || c.Cur == nil {
		return t, rule
	}
	key, _ := g.object(i)
	resource, err := plan.ParseResourceKey(key)
	if err != nil {
		return nil, err.Error()
	}
	counted := baseline.Fields(c)
	var told object
	repeat := 0
	for _, f := range facts.FieldsOf(c) {
		if f.InList() || f.Cur == nil || !slices.Contains(counted, f.Where) {
			continue
		}
		state := object{}
		setField(state, f.Path, nil, plan.Present)
		try := plan.Definition{
			Condition: plan.Condition{
				Type: plan.OnObjectUpdate, ResourceKey: resource, CurState: state, Where: g.where[c.Key], Repeat: 1,
			},
			Observe: plan.ObservationPoint{Timing: timing, ObserveBy: by, Cluster: c.Key.Cluster()},
		}
		if g.locate(&try, before, i) == "" && (repeat == 0 || try.Condition.Repeat < repeat) {
			told, repeat = state, try.Condition.Repeat
		}
	}
	if repeat == 0 {
		return nil, rule
	}
	return build.Updated(key).To(told).Named(name).Where(g.where[c.Key]).Repeat(repeat).At(timing, by).
		InCluster(c.Key.Cluster()), ""
}

// Rules by which a change is dropped that no condition tells in all runs without faults.
const (
	inSomeRuns = "it does not happen in all runs without faults, or not in the same order"
	unevenly   = "the like of it happens before it, and not equally often in all runs without faults"
)

// telling completes the definition of an update with the transition that tells it best from others: the one that has to
// be counted least.
func (g *generator) telling(
	d *plan.Definition, c *facts.Change, prev, cur object, before, i int,
) (best transition, rule string) {
	rule = "it changes no field that is the same in all runs without faults"
	var found plan.Condition
	for n, s := range g.transitions(c, prev, cur) {
		try := *d
		try.Condition.PrevState, try.Condition.CurState = nil, nil
		if s.before != nil {
			try.Condition.PrevState = s.before
		}
		if s.after != nil {
			try.Condition.CurState = s.after
		}
		why := g.locate(&try, before, i)
		switch {
		case why == "" && (found.Repeat == 0 || try.Condition.Repeat < found.Repeat):
			best, found = s, try.Condition
		case n == 0 && why != "":
			rule = why
		}
	}
	if found.Repeat == 0 {
		return best, rule
	}
	d.Condition = found
	return best, g.locate(d, before, i) // for its positions
}

// object is the resource key of the i-th change's object in its cluster. If the object's name is generated and differs
// between the runs without faults, the key has a wildcard and is not exact.
func (g *generator) object(i int) (key string, exact bool) {
	c := &g.ref.Changes[i]
	real := realKey(c)
	key = facts.Key(real).Local()
	if !c.Generated {
		return key, true
	}
	for _, other := range g.runs[1:] {
		if same := other.byKey[c.Key]; len(same) == 0 || realKey(&other.changes[same[0]]) != real {
			beginning, _, _ := strings.Cut(c.Key.Local(), "#")
			return beginning + "*", false
		}
	}
	return key, len(g.runs) > 1
}

// transition is what tells an update from others: parts of the states before and after. Nil: anything.
type transition struct{ before, after object }

// transitions lists what may tell an update from others.
func (g *generator) transitions(c *facts.Change, prev, cur object) []transition {
	switch {
	case c.Marked():
		return []transition{{
			object{"metadata": object{"deletionTimestamp": plan.Absent}},
			object{"metadata": object{"deletionTimestamp": plan.Present}},
		}}
	case c.Event == record.Deleted:
		return []transition{{nil, object{"metadata": object{"finalizers": plan.Absent}}}}
	}
	fields := slices.DeleteFunc(g.ref.Changed(&facts.Change{Key: c.Key, Prev: prev, Cur: cur}),
		func(f facts.Field) bool { return !g.inAllRuns(c, f) })
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
		// An item is told by its place, also in the state in which it is not there.
		if f.PrevIndex == nil {
			fillPlaces(before, f.Path, f.CurIndex)
		}
		if f.CurIndex == nil {
			fillPlaces(after, f.Path, f.PrevIndex)
		}
	}
	return []transition{{orNil(before), orNil(after)}}
}

func orNil(o object) object {
	if len(o) == 0 {
		return nil // a state that says nothing
	}
	return o
}

// inAllRuns reports whether an object's field changes in the same way in every run without faults. What a controller
// copies from a cluster's addresses does not: they are handed out in the order in which pods start, and may only happen
// to be the same in all of them.
func (g *generator) inAllRuns(c *facts.Change, f facts.Field) bool {
	if c.By != "" && (isAddress(f.Cur) || isAddress(f.Prev)) {
		return false
	}
	for _, other := range g.runs[1:] {
		if !slices.ContainsFunc(other.byKey[c.Key], func(k int) bool {
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

type object = map[string]any

// setField sets a value in nested mappings and lists; index has its places in the lists. No value is $absent; a state
// says nothing about an item that is not there.
func setField(m object, path []string, index []int, v any) {
	if v == nil {
		v = plan.Absent
	}
	if len(index) == 0 && slices.Contains(path, facts.Item) {
		return
	}
	with(m, path, index, v)
}

// with returns a mapping or list, or a new one, with a value set at a path below it.
func with(at any, path []string, index []int, v any) any {
	switch {
	case len(path) == 0:
		return v
	case path[0] == facts.Item:
		list, _ := at.([]any)
		for len(list) <= index[0] {
			list = append(list, plan.Present)
		}
		list[index[0]] = with(list[index[0]], path[1:], index[1:], v)
		return list
	}
	m, ok := at.(object)
	if !ok {
		m = object{}
	}
	m[path[0]] = with(m[path[0]], path[1:], index, v)
	return m
}

// fillPlaces sets the items before a place in lists to $present, as setField does, but says nothing of the place
// itself. A field that only one of two states names must have changed; the items that only fill places need not.
func fillPlaces(m object, path []string, index []int) {
	if len(index) > 0 {
		places(m, path, index)
	}
}

// places returns a mapping or list, or a new one, in which the places before those at a path are filled. It returns nil
// if there are none and it is given nil.
func places(at any, path []string, index []int) any {
	switch {
	case !slices.Contains(path, facts.Item):
		return at
	case path[0] != facts.Item:
		m, _ := at.(object)
		if below := places(m[path[0]], path[1:], index); below != nil {
			if m == nil {
				m = object{}
			}
			m[path[0]] = below
			return m
		}
		return at
	}
	list, _ := at.([]any)
	for len(list) < index[0] {
		list = append(list, plan.Present)
	}
	if len(list) == index[0] {
		if below := places(nil, path[1:], index[1:]); below != nil {
			list = append(list, below)
		}
	}
	if len(list) == 0 {
		return at
	}
	return list
}

// locate finds in each run the change that satisfies a condition: the i-th of the first run, and its like in the
// others. It sets how often the condition must be satisfied from the change before on until then. If it is not the
// same in all runs, rule says why.
func (g *generator) locate(d *plan.Definition, before, i int) (rule string) {
	m, err := plan.NewMatcher(&d.Condition)
	if err != nil {
		return err.Error()
	}
	from := g.positions[before]
	all, err := g.runs[0].matches(m, d, before)
	if err != nil {
		return err.Error()
	}
	n := slices.Index(all, i)
	if n < 0 {
		return fmt.Sprintf("its own trigger does not match it: %s", d.Condition.Type)
	}
	positions := []int{i}
	for r, other := range g.runs[1:] {
		since := start
		if before != start {
			since = from[r+1]
		}
		found, err := other.matches(m, d, since)
		switch {
		case err != nil:
			return err.Error()
		case len(found) <= n:
			return inSomeRuns
		case n > 0 && len(found) != len(all):
			return unevenly
		}
		positions = append(positions, found[n])
	}
	d.Condition.Repeat = n + 1
	g.positions[i] = positions
	return ""
}

// seen reports whether a change passes an observation point.
func seen(c *facts.Change, at plan.ObservationPoint) bool {
	switch at.Timing {
	case plan.BeforeControllerWrite, plan.AfterControllerWrite:
		return c.By == at.ObserveBy
	case plan.BeforeControllerRecv, plan.AfterControllerRecv:
		return slices.Contains(c.Taken, at.ObserveBy)
	}
	return true
}

// shown returns what a change looks like at a point. At the controller's own write, a delete call is a deletion even if
// it only marks the object, and an update that removes the last finalizer is an update.
func shown(c *facts.Change, timing plan.Timing) (kind plan.EventKind, prev, cur map[string]any) {
	kind, _ = effect.Of(observation(c, timing))
	switch {
	case kind == plan.Deleted:
		return kind, nil, c.Prev
	case c.Cur != nil:
		return kind, c.Prev, c.Cur
	}
	meta := map[string]any{}
	if m, ok := c.Prev["metadata"].(map[string]any); ok {
		meta = maps.Clone(m)
	}
	delete(meta, "finalizers")
	cur = maps.Clone(c.Prev)
	cur["metadata"] = meta
	return kind, c.Prev, cur
}

// observation returns what is observed of a change at a point, except for the object.
func observation(c *facts.Change, timing plan.Timing) *record.Observation {
	if !atWrite(timing) || c.Op == "" {
		received := map[string]wire.Operation{
			record.Created: wire.Create, record.Updated: wire.Update, record.Deleted: wire.Delete,
		}
		return &record.Observation{Point: wire.APIServerRecv, Op: received[c.Event]}
	}
	o := &record.Observation{Point: wire.ControllerWrite, Phase: wire.After, Op: c.Op, Subresource: c.Subresource}
	if timing == plan.BeforeControllerWrite {
		o.Phase = wire.Before
	}
	if c.Prev == nil {
		o.OldObject = effect.Nothing
	}
	return o
}
