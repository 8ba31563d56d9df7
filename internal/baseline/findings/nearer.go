package findings

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/plan"
)

// OnlyInterrupts reports whether all that a plan does to the controllers is to interrupt their work: it kills and
// starts processes, and lets calls fail. It shows them nothing old, and changes no objects.
func OnlyInterrupts(actions []plan.Action) bool {
	return CauseOf(actions) == Interrupted && !slices.ContainsFunc(actions, func(a plan.Action) bool {
		return slices.ContainsFunc(a.Effects(), func(e plan.Effect) bool {
			switch e.(type) {
			case *plan.Stop, *plan.Start, *plan.NoStreaming, *plan.CallFailure, *plan.Restore:
				return false
			}
			return true
		})
	})
}

// apart separates the differences by which the run of a plan that only interrupts is nearer to what an object's own
// status promises than the runs without faults: without faults the object is not Ready, for example, and in this run it
// is. Then the fault has not harmed the object; what is wrong comes without any fault.
//
// A run may also say Ready because it has missed what ought to make it unready. So the run must have come to say it
// after the last change by others, and differences count in which it is not better stay with the rest.
func (r *Run) apart(differ []baseline.Difference) (rest, nearer []baseline.Difference) {
	if !r.Interrupted || len(differ) == 0 {
		return differ, nil
	}
	got, want := r.state(differ[0])
	if !keepsMore(want.End, got.End) || !r.knewAll(differ[0].Own) {
		return differ, nil
	}
	for _, d := range differ {
		if isBetter(d, conditions(want.End), conditions(got.End)) {
			nearer = append(nearer, d)
		} else {
			rest = append(rest, d)
		}
	}
	if !slices.ContainsFunc(nearer, ofPromise) {
		return differ, nil // masks leave the promise out
	}
	return rest, nearer
}

// promised are conditions by which objects of many kinds say that all is well with them.
var promised = []string{"Ready", "Available"}

// ofPromise reports whether a difference is in a condition that is a promise, or in what generation a status is of.
func ofPromise(d baseline.Difference) bool {
	return d.Field == "status.observedGeneration" || slices.ContainsFunc(promised, func(name string) bool {
		return d.Field == conditionPlace(name)+"status"
	})
}

// conditionPlace is where the fields of a condition are.
func conditionPlace(name string) string { return "status.conditions[type=" + name + "]." }

// generation is the name of the promise that the status is of the last generation.
const generation = "observedGeneration"

// promises says which promises an object's status makes, and whether they are kept.
func promises(object map[string]any) map[string]bool {
	all := map[string]bool{}
	for name, status := range conditions(object) {
		if slices.Contains(promised, name) {
			all[name] = status == "True"
		}
	}
	status, _ := object["status"].(map[string]any)
	observed, isNumber := status[generation].(float64)
	last, has := metadata.Of(object)["generation"].(float64)
	if isNumber && has {
		all[generation] = observed >= last
	}
	return all
}

// conditions are an object's conditions: the status of each by its type.
func conditions(object map[string]any) map[string]string {
	status, _ := object["status"].(map[string]any)
	list, _ := status["conditions"].([]any)
	all := map[string]string{}
	for _, c := range list {
		m, _ := c.(map[string]any)
		all[metadata.Text(m, "type")] = metadata.Text(m, "status")
	}
	return all
}

// keepsMore reports whether an object keeps all its promises in a run, at least one more than without faults, and says
// of nothing bad that it is so, but for what it says without faults, too.
func keepsMore(want, got map[string]any) bool {
	if want == nil || got == nil || metadata.Marked(want) || metadata.Marked(got) {
		return false
	}
	before, now := promises(want), promises(got)
	more := false
	for name, kept := range now {
		was, had := before[name]
		if !kept {
			return false
		}
		more = more || had && !was || !had && name != generation
	}
	for name := range before {
		if _, has := now[name]; !has {
			return false
		}
	}
	usual := conditions(want)
	for name, status := range conditions(got) {
		if status != "False" && usual[name] != status && isBad(name) {
			return false
		}
	}
	return more
}

