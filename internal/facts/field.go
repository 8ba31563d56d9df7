package facts

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
)

// Field is a value that a change has changed.
type Field struct {
	Path      []string // "[]" is an item of a list
	Where     string   // the path for people, which distinguishes the items of a list
	Prev, Cur any      // nil: there was none
	// PrevIndex and CurIndex are the indexes that the steps "[]" stand for in the states before and after; nil where
	// the field is absent.
	PrevIndex, CurIndex []int
}

// InList reports whether the field is in a list.
func (f Field) InList() bool { return slices.Contains(f.Path, Item) }

// FieldsOf lists all fields that a change has changed: the spec first, the status last.
func FieldsOf(c *Change) []Field {
	if c.Prev == nil || c.Cur == nil {
		return nil
	}
	before, after := leavesByPlace(c.Prev), leavesByPlace(c.Cur)
	var all []Field
	for where, is := range after {
		was := before[where]
		delete(before, where)
		if f, differ := fieldOf(where, without(was, is), without(is, was)); differ {
			all = append(all, f)
		}
	}
	for where, was := range before {
		f, _ := fieldOf(where, was, nil)
		all = append(all, f)
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

// leavesByPlace lists the values of an object by where they are.
func leavesByPlace(object map[string]any) map[string][]Leaf {
	all := map[string][]Leaf{}
	Leaves(object, nil, "", func(l Leaf) { all[l.Where] = append(all[l.Where], l) })
	return all
}

// without is what is left of the values at a place if each of the others is taken away once.
func without(all, others []Leaf) []Leaf {
	if len(all) == 1 && len(others) == 1 { // nearly always
		if reflect.DeepEqual(all[0].Value, others[0].Value) {
			return nil
		}
		return all
	}
	left := slices.Clone(others)
	return slices.DeleteFunc(slices.Clone(all), func(l Leaf) bool {
		i := slices.IndexFunc(left, func(o Leaf) bool { return reflect.DeepEqual(o.Value, l.Value) })
		if i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
		return i >= 0
	})
}

// fieldOf is the change of what was at a place to what is there, without what stays. Not differ: there is none.
func fieldOf(where string, was, is []Leaf) (f Field, differ bool) {
	f.Where = where
	for _, l := range slices.Concat(was, is) {
		f.Path = l.Path
	}
	f.Prev, f.PrevIndex = together(was)
	f.Cur, f.CurIndex = together(is)
	return f, len(was)+len(is) > 0
}

// together is the value at a place, and its index; of several, nothing says which of them is where.
func together(all []Leaf) (value any, index []int) {
	for i, l := range all {
		if i == 0 {
			value, index = l.Value, l.Index
			continue
		}
		value, index = Joined(value, l.Value), nil
	}
	return value, index
}

// Joined adds a value to those at a place.
func Joined(old, v any) Several {
	list, ok := old.(Several)
	if !ok {
		list = Several{old}
	}
	at, _ := slices.BinarySearchFunc(list, v, func(a, b any) int { return strings.Compare(Canonical(a), Canonical(b)) })
	return slices.Insert(list, at, v)
}

// Paths names fields, each once, without the places in lists.
func Paths(fields []Field) []string {
	var names []string
	for _, f := range fields {
		if p := Join(f.Path); !slices.Contains(names, p) {
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
