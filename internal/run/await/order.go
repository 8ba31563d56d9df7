package await

import (
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/objects/history"
	"github.com/trommel-dev/trommel/record"
)

// ordered follows entries of several watches in the order of their resource versions, although a watch may be behind
// another one: the name of a child depends on that of its owner, which must have come before.
type ordered struct {
	entries  []record.HistoryEntry
	follower *facts.Follower
}

// newOrdered returns an ordered of a history that has not begun; upgrades is [facts.Follower.Upgrades], and began
// [facts.Follower.Began].
func newOrdered(upgrades bool, began time.Time) *ordered {
	o := &ordered{follower: facts.NewFollower()}
	o.follower.Upgrades, o.follower.Began = upgrades, began
	return o
}

// add takes the next entries to arrive. If some of them are older than others that have arrived before, all are
// followed again.
func (o *ordered) add(entries []record.HistoryEntry) error {
	if len(entries) == 0 {
		return nil
	}
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, history.ByVersion)
	late := len(o.entries) > 0 && entries[0].ResourceVersion < o.entries[len(o.entries)-1].ResourceVersion
	o.entries = append(o.entries, entries...)
	if late {
		slices.SortStableFunc(o.entries, history.ByVersion)
		o.follower, entries = newOrdered(o.follower.Upgrades, o.follower.Began).follower, o.entries
	}
	return o.follower.Add(entries...)
}