// bad are parts of words that say of a state that something is wrong with it, or not done yet.
var bad = []string{"fail", "err", "degrad", "stall", "unhealthy", "unavailable", "unready", "not", "unknown", "pend",
	"creat", "progress", "wait", "suspend", "pause", "terminat", "delet", "crash", "block", "invalid", "lost", "warn"}

// isBad reports whether one of the words is in a text.
func isBad(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(bad, func(word string) bool { return strings.Contains(text, word) })
}

// isFine reports whether a condition with that status is good news.
func isFine(name, status string) bool {
	if isBad(name) {
		return status == "False" || status == ""
	}
	return status == "True"
}

// isBetter reports whether a field of a status is better in a run than without faults, or belongs to a condition that
// is. The conditions are those without faults and in the run.
func isBetter(d baseline.Difference, before, now map[string]string) bool {
	if d.Relation != nil || d.Renewal || !strings.HasPrefix(d.Field, "status.") {
		return false
	}
	if ofPromise(d) {
		return true
	}
	if rest, ok := strings.CutPrefix(d.Field, "status.conditions[type="); ok {
		name, _, _ := strings.Cut(rest, "]")
		return !isFine(name, before[name]) && isFine(name, now[name])
	}
	name := strings.ToLower(d.Field[strings.LastIndexAny(d.Field, ".]")+1:])
	switch got := d.Got.(type) {
	case float64:
		// Other numbers of replicas say what is wanted.
		if !strings.HasPrefix(name, "ready") && !strings.HasPrefix(name, "available") {
			return false
		}
		want, _ := d.Want.(float64)
		return got > want
	case string:
		want, _ := d.Want.(string)
		return isState(name) && isWord(got) && !isBad(got) && (want == "" || isBad(want))
	case bool:
		return got && (name == "ready" || name == "available" || name == "healthy")
	case nil:
		// What said how things were wrong is gone.
		return isBad(name) || name == "message" || name == "reason"
	}
	return false
}

// isState reports whether a field is named like one that says how things are, in a word.
func isState(name string) bool {
	return slices.Contains([]string{"phase", "state", "status", "health"}, name) || strings.HasSuffix(name, "status") ||
		strings.HasSuffix(name, "state") || strings.HasSuffix(name, "phase")
}

func isWord(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })
}

// knewAll reports whether an object came to keep its promises after the last change that others than controllers have
// made to objects without an owner, above all those that users write. Until then something may have come that a
// controller has missed.
func (r *Run) knewAll(key facts.Key) bool {
	last, kept := -1, -1
	for i := range r.Changes {
		c := &r.Changes[i]
		switch {
		case c.Key == key && c.By != "":
			if !keepsAll(c.Prev) && keepsAll(c.Cur) {
				kept = i
			}
		case c.By == "" && isInput(c):
			last = i
		}
	}
	return kept > last && keepsAll(r.Objects[key].End)
}

// keepsAll reports whether an object makes promises and keeps all of them.
func keepsAll(object map[string]any) bool {
	all := promises(object)
	for _, kept := range all {
		if !kept {
			return false
		}
	}
	return len(all) > 0
}

// byKubernetes are types of objects without an owner that Kubernetes itself writes when pods or claims become ready.
var byKubernetes = []string{"endpoints", "persistentvolume", "node", "lease.coordination.k8s.io", "event",
	"event.events.k8s.io"}

// isInput reports whether a change may be a user's: of more than the status of an object that belongs to no other.
func isInput(c *facts.Change) bool {
	if slices.Contains(byKubernetes, c.Key.Type()) {
		return false
	}
	if c.Cur == nil || c.Prev == nil {
		return len(metadata.Owners(c.Cur))+len(metadata.Owners(c.Prev)) == 0
	}
	return len(metadata.Owners(c.Cur)) == 0 && !reflect.DeepEqual(asked(c.Prev), asked(c.Cur))
}

// asked is what an object asks for: it has no status, nor what API servers note.
func asked(object map[string]any) map[string]any {
	object = maps.Clone(object)
	delete(object, "status")
	meta := maps.Clone(metadata.Of(object))
	for _, name := range []string{"resourceVersion", "managedFields", "generation"} {
		delete(meta, name)
	}
	object["metadata"] = meta
	return object
}
