package pattern

import (
	"slices"

	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/record"
)

// undone is the first later change that undoes this one; -1: none does. How says it in words.
func (g *generator) undone(i int) (at int, how string) {
	c := &g.ref.Changes[i]
	for _, k := range g.later(i) {
		u := &g.ref.Changes[k]
		switch {
		case c.Event == record.Created && u.Event == record.Deleted,
			(c.Event == record.Deleted || c.Marked()) && u.Event == record.Created:
			return k, g.describe(k)
		case c.Event == record.Updated && u.Event == record.Updated && reference.Reverses(g.changed[i], g.changed[k]):
			return k, g.describe(k)
		}
	}
	return -1, ""
}

// later lists the later changes of the same object.
func (g *generator) later(i int) []int {
	all := g.runs[0].byKey[g.ref.Changes[i].Key]
	at, _ := slices.BinarySearch(all, i)
	return all[at+1:]
}

// followUps returns the controller's effective writes that may follow from a change, until somebody else changes the
// object again: those whose reconcile, or the one before it, had read the object.
func (g *generator) followUps(i int, by string) []int {
	end := len(g.ref.Changes)
	for _, k := range g.later(i) {
		if g.ref.Changes[k].By == "" && len(g.changed[k]) > 0 {
			end = k
			break
		}
	}
	writes := g.writes[by]
	at, _ := slices.BinarySearch(writes, i+1)
	var all []int
	for _, k := range writes[at:] {
		if k >= end {
			break
		}
		if g.ref.Changes[k].MayFollowFrom(&g.ref.Changes[i]) {
			all = append(all, k)
		}
	}
	return all
}

// reactions returns the follow-ups to other objects.
func (g *generator) reactions(i int, by string) []int {
	key := g.ref.Changes[i].Key
	return slices.DeleteFunc(g.followUps(i, by), func(k int) bool { return g.ref.Changes[k].Key == key })
}
