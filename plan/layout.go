package plan

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan/internal/jsonvalue"
	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// layout says of plans and suites what the tags of their Go types do not say, see yamlfile.Field.
var layout = &yamlfile.Format{
	Words: map[reflect.Type][]string{
		reflect.TypeFor[ActionType]():      nil, // see RegisterKind
		reflect.TypeFor[TriggerType]():     stringsOf(triggerTypes),
		reflect.TypeFor[Timing]():          stringsOf(timings),
		reflect.TypeFor[Reconnect]():       {string(ReconnectRestart), string(ReconnectCut)},
		reflect.TypeFor[CallAnswer]():      {string(Lost), string(Refused)},
		reflect.TypeFor[UpgradeHow]():      {string(UpgradeKill), string(UpgradeRolling)},
		reflect.TypeFor[CyclePhase]():      stringsOf(CyclePhases),
		reflect.TypeFor[OnTimeoutAction](): {string(OnTimeoutFail), string(OnTimeoutContinue)},
	},
	Hints: map[string]map[string]string{
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
	},
	Types: map[reflect.Type]yamlfile.Value{
		keyType: {Read: readKey, Write: func(v reflect.Value) (*yaml.Node, error) {
			return yamlfile.TextNode(v.Interface().(ResourceKey).String()), nil
		}},
		scopeType: {Read: readScope, Write: func(v reflect.Value) (*yaml.Node, error) {
			return yamlfile.TextNode(v.Interface().(Scope).String()), nil
		}},
		offsetType: {
			Read: func(f *yamlfile.File, n *yaml.Node, v reflect.Value, what string) {
				v.Set(reflect.ValueOf(readOffset(f, n, what)))
			},
			Write: func(v reflect.Value) (*yaml.Node, error) {
				return yamlfile.TextNode(v.Interface().(Offset).String()), nil
			},
		},
	},
	As: map[string]yamlfile.Value{
		"state":      {Read: readState}, // a part of an object, as YAML or as JSON in a string
		"command":    {Read: readCommand},
		"deployment": {Read: readDeployment},
		"variables":  {Read: readVariables},                     // the variables of env that are text
		"sources":    {Read: readSources, Write: encodeSources}, // those that are mappings with valueFrom
	},
	Short: map[reflect.Type]func(*yamlfile.File, *yaml.Node) *yaml.Node{
		reflect.TypeFor[Manifest]():   yamlfile.LongForm("path", yaml.ScalarNode),
		reflect.TypeFor[Workload]():   longWorkload,
		reflect.TypeFor[Step]():       oneThing,
		reflect.TypeFor[ApplyStep]():  longApply,
		reflect.TypeFor[DeleteStep](): yamlfile.LongForm("resourceKey", yaml.ScalarNode),
		reflect.TypeFor[ExecStep]():   yamlfile.LongForm("command", yaml.ScalarNode, yaml.SequenceNode),

		reflect.TypeFor[UpgradeStep](): yamlfile.LongForm("to", yaml.ScalarNode),
	},
	Writes: func(owner any, field string) (written, decided bool) {
		switch owner := owner.(type) {
		case Plan:
			return true, field == "apiVersion" || field == "kind" || field == "actions"
		case Suite:
			if field == "cluster" && len(owner.Clusters) > 0 {
				return false, true // it is the first of them
			}
			return true, field == "apiVersion" || field == "kind"
		case Definition:
			return true, field == "condition"
		case Condition:
			// 0s is valid and means at once, but the field is required.
			return owner.Type == OnTimeout, field == "timeout"
		}
		return false, false
	},
}

func init() {
	// Kinds of actions refer to the layout.
	layout.Prepare = map[reflect.Type]func(v any, n *yaml.Node){reflect.TypeFor[Action](): prepareOwn}
	layout.Has = hasField
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	keyType      = reflect.TypeFor[ResourceKey]()
	scopeType    = reflect.TypeFor[Scope]()
	offsetType   = reflect.TypeFor[Offset]()
)

func stringsOf[T ~string](list []T) []string {
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = string(v)
	}
	return words
}

