package baseline

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline/values"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// inStatus reports whether a field, named by where it is, belongs to a status.
func inStatus(where string) bool { return strings.HasPrefix(where, "status.") }

// condition returns the named item of status.conditions that a field belongs to, and the field in it; not ok: none.
func condition(where string) (item, field string, ok bool) {
	rest, ok := strings.CutPrefix(where, "status.conditions[")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "].")
}

// states are words in the names of fields in a status that say how things are, and events words in those that say what
// has happened, whatever else is in them.
var (
	states = []string{
		"phase", "state", "status", "health", "healthy", "ready", "available", "unavailable", "replicas", "active",
		"desired", "current", "updated", "generation", "selector", "version", "revision", "endpoint", "endpoints",
		"url", "name", "ref", "size", "capacity", "member", "members", "nodes",
	}
	events = []string{"last", "time", "timestamp", "date", "error", "errors", "message", "messages", "retry", "retries",
		"attempt", "attempts", "failure", "failures", "restarts"}
	// bygone are words in the names of fields that say how things were, whatever else is in them or below them.
	bygone = []string{"history", "previous", "former", "past", "events", "log", "logs", "transitions"}
)

// saysHowThingsAre reports whether a difference in a status is about how things are: a phase, a number of replicas, or
// whether a condition of the baseline holds, for example. Messages, counters, and conditions that the baseline does
// not have may be about what has happened.
func saysHowThingsAre(d Difference, want *facts.Object) bool {
	if _, field, ok := condition(d.Field); ok {
		item, known := strings.TrimSuffix(d.Field, field), false
		facts.Leaves(want.End, nil, "", func(l facts.Leaf) { known = known || strings.HasPrefix(l.Where, item) })
		return known && (field == "status" || field == "type")
	}
	for _, name := range d.path() {
		if slices.ContainsFunc(values.Words(name), func(word string) bool { return slices.Contains(bygone, word) }) {
			return false
		}
	}
	name := d.Field
	if strings.HasSuffix(name, "]") { // an item of a list of values
		name = name[:strings.LastIndex(name, "[")]
	}
	all := values.Words(name[strings.LastIndexAny(name, ".]")+1:])
	has := func(list []string) bool {
		return slices.ContainsFunc(all, func(word string) bool { return slices.Contains(list, word) })
	}
	switch {
	case has(events) && !has([]string{"phase", "ready", "available", "replicas", "generation"}):
		return false
	case d.Got == nil:
		return true // it does not say any more what it should
	}
	return has(states)
}

const annotations = "metadata.annotations."

// counters are last words of the names of annotations that count what was done.
var counters = []string{"revision", "attempt", "attempts", "retry", "retries", "transitions"}

// noteHistory marks, among the differences of an object, the annotations about what has happened: histories, and counts
// that are higher than without faults. Controllers write them for people and for their own next steps, such as the
// number of the next revision. One more step is not wrong by itself.
func noteHistory(differ []Difference) {
	for i := range differ {
		d := &differ[i]
		name, ok := strings.CutPrefix(d.Field, annotations)
		if !ok || d.Got == nil {
			continue
		}
		all := values.Words(name[strings.LastIndex(name, "/")+1:])
		// What was before may be kept to be put back, and must be right; a history is only read.
		d.Note = slices.Contains(all, "history") ||
			slices.Contains(counters, all[len(all)-1]) && values.CountsMore(d.Want, d.Got)
	}
}

// units are last words of the names of fields that say how long something has taken, and settings words in those that
// say how long it may take.
var (
	units    = []string{"seconds", "milliseconds", "millis", "minutes", "duration", "elapsed"}
	settings = []string{"timeout", "deadline", "period", "interval", "grace", "delay", "max", "min", "limit", "ttl"}
)

// noteElapsed marks, among the differences of an object, how long something has taken by its status. That depends on
// the clock, as dates do, and differs with each fault.
func noteElapsed(differ []Difference) {
	for i := range differ {
		d := &differ[i]
		if _, _, ok := condition(d.Field); ok || !inStatus(d.Field) ||
			!values.IsDuration(d.Want) || !values.IsDuration(d.Got) {
			continue
		}
		all := values.Words(d.Field[strings.LastIndexAny(d.Field, ".]")+1:])
		d.Note = slices.Contains(units, all[len(all)-1]) &&
			!slices.ContainsFunc(all, func(word string) bool { return slices.Contains(settings, word) })
	}
}

// Kept is a field in the status of a custom resource that says what has happened: it differs after a harmless fault,
// too.
type Kept struct {
	Type string `json:"type"`
	// Field is where it is, with the names of items; "[]" stands for any item that has no name: the next fault makes
	// one more of them.
	Field string `json:"field"`
	// How says which fault has shown that, in words.
	How string `json:"how"`
}

// Keep learns from a run with a harmless fault which fields in the status of a custom resource are about what has
// happened: they differ, and nothing else does. It learns nothing about an object that differs in how things are. If
// anything else differs, the fault was not harmless, and nothing is learned. How says which fault it was.
func (ref *Baseline) Keep(r *record.Run, how string) error {
	run, err := facts.Follow(r)
	if err != nil {
		return err
	}
	differ, _ := ref.compare(run.Objects())
	var kept []Kept
	broken := map[facts.Key]bool{}
	for _, d := range differ {
		switch {
		case d.Note:
		case !d.inCustomStatus():
			return nil
		case saysHowThingsAre(d, ref.usual(d.Key)):
			broken[d.Key] = true
		}
	}
	for _, d := range differ {
		k := Kept{d.Key.Type(), anyItem(d.Field), how}
		if !d.Note && !broken[d.Key] && ref.keeps(d) == nil && !slices.Contains(kept, k) {
			kept = append(kept, k)
		}
	}
	ref.Kept = append(slices.Clip(ref.Kept), kept...)
	return nil
}

// unnamedItem is the place of an item of items without names.
var unnamedItem = regexp.MustCompile(`\[\d+\]`)

// anyItem is where a field is in any item of lists whose items have no names.
func anyItem(where string) string { return unnamedItem.ReplaceAllString(where, "[]") }

// listItem is the place of any item.
var listItem = regexp.MustCompile(`\[[^\]]*\]`)

// path are the names of the fields that lead to what differs, without the items of lists.
func (d Difference) path() []string {
	return strings.Split(listItem.ReplaceAllString(d.Field, ""), ".")
}

func (d Difference) inCustomStatus() bool {
	return d.Relation == nil && !d.Renewal && inStatus(d.Field) && facts.IsCustom(d.Key.Type())
}

// usual is an object of the baseline; it is empty if there is none.
func (ref *Baseline) usual(key facts.Key) *facts.Object {
	return cmp.Or(ref.Objects[key], &facts.Object{})
}

// OnlyInStatus reports whether a run differs from the baseline, and only in the status of custom resources, in fields
// that may be about what has happened. Then it helps to know what Keep learns.
func (ref *Baseline) OnlyInStatus(differ []Difference) bool {
	return len(differ) > 0 && !slices.ContainsFunc(differ, func(d Difference) bool {
		return !d.inCustomStatus() || saysHowThingsAre(d, ref.usual(d.Key))
	})
}

// keeps is the kept field that a difference is about, or nil.
func (ref *Baseline) keeps(d Difference) *Kept {
	field := anyItem(d.Field)
	i := slices.IndexFunc(ref.Kept, func(k Kept) bool { return anyItem(k.Field) == field && k.Type == d.Key.Type() })
	if i < 0 || !d.inCustomStatus() || saysHowThingsAre(d, ref.usual(d.Key)) {
		return nil
	}
	return &ref.Kept[i]
}
