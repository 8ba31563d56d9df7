package facts

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// unanswered attributes changes to writes without an answer. A controller that is killed may have written, without
// having seen the answer or reported it. Such a write claims a change that has no writer yet, and that shows what the
// write has sent.
func (a *attribution) unanswered() {
	writes := make([]begun, 0, len(a.began))
	for call, since := range a.began {
		if !a.answered[call] && !since.observation.Election {
			writes = append(writes, since)
		}
	}
	slices.SortFunc(writes, func(x, y begun) int {
		return cmp.Or(x.at.Compare(y.at), cmp.Compare(x.observation.Session, y.observation.Session),
			cmp.Compare(x.observation.Call, y.observation.Call))
	})
	names := a.managers()
	for _, since := range writes {
		o := since.observation
		sent := body(o)
		if sent == nil {
			continue
		}
		for i := range a.changes {
			c := &a.changes[i]
			if c.names(o) && a.free(c, since) && c.maybeBy(o, names[o.By]) && mustHaveMade(o, sent, c) {
				a.claim(c, o, since)
				break
			}
		}
	}
}

// complete adds what unanswered writes have sent, of which only the metadata was observed so far.
func (a *attribution) complete(end *record.SessionEnd) {
	for i := range end.Unanswered {
		o := &end.Unanswered[i]
		call := [2]uint64{o.Session, o.Call}
		if write, ok := a.began[call]; ok {
			write.observation = o
			a.began[call] = write
		}
	}
}

// managers returns the names that the answered writes of each controller have in managed fields.
func (a *attribution) managers() map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for i := range a.changes {
		c := &a.changes[i]
		if c.By == "" {
			continue
		}
		if all[c.By] == nil {
			all[c.By] = map[string]bool{}
		}
		for _, w := range c.writers {
			all[c.By][w.Manager] = true
		}
	}
	return all
}

// mustHaveMade reports whether a change shows what an unanswered write has sent, and no other write is likely to have
// made the same change: an update is of the version that it was based on, and all that differs is as it was sent.
func mustHaveMade(o *record.Observation, sent map[string]any, c *Change) bool {
	switch {
	case o.Op == wire.Create:
		return o.Subresource == "" && c.Event == record.Created && covers(content(c.Cur), content(sent))
	case o.Op == wire.Update:
		based := metadata.Text(metadata.Of(sent), "resourceVersion")
		if based == "" || based != metadata.Text(metadata.Of(c.Prev), "resourceVersion") {
			return false
		}
	case o.Op != wire.Patch && o.Op != wire.Apply:
		return false
	}
	was, is, sent := content(c.Prev), content(c.Cur), content(sent)
	return c.Event == record.Updated && !reflect.DeepEqual(was, is) && explains(sent, was, is)
}

// content is an object without what API servers set.
func content(object map[string]any) map[string]any {
	kept := map[string]any{}
	for key, v := range object {
		if key != "apiVersion" && key != "kind" && key != "metadata" {
			kept[key] = v
		}
	}
	meta := map[string]any{}
	for _, key := range []string{"labels", "annotations", "ownerReferences", "finalizers"} {
		if v, ok := metadata.Of(object)[key]; ok {
			meta[key] = v
		}
	}
	kept["metadata"] = meta
	return kept
}

// explains reports whether all that differs between two states is as it was sent. A null stands for a missing field.
func explains(sent, was, is map[string]any) bool {
	for _, state := range []map[string]any{was, is} {
		for key := range state {
			if reflect.DeepEqual(was[key], is[key]) || reflect.DeepEqual(sent[key], is[key]) {
				continue
			}
			below, _ := sent[key].(map[string]any)
			wasBelow, _ := was[key].(map[string]any)
			isBelow, _ := is[key].(map[string]any)
			if below == nil || !explains(below, wasBelow, isBelow) {
				return false
			}
		}
	}
	return true
}

// covers reports whether a state has all that was sent; API servers and webhooks may have added to it.
func covers(is, sent any) bool {
	switch sent := sent.(type) {
	case nil:
		return true
	case map[string]any:
		is, _ := is.(map[string]any)
		for key, v := range sent {
			if !covers(is[key], v) {
				return false
			}
		}
		return true
	case []any:
		is, _ := is.([]any)
		return slices.EqualFunc(is, sent, covers)
	}
	return reflect.DeepEqual(is, sent)
}