// hasField reports whether a struct has a field, as far as its type does not say it.
func hasField(owner any, field string) bool {
	switch owner := owner.(type) {
	case *Action:
		return owner.has(field)
	case *Invariant:
		return field != "within" || owner.Eventually != ""
	}
	return true
}

// prepareOwn allocates the struct with the fields that only the action's type has.
func prepareOwn(v any, n *yaml.Node) {
	if _, typ := yamlfile.Entry(n, "actionType"); typ != nil {
		v.(*Action).Own = OwnFields(ActionType(yamlfile.Deref(typ).Value))
	}
}

func readKey(f *yamlfile.File, n *yaml.Node, v reflect.Value, what string) {
	text := f.Scalar(n, what)
	if text == "" {
		if yamlfile.IsEmpty(n) {
			f.Errorf(n, "%s is empty; write type/namespace/name", what)
		}
		return
	}
	k, err := ParseResourceKey(text)
	if err != nil {
		f.Errorf(n, "%s %v", what, err)
		return
	}
	v.Set(reflect.ValueOf(k))
}

func readScope(f *yamlfile.File, n *yaml.Node, v reflect.Value, what string) {
	s, err := ParseScope(f.Scalar(n, what))
	if err != nil {
		f.Errorf(n, "%s %v", what, err)
		return
	}
	v.Set(reflect.ValueOf(s))
}

// readDeployment reads namespace/name, or a resource key such as deployment/namespace/name.
func readDeployment(f *yamlfile.File, n *yaml.Node, v reflect.Value, _ string) {
	text := f.Scalar(n, "deployment")
	parts := strings.Split(text, "/")
	if len(parts) == 3 && (parts[0] == "deployment" || parts[0] == "deployment.apps") {
		parts = parts[1:]
	}
	if len(parts) != 2 || !validNamespace(parts[0]) || !validName(parts[1], true) {
		if text != "" || yamlfile.IsEmpty(n) {
			f.Errorf(n, "deployment %q: write namespace/name", text)
		}
		return
	}
	v.Set(reflect.ValueOf(ResourceKey{Type: "deployment", Group: "apps", Namespace: parts[0], Name: parts[1]}))
}

// readCommand reads a program with its arguments.
func readCommand(f *yamlfile.File, n *yaml.Node, v reflect.Value, what string) {
	if r := yamlfile.Deref(n); r.Kind == yaml.ScalarNode {
		f.Errorf(n, "%s must be a list such as [sh, -c, %q]", what, r.Value)
		return
	}
	var list []string
	for _, item := range f.List(n, what) {
		list = append(list, f.Scalar(item, "an item of "+what))
	}
	if len(list) == 0 && yamlfile.Deref(n).Kind == yaml.SequenceNode {
		f.Errorf(n, "%s is empty", what)
	}
	v.Set(reflect.ValueOf(list))
}

func readVariables(f *yamlfile.File, n *yaml.Node, v reflect.Value, what string) {
	variables := v.Addr().Interface().(*map[string]string)
	f.Entries(n, what, func(name string, slot **yaml.Node) {
		if yamlfile.Deref(*slot).Kind != yaml.MappingNode {
			set(variables, name, f.Scalar(*slot, name+" in "+what))
		}
	})
}

func readSources(f *yamlfile.File, n *yaml.Node, v reflect.Value, what string) {
	sources := v.Addr().Interface().(*map[string]map[string]any)
	f.Entries(n, what, func(name string, slot **yaml.Node) {
		if yamlfile.Deref(*slot).Kind == yaml.MappingNode {
			if from := readSource(f, name, *slot); from != nil {
				set(sources, name, from)
			}
		}
	})
}

var valueSources = []string{"fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef"}

