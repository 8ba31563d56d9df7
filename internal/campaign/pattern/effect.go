package pattern

import (
	"slices"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// undoing is a later change of the same object, after which the state that an earlier one has made is past.
type undoing struct {
	at  int    // of the changes
	how string // in words
	by  past
}

// past is how a state becomes a thing of the past.
type past int

const (
	still    past = iota // it does not
	replaced             // the object is something else again
	leaving              // the object is marked for deletion
	restored             // it is as before the change, as far as that one has changed it
)

// undone lists the later changes that undo the i-th one: the first one of each kind, until it is as before.
func (g *generator) undone(i int) []undoing {
	var all []undoing
	for _, k := range g.later(i) {
		by := g.undoes(i, k)
		if by == still || slices.ContainsFunc(all, func(u undoing) bool { return u.by == by }) {
			continue
		}
		all = append(all, undoing{k, g.describe(k), by})
		if by == restored || g.ref.Changes[k].Event == record.Deleted {
			break
		}
	}
	return all
}

// reversed is the first later change after which it is as before the i-th one; -1: there is none. How says it in words.
func (g *generator) reversed(i int) (at int, how string) {
	for _, u := range g.undone(i) {
		if u.by == restored {
			return u.at, u.how
		}
	}
	return -1, ""
}

// undoes says how the k-th change makes the state after the i-th one, of the same object, a thing of the past.
func (g *generator) undoes(i, k int) past {
	c, u := &g.ref.Changes[i], &g.ref.Changes[k]
	switch {
	case g.deletes(i):
		if u.Event == record.Created {
			return restored // by another object of that name
		}
		return still
	case u.Marked():
		return leaving
	case u.Event == record.Deleted:
		if c.Event == record.Created {
			return restored
		}
		return leaving
	case u.Event != record.Updated:
		return still
	case c.Event == record.Created:
		if slices.ContainsFunc(g.changed[k], func(f facts.Field) bool {
			return f.Path[0] == "spec" && f.Prev != nil
		}) {
			return replaced
		}
		return still
	case facts.Reverses(g.changed[i], g.changed[k]):
		return restored
	case slices.ContainsFunc(g.changed[k], func(f facts.Field) bool {
		return slices.ContainsFunc(g.changed[i], func(was facts.Field) bool {
			return was.Where == f.Where && was.Cur != nil
		})
	}):
		return replaced
	}
	return still
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
