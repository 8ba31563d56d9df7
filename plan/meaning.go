package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// Meaning says what conditions on an object mean at some points. Meanings decide which plans are valid, and the table
// in docs/plan-format.md is generated from them.
type Meaning struct {
	Conditions []TriggerType
	Points     []string // names of timings without before and after
	Before     string   // what is observed; empty: nothing, and Instead says why
	After      string
	Instead    string // why such a condition is rejected there, and what to write instead
	// NoStatesBefore and NoStatesAfter list the fields of the condition that have no meaning there.
	NoStatesBefore, NoStatesAfter []string
}

var (
	receiving = []string{"APIServerRecv", "ControllerRecv"}
	writing   = []string{"ControllerWrite"}
	reading   = []string{"ControllerRead"}
)

// Meanings lists what a condition on an object means at each point; each pair of condition and point is in exactly one
// entry.
var Meanings = []Meaning{
	{
		Conditions: []TriggerType{OnObjectCreation}, Points: receiving,
		Before: "the event of a new object is about to be received",
		After: "it has been; to an informer every object that it does not have yet is new, so after a restart of its " +
			"process the first list brings a creation for each object",
	},
	{
		Conditions: []TriggerType{OnObjectUpdate}, Points: receiving,
		Before: "the event of a change is about to be received",
		After:  "it has been; a deletion that waits for finalizers is an update: it sets `deletionTimestamp`",
	},
	{
		Conditions: []TriggerType{OnObjectDeletion}, Points: receiving,
		Before: "the event that the object is gone is about to be received",
		After:  "it has been; the last state is what `prevState` and `where` see",
	},
	{
		Conditions: []TriggerType{OnAnyFieldModified, OnAllFieldsModified}, Points: receiving,
		Before: "the event of a change in which fields lose their values is about to be received",
		After:  "it has been",
	},
	{
		Conditions: []TriggerType{OnObjectCreation}, Points: writing,
		Before: "a create, or an apply of an object that does not exist, is about to be sent",
		After:  "the API server has created the object",
	},
	{
		Conditions: []TriggerType{OnObjectUpdate}, Points: writing,
		Before: "an update, patch or apply of an existing object, or of its status or scale, is about to be sent; " +
			"the new object is the result that the write would have",
		After: "it has succeeded; the new object is what the API server then stores",
	},
	{
		Conditions: []TriggerType{OnObjectDeletion}, Points: writing,
		Before: "a delete, an eviction, or the deletion of a collection with the object in it is about to be sent",
		After:  "it has succeeded; with finalizers or a grace period the object still exists",
	},
	{
		Conditions: []TriggerType{OnAnyFieldModified, OnAllFieldsModified}, Points: writing,
		Before: "a write that would change or remove the values is about to be sent",
		After:  "it has succeeded and has changed or removed them",
	},
	{
		Conditions: []TriggerType{OnObjectUpdate}, Points: reading,
		Before: "a get of the object, or a list that may hold it, is about to begin; nothing is known yet, so there " +
			"are no states",
		After:          "a read has found the object, with `curState` in it; it need not have changed",
		NoStatesBefore: []string{"prevState", "curState", "where"},
		NoStatesAfter:  []string{"prevState"},
	},
	{
		Conditions: []TriggerType{OnObjectDeletion}, Points: reading,
		After:         "a read has not found the object: a get that finds nothing, a list without it",
		Instead:       "what a read will find is unknown before it; use afterControllerRead",
		NoStatesAfter: []string{"prevState", "where"},
	},
	{
		Conditions: []TriggerType{OnObjectCreation, OnAnyFieldModified, OnAllFieldsModified}, Points: reading,
		Instead: "a read changes nothing. For a read that finds the object in some state use onObjectUpdate with " +
			"curState; for the change, as the controller sees it, use afterControllerRecv",
	},
}

// meaningOf returns what a condition on an object means at a timing.
func meaningOf(condition TriggerType, t Timing) *Meaning {
	for i := range Meanings {
		m := &Meanings[i]
		if slices.Contains(m.Conditions, condition) && slices.Contains(m.Points, t.point()) {
			return m
		}
	}
	return nil
}

func (t Timing) isBefore() bool { return strings.HasPrefix(string(t), "before") }

// MeaningsTable returns Meanings as a Markdown table.
func MeaningsTable() string {
	var b strings.Builder
	b.WriteString("| condition | at | before | after |\n| --- | --- | --- | --- |\n")
	code := func(words []string) string { return "`" + strings.Join(words, "`, `") + "`" }
	cell := func(text string) string {
		if text == "" {
			return "refused"
		}
		return text
	}
	for _, m := range Meanings {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", code(stringsOf(m.Conditions)), code(m.Points), cell(m.Before),
			cell(m.After))
	}
	return b.String()
}

// meaning rejects a condition on an object at a point where it has no meaning.
func (c *checker) meaning(d *Definition, whole *yamlfile.Place) {
	m := meaningOf(d.Condition.Type, d.Observe.Timing)
	if m == nil {
		return // not a condition on an object
	}
	at, condition := whole.Field("observationPoint").Field("timing"), whole.Field("condition")
	without, text := m.NoStatesAfter, m.After
	if d.Observe.Timing.isBefore() {
		without, text = m.NoStatesBefore, m.Before
	}
	if text == "" {
		at.Errorf("%s has no meaning at %s: %s", d.Condition.Type, d.Observe.Timing, m.Instead)
		return
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"prevState", d.Condition.PrevState != nil},
		{"curState", d.Condition.CurState != nil},
		{"where", d.Condition.Where != ""},
	} {
		if !f.set || !slices.Contains(without, f.name) {
			continue
		}
		switch {
		case d.Observe.Timing == BeforeControllerRead:
			at.Errorf("beforeControllerRead comes before the object is known; " +
				"a condition on its state needs afterControllerRead")
			return
		case d.Condition.Type == OnObjectDeletion:
			condition.Field(f.name).Errorf("%s has no %s at %s: what a read does not find has no state",
				d.Condition.Type, f.name, d.Observe.Timing)
		default:
			condition.Field(f.name).Errorf("%s has no %s at %s: a read shows one state; use curState",
				d.Condition.Type, f.name, d.Observe.Timing)
		}
	}
}