// readSource reads an environment variable that is a mapping, as in a container of a pod.
func readSource(f *yamlfile.File, name string, n *yaml.Node) map[string]any {
	var v struct {
		From map[string]any `yaml:"valueFrom"`
	}
	f.Struct(n, reflect.ValueOf(&v).Elem(), "a variable of env")
	_, from := yamlfile.Entry(n, "valueFrom")
	switch {
	case from == nil:
		f.Errorf(n, "%s in env must be text, or a mapping with valueFrom", name)
	case len(v.From) != 1 || !slices.Contains(valueSources, sortedKeys(v.From)[0]):
		f.Errorf(from, "valueFrom of %s takes one of: %s", name, strings.Join(valueSources, ", "))
	default:
		return v.From
	}
	return nil
}

func encodeSources(v reflect.Value) (*yaml.Node, error) {
	variables := map[string]any{}
	for name, source := range v.Interface().(map[string]map[string]any) {
		variables[name] = map[string]any{"valueFrom": source}
	}
	return new(yamlfile.Format).Encode(variables)
}

// readState reads prevState or curState: a mapping, or JSON in a string.
func readState(f *yamlfile.File, n *yaml.Node, v reflect.Value, what string) {
	r := yamlfile.Deref(n)
	var state any
	switch {
	case r.Kind == yaml.ScalarNode && strings.HasPrefix(strings.TrimSpace(r.Value), "{"):
		var err error
		if state, err = jsonvalue.Decode([]byte(r.Value)); err != nil {
			f.Errorf(n, "%s is not JSON: %v; write it as YAML", what, err)
			return
		}
		if !jsonvalue.Each(state, yamlfile.MaxDepth/2, func(any) {}) {
			f.Errorf(n, "%s is nested deeper than %d", what, yamlfile.MaxDepth/2)
			return
		}
	case r.Kind == yaml.MappingNode:
		state = f.Value(n)
	default:
		f.Errorf(n, "%s must be a mapping, a part of the object, not %s", what, yamlfile.KindOf(r))
		return
	}
	v.Set(reflect.ValueOf(state))
	bad, known := "", []string{Present, Absent}
	jsonvalue.Each(state, yamlfile.MaxDepth, func(v any) {
		if v, _ := v.(string); len(v) > 3 && v[0] == '$' && !slices.Contains(known, v) &&
			wording.Closest(v, known) != "" {
			bad = v
		}
	})
	if bad != "" {
		f.Report(yamlfile.FindText(n, bad), "unknown word %q in %s%s", bad, what, wording.Suggest(bad, known))
	}
}

func longWorkload(f *yamlfile.File, n *yaml.Node) *yaml.Node {
	r := yamlfile.Deref(n)
	if r.Kind != yaml.ScalarNode {
		return yamlfile.LongForm("steps", yaml.SequenceNode)(f, n)
	}
	f.Errorf(n, "a workload must be a list of steps, or a mapping with a command, not %s", yamlfile.KindOf(r))
	return &yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Column: n.Column}
}

// oneThing never returns another form: steps have none. It runs before the fields are read, and reports a second thing
// that the step does.
func oneThing(f *yamlfile.File, n *yaml.Node) *yaml.Node {
	count := 0
	for _, kind := range everyStepKind {
		if _, value := yamlfile.Entry(n, kind); value == nil {
			continue
		} else if count++; count > 1 {
			f.Report(value, "a step does one thing; this step also has %s", kind)
		}
	}
	return nil
}

func longApply(f *yamlfile.File, n *yaml.Node) *yaml.Node {
	r := yamlfile.Deref(n)
	if r.Kind == yaml.MappingNode {
		file, _ := yamlfile.Entry(r, "file")
		objects, _ := yamlfile.Entry(r, "objects")
		if file != nil || objects != nil {
			return nil
		}
		n = &yaml.Node{Kind: yaml.SequenceNode, Line: n.Line, Column: n.Column, Content: []*yaml.Node{n}}
	}
	if yamlfile.Deref(n).Kind == yaml.SequenceNode {
		return yamlfile.LongForm("objects", yaml.SequenceNode)(f, n)
	}
	return yamlfile.LongForm("file", yaml.ScalarNode)(f, n)
}

// setDefaults sets the defaults of fields that are left out or could not be read, in v and in all structs within it.
func setDefaults(v any, at *yamlfile.Place) { layout.Complete(reflect.ValueOf(v).Elem(), at) }
