package plan

import (
	"reflect"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"
)

// The Go types of plans and suites describe their YAML. These are the tags of their fields:
//
//	yaml     the field's name; a field without this tag is not in the file. Two Go fields with the same name
//	         read the same value
//	also     another accepted name, from the format as first proposed
//	called   what messages call the value; default: its name
//	item     what messages call an item of the list or mapping
//	default  the value if the field is left out
//	words    the allowed values; for a type in vocabulary, all of its words
//	range    the least and the greatest number
//	as       how it is read, if the Go type does not say; see source.decodeAs
//
// An embedded struct without a tag stands for its fields. A type with a method long also has a short form.

// vocabulary lists the words of types that have a fixed set.
var vocabulary = map[reflect.Type][]string{
	reflect.TypeFor[ActionType]():      nil, // see RegisterKind
	reflect.TypeFor[TriggerType]():     stringsOf(triggerTypes),
	reflect.TypeFor[Timing]():          stringsOf(timings),
	reflect.TypeFor[Reconnect]():       {string(ReconnectRestart), string(ReconnectCut)},
	reflect.TypeFor[CallAnswer]():      {string(Lost), string(Refused)},
	reflect.TypeFor[CyclePhase]():      stringsOf(CyclePhases),
	reflect.TypeFor[OnTimeoutAction](): {string(OnTimeoutFail), string(OnTimeoutContinue)},
}

// hints says, by the name of a mapping in messages, what to write instead of a field that it does not have.
var hints = map[string]map[string]string{
	"an action": {
		"controllerLabel": "the target of an action is its actionTarget",
		"apiServerName":   "the target of an action is its actionTarget",
	},
	"a condition": {
		"conditionType": "here it is triggerType", "occurrence": "here it is repeat",
		"prevStateDiff": "here it is prevState", "curStateDiff": "here it is curState",
		"timeoutValue": "here it is timeout, with its unit",
	},
	"an observation point": {"when": "here it is timing", "by": "here it is observeBy"},
	"a suite":              {"actions": "only a plan has it, and this file is read as a suite"},
	"a variable of env":    {"value": "write the value itself, without a mapping"},
}

// shape describes the mapping that a struct is read from.
type shape struct {
	fields []shapeField
	names  []string // without duplicates
	short  bool     // it has a short form
}

type shapeField struct {
	name, also, called, item, fallback, as string
	index                                  []int
	words                                  []string
	numbers                                []string // least and greatest
}

// shortened is a type with a form that is shorter than a mapping.
type shortened interface {
	// long returns the mapping that the node is short for, or nil if the node is read as it is.
	long(s *source, n *yaml.Node) *yaml.Node
}

var shapes sync.Map // reflect.Type → *shape

func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape)
	}
	sh := &shape{short: reflect.PointerTo(t).Implements(reflect.TypeFor[shortened]())}
	for _, f := range reflect.VisibleFields(t) {
		name, ok := f.Tag.Lookup("yaml")
		if !ok {
			continue
		}
		words := vocabulary[f.Type]
		if w := f.Tag.Get("words"); w != "" {
			words = strings.Fields(w)
		}
		called := f.Tag.Get("called")
		if called == "" {
			called = name
		}
		if sh.field(name) == nil {
			sh.names = append(sh.names, name)
		}
		sh.fields = append(sh.fields, shapeField{
			name: name, also: f.Tag.Get("also"), called: called, item: f.Tag.Get("item"), as: f.Tag.Get("as"),
			index: f.Index, words: words, numbers: strings.Fields(f.Tag.Get("range")), fallback: f.Tag.Get("default"),
		})
	}
	shapes.Store(t, sh)
	return sh
}

// field returns the first field with that name, or nil.
func (sh *shape) field(name string) *shapeField {
	for i := range sh.fields {
		if f := &sh.fields[i]; f.name == name || f.also == name && name != "" {
			return f
		}
	}
	return nil
}
