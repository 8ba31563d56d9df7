package baseline

import (
	"maps"
	"reflect"

	"github.com/trommel-dev/trommel/internal/facts"
)

// Comparer compares runs that go on with a baseline, again and again. It is not safe for concurrent use.
type Comparer struct {
	filter *filter
	ends   map[*facts.Object]seenEnd // of the objects as they were compared
}

// seenEnd is the end of an object as it was compared.
type seenEnd struct {
	state uintptr // of the mapping
	// texts are what was replaced in it. That changes without the object, when another one appears that it names, or
	// takes the place of such a one.
	texts map[string]facts.Rewritten
}

// Comparer returns a Comparer. What it knows of masks it keeps: the baseline must not change.
func (ref *Baseline) Comparer() *Comparer {
	return &Comparer{ref.filter(), map[*facts.Object]seenEnd{}}
}

// Compare is [Baseline.Compare]. Objects that have another end than the last time, or name
// others that are new, are looked at again.
func (c *Comparer) Compare(objects map[facts.Key]*facts.Object) []Difference {
	clear(c.filter.own)
	ends := make(map[*facts.Object]seenEnd, len(objects))
	for _, o := range objects {
		// The filter keeps no mapping alive that it has seen; a new state may be where an old one was. But a state is
		// kept by the changes that a Follower has.
		now := seenEnd{reflect.ValueOf(o.End).Pointer(), o.Texts()}
		before, known := c.ends[o]
		if known && (before.state != now.state || !maps.Equal(before.texts, now.texts)) {
			c.filter.forget(o)
		}
		ends[o] = now
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
