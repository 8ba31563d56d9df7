package facts

import "reflect"

// Return is a field that changes back and forth: to a value that it had before the last one.
type Return struct {
	Path   []string
	Times  []int // the indexes of the changes that changed it back
	values []any // the last two
}

// Returns lists the fields of each object that were changed back, by where they are. An object that is created again
// begins anew.
func Returns(changes []Change) map[Key]map[string]*Return {
	all := map[Key]map[string]*Return{}
	for i := range changes {
		c := &changes[i]
		if c.Prev == nil || c.Cur == nil {
			for _, r := range all[c.Key] {
				r.values = nil
			}
			continue
		}
		for _, field := range FieldsOf(c) {
			if all[c.Key] == nil {
				all[c.Key] = map[string]*Return{}
			}
			r := all[c.Key][field.Where]
			if r == nil {
				r = &Return{Path: field.Path}
				all[c.Key][field.Where] = r
			}
			if len(r.values) == 2 && reflect.DeepEqual(r.values[0], field.Cur) {
				r.Times = append(r.Times, i)
			}
			r.values = []any{field.Prev, field.Cur}
		}
	}
	return all
}
