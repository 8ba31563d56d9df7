package plan

import (
	"reflect"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"
)

// The Go types of plans and suites describe their YAML. These are the tags of their fields:
//
//	yaml     the field's name; a field without is not in the file. Two Go fields of one name read the same value
//	also     another name that is read, of the format as it was first proposed
//	called   what messages call the value; without: its name
//	item     what messages call an item of the list or mapping
//	default  the value where the field is left out
//	words    the values that there are; of a type that is in vocabulary it is all of its words
//	range    the least and the greatest number
//	as       how it is read, where the Go type does not tell; see source.decodeAs
//
// An embedded struct without a tag stands for its fields. A type with a method long also has a short form.

// vocabulary lists the words of the types that have some.
var vocabulary = map[reflect.Type][]string{
	reflect.TypeFor[ActionType]():      nil, // see RegisterKind
	reflect.TypeFor[TriggerType]():     stringsOf(triggerTypes),
	reflect.TypeFor[Timing]():          stringsOf(timings),
	reflect.TypeFor[Reconnect]():       {string(ReconnectRestart), string(ReconnectCut)},
	reflect.TypeFor[OnTimeoutAction](): {string(OnTimeoutFail), string(OnTimeoutContinue)},
}

// hints say, by what a mapping is called, what to write instead of a field that it does not have.
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
	"a suite":              {"actions": "that is a plan's; this file is read as a suite"},
	"a variable of env":    {"value": "write the value itself, without a mapping"},
}

// shape describes the mapping that a struct is read from.
type shape struct {
	fields []shapeField
	names  []string // without repetition
	short  bool     // there is a short form
}

type shapeField struct {
	name, also, called, item, fallback, as string
	index                                  []int
	words                                  []string
	numbers                                []string // least and greatest
}

// shortened is a type that may be written shorter than as a mapping.
type shortened interface {
	// long returns the mapping for which the node stands, or nil if the node is to be read as it is.
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

// field returns the first field of that name, or nil.
func (sh *shape) field(name string) *shapeField {
	for i := range sh.fields {
		if f := &sh.fields[i]; f.name == name || f.also == name && name != "" {
			return f
		}
	}
	return nil
}
