package baseline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// NamesUnknown is a UID in the field's value that belongs to no object that the run has seen, where the value without
// faults has an object's UID; empty: there is none. A run sees all objects of the types that controllers have to do
// with, also those that are gone. So the value was meant for an object that existed before the run.
func (d Difference) NamesUnknown() string {
	return facts.UnknownUID(d.Want, d.Got)
}

// Caused returns the changes of a run that led to the difference, oldest first: the last change of a field, or the
// creations and the last deletion of an object. There are none if something did not happen.
func (d Difference) Caused(changes []facts.Change) []*facts.Change {
	var all []*facts.Change
	for i := range changes {
		c := &changes[i]
		switch {
		case c.Key != d.Own:
		case d.Field == "metadata."+beingDeleted:
			if c.Marked() {
				all = []*facts.Change{c}
			}
		case d.Field != "":
			if c.Event == record.Created ||
				slices.ContainsFunc(facts.FieldsOf(c), func(f facts.Field) bool { return f.Where == d.Field }) {
				all = []*facts.Change{c}
			}
		case c.Event == record.Created:
			all = append(all, c)
		case c.Event == record.Deleted || c.Marked():
			all = append(all, c)
		}
	}
	return all
}

// Difference is something in which a run differs from the runs without faults.
type Difference struct {
	Key   facts.Key
	Field string // where in the object; empty: the object as a whole
	// Want and Got are the values without faults and in the run. For an object as a whole each is an Existence.
	Want, Got any
	// Count: the object was created more or less often; its end state is compared apart from that.
	Count bool
	// Note: it is worth to be known, and no mistake.
	Note bool
	// Renewal: the field's value is a random one that was replaced more or less often. Want and Got say how often.
	Renewal bool
	// Relation no longer holds; nil: the value itself differs.
	Relation *Relation
	// Own is the object's key among the run's changes. It differs from Key where the run numbers generated names
	// differently; see Key. It is empty if the run has no object for this one, and has another one of that number.
	Own facts.Key
}

// OfMessage reports whether it is only another message of a condition that says the same.
func (d Difference) OfMessage() bool {
	_, _, ok := condition(d.Field)
	return ok && d.Note
}

// OfHistory reports whether it is only an annotation about what has happened.
func (d Difference) OfHistory() bool { return d.Note && strings.HasPrefix(d.Field, annotations) }

// OfElapsed reports whether it is only how long something has taken, as a status says.
func (d Difference) OfElapsed() bool {
	return d.Note && !d.Renewal && inStatus(d.Field) && !d.OfMessage()
}

// String says it in one line.
func (d Difference) String() string {
	if d.Field == "" {
		return fmt.Sprintf("%s: %v; without faults: %v", d.Key, d.Got, d.Want)
	}
	if r := d.Relation; r != nil {
		return fmt.Sprintf("%s: %s is not %s %s; without faults: it is", d.Key, d.Field, r.Is, r.Of)
	}
	if d.Renewal {
		return fmt.Sprintf("%s: %s was replaced %s; without faults: %s", d.Key, d.Field, d.Got, d.Want)
	}
	return fmt.Sprintf("%s: %s is %s; without faults: %s", d.Key, d.Field, Value(d.Got), Value(d.Want))
}

// OfRenewals reports whether the difference is about how often values were replaced, OfVersions whether it is about the
// version of an object. Writes of another client may lead to that.
func (d Difference) OfRenewals() bool {
	return d.Renewal || d.Relation != nil && d.Relation.Is == isTogether
}

// OfVersions is explained at OfRenewals.
func (d Difference) OfVersions() bool { return d.Relation != nil && d.Relation.Is == isVersion }

// Value says a field's value.
func Value(v any) string {
	switch v := v.(type) {
	case nil:
		return "absent"
	case present:
		return "present"
	case lag:
		return string(v)
	case facts.Several:
		var all []string
		for _, value := range v {
			all = append(all, Value(value))
		}
		return strings.Join(all, " and ")
	}
	return fmt.Sprintf("%#v", v)
}

// More reports whether the difference is that the run has created the object more often than the runs without faults.
func (d Difference) More() bool {
	want, _ := d.Want.(facts.Existence)
	got, _ := d.Got.(facts.Existence)
	return d.Count && got.MostMade > want.MostMade
}
