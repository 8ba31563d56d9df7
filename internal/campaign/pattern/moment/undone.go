package moment

import (
	"slices"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// Undoing is a later change of the same object, after which the state that an earlier one has made is past.
type Undoing struct {
	At  int    // which change
	How string // in words
	By  Past
}

// Past is how a state becomes a thing of the past.
type Past int

// The ways in which a state becomes past.
const (
	Still    Past = iota // it does not become past
	Replaced             // the object is something else again
	Leaving              // the object is marked for deletion
	Restored             // it is as before the change, as far as that one has changed it
)

// Undone lists the later changes that undo a change: the first one of each kind, until it is as before.
func (h *History) Undone(i int) []Undoing {
	var all []Undoing
	for _, k := range h.Later(i) {
		by := h.Undoes(i, k)
		if by == Still || slices.ContainsFunc(all, func(u Undoing) bool { return u.By == by }) {
			continue
		}
		all = append(all, Undoing{k, h.Describe(k), by})
		if by == Restored || h.Changes[k].Event == record.Deleted {
			break
		}
	}
	return all
}

// Reversed returns the first later change after which it is as before a change, and says so in words. It returns -1 if
// there is none.
func (h *History) Reversed(i int) (at int, how string) {
	for _, u := range h.Undone(i) {
		if u.By == Restored {
			return u.At, u.How
		}
	}
	return -1, ""
}

// Undoes says how the k-th change makes the state after the i-th one, of the same object, a thing of the past.
func (h *History) Undoes(i, k int) Past {
	c, u := &h.Changes[i], &h.Changes[k]
	switch {
	case h.Deletes(i):
		if u.Event == record.Created {
			return Restored // by another object of that name
		}
		return Still
	case u.Marked():
		return Leaving
	case u.Event == record.Deleted:
		if c.Event == record.Created {
			return Restored
		}
		return Leaving
	case u.Event != record.Updated:
		return Still
	case c.Event == record.Created:
		if slices.ContainsFunc(h.Changed[k], func(f facts.Field) bool {
			return f.Path[0] == "spec" && f.Prev != nil
		}) {
			return Replaced
		}
		return Still
	case facts.Reverses(h.Changed[i], h.Changed[k]):
		return Restored
	case slices.ContainsFunc(h.Changed[k], func(f facts.Field) bool {
		return slices.ContainsFunc(h.Changed[i], func(was facts.Field) bool {
			return was.Where == f.Where && was.Cur != nil
		})
	}):
		return Replaced
	}
	return Still
}
