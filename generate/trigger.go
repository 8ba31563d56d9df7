package generate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/reference"
)

// maxFields is how many fields a trigger names at most: as general as the workload allows.
const maxFields = 2

// start is the moment before the first change.
const start = -1

// trigger returns the condition that the i-th change satisfies, and no change between the one before and it, if it is
// observed at a point by a process. The change before is the one that fires the plan's previous action: a trigger counts
// from then on. If there is no such condition, rule says why.
func (g *generator) trigger(
	name string, before, i int, timing plan.Timing, by string,
) (t *build.Condition, rule string) {
	c := &g.ref.Changes[i]
	key, err := plan.ParseResourceKey(string(c.Key))
	if err != nil {
		return nil, err.Error()
	}
	if c.Generated {
		key.Name, _, _ = strings.Cut(key.Name, "#")
		key.Name += "*"
	}
	d := plan.Definition{
		Condition: plan.Condition{ResourceKey: key, Repeat: 1},
		Observe:   plan.ObservationPoint{Timing: timing, ObserveBy: by},
	}
	kind, prev, cur := shown(c, timing)
	switch {
	case kind == plan.Created:
		d.Condition.Type, t = plan.OnObjectCreation, build.Created(key.String())
	case kind == plan.Deleted:
		d.Condition.Type, t = plan.OnObjectDeletion, build.Deleted(key.String())
	default:
		before, after := g.states(c, prev, cur)
		if before == nil && after == nil {
			return nil, "it changes no field that is the same each time and in no list"
		}
		d.Condition.Type, t = plan.OnObjectUpdate, build.Updated(key.String())
		if before != nil {
			d.Condition.PrevState, t = before, t.From(before)
		}
		if after != nil {
			d.Condition.CurState, t = after, t.To(after)
		}
	}
	if rule := g.repeat(&d, before, i); rule != "" {
		return nil, rule
	}
	return t.Named(name).Repeat(d.Condition.Repeat).At(timing, by), ""
}

// states returns what tells an update from others: parts of the states before and after. Nil: nothing does.
func (g *generator) states(c *reference.Change, prev, cur object) (before, after object) {
	switch {
	case c.Marked():
		return object{"metadata": object{"deletionTimestamp": plan.Absent}},
			object{"metadata": object{"deletionTimestamp": plan.Present}}
	case c.Event == record.Deleted:
		return nil, object{"metadata": object{"finalizers": plan.Absent}}
	}
	n := 0
	for _, f := range g.ref.Changed(&reference.Change{Key: c.Key, Prev: prev, Cur: cur}) {
		if f.InList() || n == maxFields {
			continue
		}
		if n == 0 {
			before, after = object{}, object{}
		}
		setField(before, f.Path, f.Prev)
		setField(after, f.Path, f.Cur)
		n++
	}
	return before, after
}

type object = map[string]any

// setField sets a value in nested mappings; no value is $absent.
func setField(m map[string]any, path []string, v any) {
	for _, step := range path[:len(path)-1] {
		next, ok := m[step].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[step] = next
		}
		m = next
	}
	if v == nil {
		v = plan.Absent
	}
	m[path[len(path)-1]] = v
}

// repeat counts the changes that satisfy the condition from the one before on until the i-th does.
func (g *generator) repeat(d *plan.Definition, before, i int) (rule string) {
	m, err := plan.NewMatcher(&d.Condition)
	if err != nil {
		return err.Error()
	}
	for k := before + 1; k <= i; k++ {
		c := &g.ref.Changes[k]
		if !sameObject(d.Condition.ResourceKey, c) || !seen(c, d.Observe) {
			continue
		}
		ok, err := matches(m, c, d.Observe.Timing)
		switch {
		case err != nil:
			return err.Error()
		case k == i && !ok:
			return fmt.Sprintf("its own trigger does not match it: %s", d.Condition.Type)
		case ok && k < i:
			d.Condition.Repeat++
		}
	}
	return ""
}

func sameObject(key plan.ResourceKey, c *reference.Change) bool {
	name, all := strings.CutSuffix(key.Name, "*")
	key.Name = name
	if all {
		return strings.HasPrefix(string(c.Key), key.String())
	}
	return string(c.Key) == key.String()
}

// seen reports whether a change passes an observation point.
func seen(c *reference.Change, at plan.ObservationPoint) bool {
	switch at.Timing {
	case plan.BeforeControllerWrite, plan.AfterControllerWrite:
		return c.By == at.ObserveBy
	case plan.AfterControllerRecv:
		return slices.Contains(c.Taken, at.ObserveBy)
	}
	return true
}

// shown returns what a change looks like at a point. At the controller's own write, a delete call is a deletion even if
// it only marks the object, and an update that removes the last finalizer is an update.
func shown(c *reference.Change, timing plan.Timing) (kind plan.EventKind, prev, cur map[string]any) {
	kind = map[string]plan.EventKind{
		record.Created: plan.Created, record.Updated: plan.Updated, record.Deleted: plan.Deleted,
	}[c.Event]
	switch {
	case timing != plan.AfterControllerWrite && timing != plan.BeforeControllerWrite:
	case c.Op == wire.Delete:
		return plan.Deleted, nil, c.Prev
	case kind == plan.Deleted:
		meta := map[string]any{}
		if m, ok := c.Prev["metadata"].(map[string]any); ok {
			meta = maps.Clone(m)
		}
		delete(meta, "finalizers")
		cur = maps.Clone(c.Prev)
		cur["metadata"] = meta
		return plan.Updated, c.Prev, cur
	}
	if kind == plan.Deleted {
		return kind, nil, c.Prev
	}
	return kind, c.Prev, c.Cur
}

func matches(m *plan.Matcher, c *reference.Change, timing plan.Timing) (bool, error) {
	kind, prev, cur := shown(c, timing)
	ok, _, err := m.Match(kind, encode(prev), encode(cur))
	return ok, err
}

func encode(object map[string]any) []byte {
	if object == nil {
		return nil
	}
	data, err := json.Marshal(object)
	if err != nil {
		panic(err) // it was read from JSON
	}
	return data
}
