package moment

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// History is what happens in the runs of a workload without faults. A change is named by its index among the changes
// of the first run.
type History struct {
	Baseline *baseline.Baseline
	Changes  []facts.Change // of the first run
	Runs     Runs
	Changed  [][]facts.Field  // the fields of each change that count
	Writes   map[string][]int // of each controller

	words []string // what Describe says of each change
}

// NewHistory reads what happened from a baseline.
func NewHistory(b *baseline.Baseline) *History {
	h := &History{
		Baseline: b, Changes: b.Changes, Runs: Runs{newTrace(b.Changes)}, Writes: map[string][]int{},
		Changed: make([][]facts.Field, len(b.Changes)), words: make([]string, len(b.Changes)),
	}
	for _, changes := range b.Others {
		h.Runs = append(h.Runs, newTrace(changes))
	}
	for i := range h.Changes {
		h.Changed[i] = b.Changed(&h.Changes[i])
		if by := h.Changes[i].By; by != "" {
			h.Writes[by] = append(h.Writes[by], i)
		}
	}
	return h
}

// Duration is the time from the first change to the last one.
func (h *History) Duration() time.Duration {
	if len(h.Changes) == 0 {
		return 0
	}
	return h.Changes[len(h.Changes)-1].Time.Sub(h.Changes[0].Time)
}

// Signature says what a change does to which type of object.
func (h *History) Signature(i int) string {
	c := &h.Changes[i]
	typ := record.In(c.Key.Cluster(), c.Key.Type())
	return strings.Join(append([]string{typ, verb(c)}, facts.Paths(h.Changed[i])...), " ")
}

func verb(c *facts.Change) string {
	if c.Marked() {
		return "marked for deletion"
	}
	return c.Event
}

// Describe says what a change is, in words.
func (h *History) Describe(i int) string {
	if h.words[i] == "" {
		h.words[i] = describe(&h.Changes[i])
	}
	return h.words[i]
}

// namedFields is how many of the fields that change are named.
const namedFields = 4

func describe(c *facts.Change) string {
	switch {
	case c.Marked():
		return fmt.Sprintf("%s is marked for deletion", c.Key)
	case c.Event == record.Created:
		return fmt.Sprintf("%s is created", c.Key)
	case c.Event == record.Deleted:
		return fmt.Sprintf("%s is deleted", c.Key)
	}
	if fields := baseline.Fields(c); len(fields) > 0 {
		if more := len(fields) - namedFields; more > 1 {
			fields = append(fields[:namedFields], fmt.Sprintf("and %d more fields", more))
		}
		return fmt.Sprintf("%s changes (%s)", c.Key, strings.Join(fields, ", "))
	}
	return fmt.Sprintf("%s changes", c.Key)
}

// Cluster returns the cluster of a change's object. It is empty if there is only one.
func (h *History) Cluster(i int) string { return h.Changes[i].Key.Cluster() }

// Deletes reports whether a change deletes its object, or marks it for deletion.
func (h *History) Deletes(i int) bool {
	c := &h.Changes[i]
	return c.Event == record.Deleted || c.Marked()
}

// Lives reports whether an object exists after the k-th change, and is not marked for deletion.
func (h *History) Lives(key facts.Key, k int) bool {
	all := h.Runs[0].ByKey[key]
	at, found := slices.BinarySearch(all, k)
	if !found {
		at--
	}
	if at < 0 {
		return false
	}
	c := &h.Changes[all[at]]
	return c.Event != record.Deleted && ValueAt(c.Cur, []string{"metadata", "deletionTimestamp"}) == nil
}

// Later lists the later changes of the same object.
func (h *History) Later(i int) []int {
	all := h.Runs[0].ByKey[h.Changes[i].Key]
	at, _ := slices.BinarySearch(all, i)
	return all[at+1:]
}

// NextWrite returns the controller's first effective write after a change, or -1.
func (h *History) NextWrite(i int, by string) int {
	writes := h.Writes[by]
	if at, _ := slices.BinarySearch(writes, i+1); at < len(writes) {
		return writes[at]
	}
	return -1
}

// LastWriter returns the controller that has made the last write, or "".
func (h *History) LastWriter() string {
	for i := len(h.Changes) - 1; i >= 0; i-- {
		if by := h.Changes[i].By; by != "" {
			return by
		}
	}
	return ""
}

// FollowUps returns the controller's effective writes that may follow from a change, until the Object is changed again
// by another client. The reconcile that made such a write, or the one before it, had read the object.
func (h *History) FollowUps(i int, by string) []int {
	end := len(h.Changes)
	for _, k := range h.Later(i) {
		if h.Changes[k].By == "" && len(h.Changed[k]) > 0 {
			end = k
			break
		}
	}
	writes := h.Writes[by]
	at, _ := slices.BinarySearch(writes, i+1)
	var all []int
	for _, k := range writes[at:] {
		if k >= end {
			break
		}
		if h.Changes[k].MayFollowFrom(&h.Changes[i]) {
			all = append(all, k)
		}
	}
	return all
}

// Reactions returns the follow-ups to other objects.
func (h *History) Reactions(i int, by string) []int {
	key := h.Changes[i].Key
	return slices.DeleteFunc(h.FollowUps(i, by), func(k int) bool { return h.Changes[k].Key == key })
}

// Causes reports whether the i-th change is the last one by others that the controller's k-th may follow from. It may
// follow from earlier ones too, but the controller has waited for the last one.
func (h *History) Causes(i, k int, by string) bool {
	for j := k - 1; j > i; j-- {
		if c := &h.Changes[j]; c.By != by && len(h.Changed[j]) > 0 && slices.Contains(c.Taken, by) &&
			h.Changes[k].MayFollowFrom(c) {
			return false
		}
	}
	return true
}

// GoesOn reports whether the reconcile that made a change writes more after it, as far as that is known. A restart
// then leaves its work half done.
func (h *History) GoesOn(i int) bool { return len(h.GoingOn(i)) > 0 }

// GoingOn lists the writes that the reconcile that made a change makes after it, as far as that is known.
func (h *History) GoingOn(i int) (writes []int) {
	c := &h.Changes[i]
	all := h.Writes[c.By]
	at, _ := slices.BinarySearch(all, i+1)
	for _, k := range all[at:] {
		if h.Changes[k].Reconcile == c.Reconcile {
			writes = append(writes, k)
		}
	}
	return writes
}

// Hears reports whether a controller takes in a change of a kind within a time after a change.
func (h *History) Hears(by string, i int, within time.Duration, kind func(*facts.Change) bool) bool {
	end := h.Changes[i].Time.Add(within)
	for k := i + 1; k < len(h.Changes); k++ {
		c := &h.Changes[k]
		if c.Time.After(end) {
			return false
		}
		if kind(c) && slices.Contains(c.Taken, by) {
			return true
		}
	}
	return false
}

// Call is an annotated call of a controller.
type Call struct {
	By, Name string
	N        int // which of the function's calls it is, from 1 on
}

// Calls lists the annotated calls that the controllers make.
func (h *History) Calls() []Call {
	var all []Call
	for _, by := range slices.Sorted(maps.Keys(h.Baseline.Calls)) {
		for _, name := range slices.Sorted(maps.Keys(h.Baseline.Calls[by])) {
			for n := range h.Baseline.Calls[by][name] {
				all = append(all, Call{by, name, n + 1})
			}
		}
	}
	return all
}
