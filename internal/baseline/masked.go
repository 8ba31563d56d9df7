package baseline

import (
	"slices"

	"github.com/trommel-dev/trommel/internal/facts"
)

// Changed lists the fields that a change has changed, without those that never count: what users ask for comes before
// what controllers tell.
func (ref *Baseline) Changed(c *facts.Change) []facts.Field {
	return slices.DeleteFunc(facts.FieldsOf(c), func(f facts.Field) bool { return ref.masked(c.Key, f.Path) })
}

// Fields names the fields that a change has changed, but for those that never count in any baseline.
func Fields(c *facts.Change) []string {
	var names []string
	for _, f := range facts.FieldsOf(c) {
		if covering(standard, c.Key, f.Path) == nil {
			names = append(names, f.Where)
		}
	}
	return names
}
