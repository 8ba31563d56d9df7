package baseline

import (
	"slices"

	"github.com/trommel-dev/trommel/record"
)

// Caused returns the changes of a run, oldest first, that have brought a difference about: the last change of a field,
// or the creations and the last deletion of an object. There may be none: then something did not happen.
func (d Difference) Caused(changes []Change) []*Change {
	var all []*Change
	for i := range changes {
		c := &changes[i]
		switch {
		case c.Key != d.Own:
		case d.Field == "metadata."+beingDeleted:
			if c.Marked() {
				all = []*Change{c}
			}
		case d.Field != "":
			if c.Event == record.Created ||
				slices.ContainsFunc(changed(c), func(f Field) bool { return f.Where == d.Field }) {
				all = []*Change{c}
			}
		case c.Event == record.Created:
			all = append(all, c)
		case c.Event == record.Deleted || c.Marked():
			all = append(all, c)
		}
	}
	return all
}

// String says what the change is, in words.
func (c *Change) String() string {
	switch {
	case c.Event == record.Updated && c.Marked():
		return "marked for deletion"
	default:
		return c.Event
	}
}
