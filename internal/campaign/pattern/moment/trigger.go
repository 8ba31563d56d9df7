package moment

import (
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// Anchors is how many changes before a moment are tried as what the plan waits for first.
const Anchors = 4

// Triggers makes triggers that wait for the changes of a history. Each one must be satisfied in every run without
// faults, by the same change. If there is no such trigger, the result's rule says why.
type Triggers struct {
	*History
	where map[facts.Key]string // CEL conditions that the triggers also ask of objects
}

// Asking returns triggers that also ask for a CEL condition of an object.
func (t Triggers) Asking(key facts.Key, condition string) Triggers {
	t.where = map[facts.Key]string{key: condition}
	return t
}

// Point is where a change is observed, and the name of the condition on it.
type Point struct {
	name   string
	timing plan.Timing
	by     string
}

// At is a point with the name of the condition on it.
func At(name string, timing plan.Timing, by string) Point { return Point{name, timing, by} }

// Moment is when a change passes a point.
type Moment struct {
	Trigger build.Trigger
	Occurrence
}

// When is the moment at which a change passes a point, counted from an earlier occurrence on, at which the plan's
// previous action fires. If changes like it do not happen equally often until then in all runs, it is counted from
// another change that comes before it in all of them: the latest one that makes a trigger.
func (t Triggers) When(at Point, after Occurrence, i int) (m Moment, rule string) {
	m, rule = t.Direct(at, after, i)
	if rule != unevenly {
		return m, rule
	}
	for k, tried := i-1, 0; k > after.Change && tried < Anchors; k-- {
		timing, by := t.before(k, i, at)
		if timing == "" {
			continue
		}
		tried++
		since, none := t.Direct(Point{"since", timing, by}, after, k)
		if none != "" {
			continue
		}
		if m, none := t.Direct(at, since.Occurrence, i); none == "" {
			return Moment{build.Sequence(since.Trigger, m.Trigger), m.Occurrence}, ""
		}
	}
	return Moment{}, rule
}

// Both returns the moments at which the i-th change passes a point, and after it the k-th one another point.
func (t Triggers) Both(i int, at Point, k int, then Point) (first, second Moment, rule string) {
	if first, rule = t.When(at, Start, i); rule != "" {
		return first, second, rule
	}
	second, rule = t.When(then, first.Occurrence, k)
	return first, second, rule
}

// Direct is when with a trigger of one condition.
func (t Triggers) Direct(at Point, after Occurrence, i int) (m Moment, rule string) {
	d, o, rule := t.exactly(at, after, i)
	if c := &t.Changes[i]; rule != "" && c.Prev != nil && c.Cur != nil {
		if field, o, ok := t.byField(at, after, i); ok {
			return Moment{built(at.name, &field), o}, ""
		}
	}
	if rule != "" {
		return Moment{}, rule
	}
	return Moment{built(at.name, &d), o}, ""
}

// Like waits for the first change like the i-th one, from the time on at which the plan begins to wait.
func (t Triggers) Like(at Point, i int) (trigger build.Trigger, rule string) {
	d, _, rule := t.exactly(at, Start, i)
	if rule != "" {
		return nil, rule
	}
	d.Condition.Repeat = 1
	return built(at.name, &d), ""
}

// BeforeWrite is the moment before a controller sends a write.
func (t Triggers) BeforeWrite(i int) (m Moment, rule string) { return t.BeforeWriteAfter(Start, i) }

// BeforeWriteAfter is beforeWrite, counted from an earlier occurrence on.
func (t Triggers) BeforeWriteAfter(after Occurrence, i int) (m Moment, rule string) {
	c := &t.Changes[i]
	object, _ := t.Object(i)
	if c.Generated && c.Event == record.Created && !strings.HasSuffix(object, "*") {
		return Moment{}, "the API server generates its name: nothing names it before the call"
	}
	return t.When(Point{"write", plan.BeforeControllerWrite, c.By}, after, i)
}

// before returns where the k-th change is observed for certain before the i-th one passes a point. It returns an empty
// timing if there is no such place.
func (t Triggers) before(k, i int, at Point) (timing plan.Timing, by string) {
	c, then := &t.Changes[k], &t.Changes[i]
	switch {
	case at.timing == plan.BeforeAPIServerRecv || at.timing == plan.AfterAPIServerRecv:
		return plan.AfterAPIServerRecv, at.by
	case c.By == at.by:
		return plan.AfterControllerWrite, at.by
	case slices.Contains(c.Taken, at.by) && then.By == at.by && then.MayFollowFrom(c):
		return plan.AfterControllerRecv, at.by
	}
	return "", ""
}

// exactly returns the condition that a change satisfies at a point, as it is in all runs.
func (t Triggers) exactly(at Point, after Occurrence, i int) (d plan.Definition, o Occurrence, rule string) {
	c := &t.Changes[i]
	if d, rule = t.definition(at, i); rule != "" {
		return d, o, rule
	}
	switch kind, _, _ := shown(c, at.timing); kind {
	case plan.Created:
		d.Condition.Type = plan.OnObjectCreation
	case plan.Deleted:
		d.Condition.Type = plan.OnObjectDeletion
	default:
		d.Condition.Type = plan.OnObjectUpdate
		return t.byTransition(d, t.transitions(c, at.timing), after, i)
	}
	d.Condition.Repeat, o, rule = t.Runs.count(&d, after, i)
	return d, o, rule
}

// byTransition completes the definition of an update with the transition that has to be counted least.
func (t Triggers) byTransition(
	d plan.Definition, transitions []transition, after Occurrence, i int,
) (best plan.Definition, at Occurrence, rule string) {
	rule = "it changes no field that is the same in all runs without faults"
	for n, s := range transitions {
		try := d
		if s.before != nil {
			try.Condition.PrevState = s.before
		}
		if s.after != nil {
			try.Condition.CurState = s.after
		}
		repeat, o, why := t.Runs.count(&try, after, i)
		switch {
		case why == "" && (at.Runs == nil || repeat < best.Condition.Repeat):
			best, at = try, o
			best.Condition.Repeat = repeat
		case n == 0 && why != "":
			rule = why
		}
	}
	if at.Runs == nil {
		return best, at, rule
	}
	return best, at, ""
}

// byField returns a condition on an update that has other values in each run: one of its fields changes.
func (t Triggers) byField(at Point, after Occurrence, i int) (best plan.Definition, o Occurrence, ok bool) {
	d, rule := t.definition(at, i)
	if rule != "" {
		return best, o, false
	}
	d.Condition.Type = plan.OnObjectUpdate
	c := &t.Changes[i]
	var all []transition
	counted := baseline.Fields(c)
	for _, f := range facts.FieldsOf(c) {
		if f.InList() || f.Cur == nil || !slices.Contains(counted, f.Where) ||
			at.timing == plan.BeforeControllerWrite && c.Sent != nil && ValueAt(c.Sent, f.Path) == nil {
			continue
		}
		state := object{}
		setField(state, f.Path, nil, plan.Present)
		all = append(all, transition{after: state})
	}
	best, o, rule = t.byTransition(d, all, after, i)
	return best, o, rule == ""
}

// definition is the part of a condition that names the object and the point.
func (t Triggers) definition(at Point, i int) (d plan.Definition, rule string) {
	object, _ := t.Object(i)
	key, err := plan.ParseResourceKey(object)
	if err != nil {
		return d, err.Error()
	}
	c := &t.Changes[i]
	return plan.Definition{
		Condition: plan.Condition{ResourceKey: key, Where: t.where[c.Key], Repeat: 1},
		Observe:   plan.ObservationPoint{Timing: at.timing, ObserveBy: at.by, Cluster: c.Key.Cluster()},
	}, ""
}

// built is a definition as plans are built with.
func built(name string, d *plan.Definition) *build.Condition {
	key := d.Condition.ResourceKey.String()
	var c *build.Condition
	switch d.Condition.Type {
	case plan.OnObjectCreation:
		c = build.Created(key)
	case plan.OnObjectDeletion:
		c = build.Deleted(key)
	default:
		c = build.Updated(key)
		if before, ok := d.Condition.PrevState.(object); ok {
			c.From(before)
		}
		if after, ok := d.Condition.CurState.(object); ok {
			c.To(after)
		}
	}
	return c.Named(name).Where(d.Condition.Where).Repeat(d.Condition.Repeat).
		At(d.Observe.Timing, d.Observe.ObserveBy).InCluster(d.Observe.Cluster)
}

// Object is the resource key of a change's object in its cluster. If the object's name is generated and differs between
// the runs without faults, the key has a wildcard and is not exact.
func (t Triggers) Object(i int) (key string, exact bool) {
	c := &t.Changes[i]
	real := realKey(c)
	key = facts.Key(real).Local()
	if !c.Generated {
		return key, true
	}
	for _, other := range t.Runs[1:] {
		if same := other.ByKey[c.Key]; len(same) == 0 || realKey(&other.Changes[same[0]]) != real {
			beginning, _, _ := strings.Cut(c.Key.Local(), "#")
			return beginning + "*", false
		}
	}
	return key, len(t.Runs) > 1
}
