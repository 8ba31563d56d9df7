package reference

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
)

// Field is a value that a change has changed.
type Field struct {
	Path      []string // "[]" is an item of a list
	Where     string   // the path for people, which tells the items of a list apart
	Prev, Cur any      // nil: there was none
	// PrevIndex and CurIndex are the indexes that the steps "[]" stand for in the states before and after; nil where
	// the field is absent.
	PrevIndex, CurIndex []int
}

// InList reports whether the field is in a list.
func (f Field) InList() bool { return slices.Contains(f.Path, Item) }

// Changed lists the fields that a change has changed, without those that never count: what users ask for comes before
// what controllers tell.
func (ref *Reference) Changed(c *Change) []Field {
	return slices.DeleteFunc(changed(c), func(f Field) bool { return ref.masked(c.Key, f.Path) })
}

// Fields names the fields that a change has changed, but for those that never count in any reference.
func Fields(c *Change) []string {
	var names []string
	for _, f := range changed(c) {
		if (masks{standard}).on(c.Key, f.Path) == nil {
			names = append(names, f.Where)
		}
	}
	return names
}

// FieldsOf lists all fields that a change has changed.
func FieldsOf(c *Change) []Field { return changed(c) }

func changed(c *Change) []Field {
	if c.Prev == nil || c.Cur == nil {
		return nil
	}
	before := map[string]leaf{}
	leaves(c.Prev, nil, "", func(l leaf) { before[l.where] = l })
	var all []Field
	leaves(c.Cur, nil, "", func(l leaf) {
		was, ok := before[l.where]
		delete(before, l.where)
		if !ok || !reflect.DeepEqual(was.value, l.value) {
			all = append(all, Field{l.path, l.where, was.value, l.value, was.index, l.index})
		}
	})
	for _, l := range before {
		all = append(all, Field{l.path, l.where, l.value, nil, l.index, nil})
	}
	rank := func(f Field) int { return slices.Index([]string{"status", "metadata"}, f.Path[0]) }
	slices.SortFunc(all, func(a, b Field) int {
		ra, rb := rank(a), rank(b)
		if ra != rb && (ra < 0 || rb < 0) {
			return cmp.Compare(ra, rb)
		}
		return cmp.Or(-cmp.Compare(ra, rb), strings.Compare(a.Where, b.Where))
	})
	return all
}

// Paths names fields, each once, without the places in lists.
func Paths(fields []Field) []string {
	var names []string
	for _, f := range fields {
		if p := join(f.Path); !slices.Contains(names, p) {
			names = append(names, p)
		}
	}
	return names
}

// Reverses reports whether a later change brings a field back to what it was before the first one. It is given the
// fields that each of them has changed.
func Reverses(first, later []Field) bool {
	return slices.ContainsFunc(first, func(f Field) bool {
		return slices.ContainsFunc(later,
			func(b Field) bool { return b.Where == f.Where && reflect.DeepEqual(b.Cur, f.Prev) })
	})
}
