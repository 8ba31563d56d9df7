package moment

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Trace is what happened in one run without faults.
type Trace struct {
	Changes []facts.Change
	ByKey   map[facts.Key][]int
	byName  map[string][]int // by type and real name, as in plans, after the cluster if there are several
	changed [][]facts.Field  // nil: not computed yet
	// The states as matchers take them, in general, before and after the controller's own write; see shown.
	states, writing, written []states
}

type states struct {
	known     bool
	kind      plan.EventKind
	prev, cur *plan.Object
}

func newTrace(changes []facts.Change) *Trace {
	t := &Trace{
		Changes: changes, ByKey: map[facts.Key][]int{}, byName: map[string][]int{},
		changed: make([][]facts.Field, len(changes)),
		states:  make([]states, len(changes)),
		writing: make([]states, len(changes)), written: make([]states, len(changes)),
	}
	for i := range changes {
		t.ByKey[changes[i].Key] = append(t.ByKey[changes[i].Key], i)
		name := realKey(&changes[i])
		t.byName[name] = append(t.byName[name], i)
	}
	return t
}

// fields are those that the i-th change has changed, as they are shown at the controller's own write.
func (t *Trace) fields(i int) []facts.Field {
	if t.changed[i] == nil {
		c := t.Changes[i]
		t.changed[i] = append([]facts.Field{}, (&baseline.Baseline{}).Changed(&c)...)
	}
	return t.changed[i]
}

// realKey is the change's key with the real name of the object, and with the cluster if there are several.
func realKey(c *facts.Change) string {
	key := string(c.Key)
	if !c.Generated {
		return key
	}
	return key[:strings.LastIndex(key, "/")+1] + c.Name()
}

// matches lists the changes after one that satisfy a definition.
func (t *Trace) matches(m *plan.Matcher, d *plan.Definition, after int) ([]int, error) {
	name := record.In(d.Observe.Cluster, d.Condition.ResourceKey.String())
	objects := t.byName[name]
	if prefix, wild := strings.CutSuffix(name, "*"); wild {
		objects = nil
		for real, more := range t.byName {
			if strings.HasPrefix(real, prefix) {
				objects = append(objects, more...)
			}
		}
		slices.Sort(objects)
	}
	var all []int
	for _, i := range objects {
		if i <= after || !seen(&t.Changes[i], d.Observe) {
			continue
		}
		s := t.state(i, d.Observe.Timing)
		ok, _, err := m.MatchObjects(s.kind, s.prev, s.cur)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, i)
		}
	}
	return all, nil
}

// state is what a change looks like at a point. Each state is encoded and decoded only once.
func (t *Trace) state(i int, timing plan.Timing) *states {
	s := &t.states[i]
	switch timing {
	case plan.BeforeControllerWrite:
		s = &t.writing[i]
	case plan.AfterControllerWrite:
		s = &t.written[i]
	}
	if !s.known {
		kind, prev, cur := shown(&t.Changes[i], timing)
		*s = states{true, kind, plan.NewObject(encode(prev)), plan.NewObject(encode(cur))}
	}
	return s
}

// UntilLastWrite is the time from the i-th change to the last one that a controller has written, rounded up.
func (t *Trace) UntilLastWrite(i int, by string) time.Duration {
	for k := len(t.Changes) - 1; k > i; k-- {
		if t.Changes[k].By == by {
			return RoundUp(t.Changes[k].Time.Sub(t.Changes[i].Time))
		}
	}
	return 0
}

// roundUp rounds a time of a run without faults for a plan.
func RoundUp(d time.Duration) time.Duration {
	const unit = 100 * time.Millisecond
	return (d + unit).Truncate(unit)
}

func atWrite(timing plan.Timing) bool {
	return timing == plan.BeforeControllerWrite || timing == plan.AfterControllerWrite
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
