package generate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/reference"
)

// maxFields is how many fields a trigger names at most: as general as the workload allows.
const maxFields = 2

// start is the moment before the first change.
const start = -1

// trigger is the definition that the i-th change satisfies, and none between the one before and it, where it is observed
// at a point by a process. The one before is what the plan's previous action is fired by: a trigger counts from then on.
// The rule says why there is none.
func (g *generator) trigger(
	name string, before, i int, timing plan.Timing, by string,
) (d plan.Definition, rule string) {
	c := &g.ref.Changes[i]
	key, err := plan.ParseResourceKey(string(c.Key))
	if err != nil {
		return d, err.Error()
	}
	if c.Generated {
		key.Name, _, _ = strings.Cut(key.Name, "#")
		key.Name += "*"
	}
	d = plan.Definition{Name: name, Observe: plan.ObservationPoint{Timing: timing, ObserveBy: by}}
	d.Condition = plan.Condition{ResourceKey: key, Repeat: 1}
	kind, prev, cur := shown(c, timing)
	switch {
	case kind == plan.Created:
		d.Condition.Type = plan.OnObjectCreation
	case kind == plan.Deleted:
		d.Condition.Type = plan.OnObjectDeletion
	case c.Marked():
		d.Condition.Type = plan.OnObjectUpdate
		d.Condition.PrevState = map[string]any{"metadata": map[string]any{"deletionTimestamp": plan.Absent}}
		d.Condition.CurState = map[string]any{"metadata": map[string]any{"deletionTimestamp": plan.Present}}
	case c.Event == record.Deleted:
		d.Condition.Type = plan.OnObjectUpdate
		d.Condition.CurState = map[string]any{"metadata": map[string]any{"finalizers": plan.Absent}}
	default:
		d.Condition.Type = plan.OnObjectUpdate
		before, after := map[string]any{}, map[string]any{}
		n := 0
		for _, f := range g.ref.Changed(&reference.Change{Key: c.Key, Prev: prev, Cur: cur}) {
			if f.InList() || n == maxFields {
				continue
			}
			setField(before, f.Path, f.Prev)
			setField(after, f.Path, f.Cur)
			n++
		}
		if n == 0 {
			return d, "it changes no field that is the same each time and in no list"
		}
		d.Condition.PrevState, d.Condition.CurState = before, after
	}
	return d, g.repeat(&d, before, i)
}

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
	case plan.AfterControllerWrite:
		return c.By == at.ObserveBy
	case plan.AfterControllerRecv:
		return slices.Contains(c.Taken, at.ObserveBy)
	}
	return true
}

// shown is what a change looks like at a point. A delete call that marks the object, or deletes it, is a deletion to the
// controller that makes the call; an update that takes the last finalizer away is an update.
func shown(c *reference.Change, timing plan.Timing) (kind plan.EventKind, prev, cur map[string]any) {
	kind = map[string]plan.EventKind{
		record.Created: plan.Created, record.Updated: plan.Updated, record.Deleted: plan.Deleted,
	}[c.Event]
	switch {
	case timing != plan.AfterControllerWrite:
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
