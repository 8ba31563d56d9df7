package reference

import "reflect"

// Comparer compares runs that go on with a reference, again and again. It is not safe for concurrent use.
type Comparer struct {
	filter *filter
	ends   map[*Object]uintptr // of the objects as they were compared
}

// Comparer returns a Comparer. What it knows of masks it keeps: the reference must not change.
func (ref *Reference) Comparer() *Comparer {
	return &Comparer{ref.filter(), map[*Object]uintptr{}}
}

// Compare is [Reference.Compare]. Objects that have another end than the last time are looked at again.
func (c *Comparer) Compare(objects map[Key]*Object) []Difference {
	clear(c.filter.own)
	ends := make(map[*Object]uintptr, len(objects))
	for _, o := range objects {
		// The filter keeps no mapping alive that it has seen; a new state may be where an old one was. But a state is
		// kept by the changes that a Follower has.
		ends[o] = reflect.ValueOf(o.End).Pointer()
		if end, known := c.ends[o]; known && end != ends[o] {
			c.filter.forget(o)
		}
	}
	for o := range c.ends {
		if _, there := ends[o]; !there {
			c.filter.forget(o)
		}
	}
	c.ends = ends
	differ, _ := c.filter.split(c.filter.matched(objects))
	return differ
}
