package generate

import (
	"github.com/trommel-dev/trommel/record"
)

// undone is the first later change that undoes this one; -1: none does. How says it in words.
func (g *generator) undone(i int) (at int, how string) {
	c := &g.ref.Changes[i]
	paths := g.ref.Paths(c)
	for k := i + 1; k < len(g.ref.Changes); k++ {
		u := &g.ref.Changes[k]
		if u.Key != c.Key {
			continue
		}
		switch {
		case c.Event == record.Created && u.Event == record.Deleted,
			(c.Event == record.Deleted || c.Marked()) && u.Event == record.Created:
			return k, describe(u)
		case c.Event == record.Updated && u.Event == record.Updated && len(paths) > 0 && g.ref.Reverses(c, u):
			return k, describe(u)
		}
	}
	return -1, ""
}

// reactions returns the controller's effective writes to other objects after a change, until somebody else changes the
// object again.
func (g *generator) reactions(i int, by string) []int {
	c := &g.ref.Changes[i]
	var all []int
	for k := i + 1; k < len(g.ref.Changes); k++ {
		u := &g.ref.Changes[k]
		if u.Key == c.Key && u.By == "" && len(g.ref.Paths(u)) > 0 {
			break
		}
		if u.By == by && u.Key != c.Key {
			all = append(all, k)
		}
	}
	return all
}
