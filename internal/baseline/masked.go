package baseline

import "slices"

// Changed lists the fields that a change has changed, without those that never count: what users ask for comes before
// what controllers tell.
func (ref *Baseline) Changed(c *Change) []Field {
	return slices.DeleteFunc(FieldsOf(c), func(f Field) bool { return ref.masked(c.Key, f.Path) })
}

// Fields names the fields that a change has changed, but for those that never count in any baseline.
func Fields(c *Change) []string {
	var names []string
	for _, f := range FieldsOf(c) {
		if (masks{standard}).on(c.Key, f.Path) == nil {
			names = append(names, f.Where)
		}
	}
	return names
}
