package baseline

import (
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Recorded is what runs must record to be compared with the baseline, and what its runs have shown. The caller of Learn
// sets it.
type Recorded struct {
	// Types are those that other runs must record: see Types. Unlisted are those that could not be recorded when the
	// types were looked for.
	Types    []plan.ResourceKey `json:"types,omitempty"`
	Unlisted []string           `json:"unlisted,omitempty"`
	// Reached are the points that each controller reached in the first run: see facts.Reached.
	Reached map[string][]string `json:"reached,omitempty"`
	// Calls is how often each controller made an annotated call at least in a run: see facts.Calls.
	Calls map[string]map[string]int `json:"calls,omitempty"`
}

// Types lists the types of objects that the controllers under test take in, read or write, and that other runs should
// record, as resource keys of all their objects.
func Types(r *record.Run) []plan.ResourceKey {
	var all []plan.ResourceKey
	for _, e := range r.Events {
		if key, ok := TypeOf(e.Observation); ok && !slices.Contains(all, key) {
			all = append(all, key)
		}
	}
	// A deletion names only the resource of what is otherwise known by its kind.
	return slices.DeleteFunc(slices.Clone(all), func(key plan.ResourceKey) bool {
		return slices.ContainsFunc(all, func(o plan.ResourceKey) bool {
			return o.Group == key.Group && facts.IsResource(key.Type, o.Type)
		})
	})
}

// TypeOf is the type that an observation adds to Types, by its kind if that is known, otherwise by its resource; not
// ok: none. The observation may be nil.
func TypeOf(o *record.Observation) (key plan.ResourceKey, ok bool) {
	if o == nil || o.Kind == "" && o.Resource == "" || o.Election {
		return plan.ResourceKey{}, false
	}
	switch o.Point {
	case wire.ControllerRecv, wire.ControllerRead, wire.ControllerWrite:
	default:
		return plan.ResourceKey{}, false
	}
	key = plan.ResourceKey{Type: facts.KindOf(o), Group: o.Group, Namespace: "*", Name: "*"}
	return key, Counts(key) && (o.Point == wire.ControllerWrite || !masksKind(key, unlessWritten))
}

// Counts reports whether anything of a type's objects may count when runs are compared. Nothing of messages does, and
// of locks and what follows pods only what a controller under test writes. The type may be named by its resource.
func Counts(key plan.ResourceKey) bool {
	return !masksKind(key, func(reason string) bool { return !unlessWritten(reason) })
}

// masksKind reports whether a standard mask of such a reason masks a type completely.
func masksKind(key plan.ResourceKey, because func(reason string) bool) bool {
	kinds := []string{key.Type}
	for _, m := range standard {
		if kind, _, _ := strings.Cut(m.Type, "."); facts.IsResource(key.Type, kind) {
			kinds = append(kinds, kind)
		}
	}
	return slices.ContainsFunc(kinds, func(kind string) bool {
		key.Type = kind
		m := covering(standard, facts.Key(key.String()), []string{"kind"})
		return m != nil && because(m.Reason)
	})
}
