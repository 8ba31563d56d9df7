// Package sieve converts the two formats of the Sieve project's published test plans to Trommel's.
//
// It works on YAML nodes and knows nothing of the plan package, which calls it: the result is a tree of nodes in
// Trommel's format, and each node has the line and column of its source. So the plan package's messages about a
// converted plan have the positions in Sieve's file.
//
// Fields that Sieve's coordinator ignores are left out: ce-is-cr, convertStateToAPIForm and the like say how Sieve's
// hooks encode objects, and Trommel's hooks always report JSON. A [Problem] is something that Trommel's format cannot
// express.
package sieve

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Format is one of Sieve's formats.
type Format int

// The formats.
const (
	None    Format = iota // not Sieve's
	Modes                 // one fixed mode per plan: stale-state, unobserved-state, intermediate-state
	Actions               // a list of actions with triggers
)

// Problem is something that cannot be converted.
type Problem struct {
	Line, Col int
	Message   string
}

// sieveWord reports whether only Sieve's actions format has the word.
func sieveWord(w string) bool {
	switch w {
	case "controllerLabel", "apiServerName", "writeTarget", "conditionType", "prevStateDiff", "curStateDiff",
		"occurrence", "timeoutValue",
		"convertStateToAPIForm", "when", "by":
		return true
	}
	return false
}

// trommelWord reports whether only Trommel's own format has the word.
func trommelWord(w string) bool {
	switch w {
	case "apiVersion", "kind", "testName", "suite", "variant", "actionTarget", "triggerType", "prevState", "curState",
		"where", "timeout",
		"timing", "observeBy", "reconciler", "observePoint", "conditionName":
		return true
	}
	return false
}

// Detect returns the format of a document's root node. A file with words of Trommel's format is Trommel's, even if it
// also has words of Sieve's.
func Detect(root *yaml.Node) Format {
	if root = deref(root); root.Kind != yaml.MappingNode {
		return None
	}
	if get(root, "mode") != nil && get(root, "actions") == nil {
		return Modes
	}
	theirs, ours := false, false
	look := func(n *yaml.Node) {
		for i := 0; n != nil && i+1 < len(n.Content); i += 2 {
			theirs = theirs || sieveWord(n.Content[i].Value)
			ours = ours || trommelWord(n.Content[i].Value)
		}
	}
	look(root)
	for _, action := range items(get(root, "actions")) {
		action = mapping(action)
		look(action)
		for _, definition := range items(get(mapping(get(action, "trigger")), "definitions")) {
			definition = mapping(definition)
			look(definition)
			look(mapping(get(definition, "condition")))
			look(mapping(get(definition, "observationPoint")))
		}
	}
	if theirs && !ours {
		return Actions
	}
	return None
}

// Convert converts a document's root node of the given format. The result has everything that could be converted, so
// that its other mistakes can be reported too; it is nil if nothing could. The document must have been checked to be
// finite: Convert follows aliases.
func Convert(root *yaml.Node, format Format) (*yaml.Node, []Problem) {
	root = deref(root)
	c := &converter{aliased: anchored(root)}
	var out *yaml.Node
	switch format {
	case Modes:
		out = c.mode(root)
	case Actions:
		out = c.plan(root)
	default:
		return root, nil
	}
	return out, c.problems
}

type converter struct {
	problems   []Problem
	controller string // the plan's controller; empty: it names none
	several    bool   // it names several

	aliased bool // a node may be visited twice

	nodes []yaml.Node  // preallocated nodes
	links []*yaml.Node // preallocated contents of nodes
}

func (c *converter) problemf(n *yaml.Node, format string, args ...any) {
	c.problems = append(c.problems, Problem{n.Line, n.Column, fmt.Sprintf(format, args...)})
}

// plan converts the actions format.
func (c *converter) plan(root *yaml.Node) *yaml.Node {
	for _, action := range items(get(root, "actions")) {
		if label := get(mapping(action), "controllerLabel"); label != nil && label.Kind == yaml.ScalarNode {
			c.several = c.several || c.controller != "" && c.controller != label.Value
			c.controller = label.Value
		}
	}
	out := c.newMapping(root)
	c.fields(root, func(key, value *yaml.Node) {
		if key.Value != "actions" || value.Kind != yaml.SequenceNode {
			c.add(out, key, key.Value, value)
			return
		}
		list := c.newSequence(value)
		list.Content = make([]*yaml.Node, 0, len(value.Content))
		for _, action := range value.Content {
			list.Content = append(list.Content, c.action(deref(action)))
		}
		c.add(out, key, "actions", list)
	})
	return out
}

func (c *converter) fields(n *yaml.Node, each func(key, value *yaml.Node)) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		each(deref(n.Content[i]), deref(n.Content[i+1]))
	}
}

var actionTypes = map[string]string{"pauseControllerWrite": "pauseController",
	"resumeControllerWrite": "resumeController"}

func (c *converter) action(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return n
	}
	out := c.newMapping(n)
	c.fields(n, func(key, value *yaml.Node) {
		switch key.Value {
		case "actionType":
			if t, ok := actionTypes[value.Value]; ok {
				value = c.text(value, t)
			}
			c.add(out, key, key.Value, value)
		case "controllerLabel":
			c.add(out, key, "actionTarget", value)
		case "apiServerName":
			c.add(out, key, "actionTarget", c.apiServer(value))
		case "reconnectAPIServer":
			c.add(out, key, key.Value, c.apiServer(value))
		case "pauseScope", "writeTarget":
			if value.Value != "all" {
				c.add(out, key, "pauseScope", c.key(value))
			}
		case "pauseAt":
			c.add(out, key, key.Value, c.timing(value))
		case "waitBefore", "waitAfter":
			c.add(out, key, key.Value, c.seconds(value))
		case "trigger":
			c.add(out, key, key.Value, c.trigger(value))
		default:
			c.add(out, key, key.Value, value)
		}
	})
	return out
}

func (c *converter) trigger(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return n
	}
	out := c.newMapping(n)
	c.fields(n, func(key, value *yaml.Node) {
		if key.Value != "definitions" || value.Kind != yaml.SequenceNode {
			c.add(out, key, key.Value, value)
			return
		}
		list := c.newSequence(value)
		list.Content = make([]*yaml.Node, 0, len(value.Content))
		for _, d := range value.Content {
			list.Content = append(list.Content, c.definition(deref(d)))
		}
		c.add(out, key, key.Value, list)
	})
	return out
}

func (c *converter) definition(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return n
	}
	out := c.newMapping(n)
	condition := mapping(get(n, "condition"))
	conditionType := get(condition, "conditionType")
	c.fields(n, func(key, value *yaml.Node) {
		switch {
		case key.Value == "condition" && value.Kind == yaml.MappingNode:
			value = c.condition(value)
		case key.Value == "observationPoint" && value.Kind == yaml.MappingNode:
			if conditionType != nil && conditionType.Value == "onTimeout" {
				return // a timeout is not observed, and Sieve ignores the field
			}
			value = c.observationPoint(value)
		}
		c.add(out, key, key.Value, value)
	})
	return out
}

// conditionTypes maps Sieve's trigger types to Trommel's.
var conditionTypes = map[string]string{
	"onObjectCreate": "onObjectCreation", "onObjectDelete": "onObjectDeletion", "onObjectUpdate": "onObjectUpdate",
	"onAnyFieldModification": "onAnyFieldModified", "onAllFieldsModification": "onAllFieldsModified",
	"onAnnotatedAPICall": "onAnnotatedCall", "onTimeout": "onTimeout",
}

func (c *converter) condition(n *yaml.Node) *yaml.Node {
	out := c.newMapping(n)
	typ := get(n, "conditionType")
	timeout := typ != nil && typ.Value == "onTimeout"
	var call [4]*yaml.Node
	callWords := []string{"module", "filePath", "receiverType", "funName"}
	c.fields(n, func(key, value *yaml.Node) {
		switch key.Value {
		case "conditionType":
			if t, ok := conditionTypes[value.Value]; ok {
				value = c.text(value, t)
			} else if value.Kind == yaml.ScalarNode {
				c.problemf(value, "unknown conditionType %q (known: %s)", value.Value,
					strings.Join(sorted(conditionTypes), ", "))
				value = c.text(value, "onObjectUpdate") // so that the rest can be checked
			}
			c.add(out, key, "triggerType", value)
		case "resourceKey":
			c.add(out, key, key.Value, c.key(value))
		case "prevStateDiff":
			c.addUnless(out, key, "prevState", c.state(value))
		case "curStateDiff":
			c.addUnless(out, key, "curState", c.state(value))
		case "occurrence", "repeat":
			if !timeout {
				c.add(out, key, "repeat", value)
			}
		case "timeoutValue":
			c.add(out, key, "timeout", c.seconds(value))
		case "convertStateToAPIForm":
		default:
			if i := slices.Index(callWords, key.Value); i >= 0 {
				call[i] = value
				return
			}
			c.add(out, key, key.Value, value)
		}
	})
	if typ != nil && typ.Value == "onAnnotatedAPICall" {
		for i, v := range call {
			if v == nil && i != 2 {
				c.problemf(n, "onAnnotatedAPICall has no %s", callWords[i])
				return out
			}
		}
		c.add(out, call[3], "call",
			c.text(call[3], symbol(call[0].Value, call[1].Value, value(call[2]), call[3].Value)))
	} else {
		for i, v := range call {
			if v != nil {
				c.problemf(v, "%s is for onAnnotatedAPICall", callWords[i])
			}
		}
	}
	return out
}

// symbol returns a function's full name as Go prints it; Sieve has the module and the file in it.
func symbol(module, file, receiver, function string) string {
	pkg := path.Join(module, path.Dir(strings.TrimPrefix(file, "/")))
	switch {
	case receiver == "":
		return pkg + "." + function
	case strings.HasPrefix(receiver, "*"):
		return pkg + ".(" + receiver + ")." + function
	}
	return pkg + "." + receiver + "." + function
}

// informer is Sieve's word for a controller's receiving side as a whole.
const informer = "informer"

func (c *converter) observationPoint(n *yaml.Node) *yaml.Node {
	out := c.newMapping(n)
	when := value(get(n, "when"))
	c.fields(n, func(key, v *yaml.Node) {
		switch key.Value {
		case "when":
			c.add(out, key, "timing", c.timing(v))
		case "by":
			if strings.HasSuffix(when, "APIServerRecv") || v.Kind != yaml.ScalarNode {
				c.add(out, key, "observeBy", c.apiServer(v))
				return
			}
			if c.several {
				c.problemf(v, "by %s: the plan names several controllers, so it does not say which one", v.Value)
			} else if c.controller != "" {
				c.add(out, key, "observeBy", c.text(v, c.controller))
			}
			if v.Value != informer {
				c.add(out, v, "reconciler", c.text(v, strings.TrimSuffix(v.Value, ".Reconcile")))
			}
		default:
			c.add(out, key, key.Value, v)
		}
	})
	if len(out.Content) == 0 {
		return n
	}
	return out
}

func (c *converter) timing(n *yaml.Node) *yaml.Node {
	if strings.Contains(n.Value, "AnnotatedAPICall") {
		return c.text(n, strings.Replace(n.Value, "AnnotatedAPICall", "AnnotatedCall", 1))
	}
	return n
}

var kindNode = regexp.MustCompile(`^kind-control-plane([2-9]?)$`)

// apiServer converts the name of a kind node to the name of the API server on it.
func (c *converter) apiServer(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.ScalarNode {
		return n
	}
	m := kindNode.FindStringSubmatch(n.Value)
	if m == nil {
		c.problemf(n, "unknown API server %q (known: kind-control-plane, kind-control-plane2 and so on)", n.Value)
		return c.text(n, "apiserver-1")
	}
	if m[1] == "" {
		m[1] = "1"
	}
	return c.text(n, "apiserver-"+m[1])
}

// plurals lists built-in types that a published plan has in the plural. Sieve never matches them; their meaning is
// clear.
var plurals = map[string]string{
	"pods": "pod", "services": "service", "secrets": "secret", "configmaps": "configmap", "statefulsets": "statefulset",
	"deployments": "deployment", "persistentvolumeclaims": "persistentvolumeclaim", "jobs": "job",
	"replicasets":          "replicaset",
	"poddisruptionbudgets": "poddisruptionbudget", "daemonsets": "daemonset", "serviceaccounts": "serviceaccount",
}

// key converts a resource key; for cluster scope, Sieve's has no namespace part.
func (c *converter) key(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.ScalarNode {
		return n
	}
	key := n.Value
	if strings.Count(key, "/") == 1 {
		key = strings.Replace(key, "/", "//", 1)
	}
	if typ, rest, ok := strings.Cut(key, "/"); ok && plurals[typ] != "" {
		key = plurals[typ] + "/" + rest
	}
	if key == n.Value {
		return n
	}
	return c.text(n, key)
}

// seconds converts a number of seconds to a duration.
func (c *converter) seconds(n *yaml.Node) *yaml.Node {
	if f, err := strconv.ParseFloat(n.Value, 64); n.Kind == yaml.ScalarNode && err == nil && f >= 0 && f < 1e9 {
		return c.text(n, strconv.FormatFloat(f, 'f', -1, 64)+"s")
	}
	c.problemf(n, "expected a number of seconds, not %q", n.Value)
	return c.text(n, "0s")
}

// words lists Sieve's special values. SIEVE-SKIP is a placeholder for a list item that is not compared.
var words = strings.NewReplacer(
	`"SIEVE-NON-NIL"`, `"$present"`, `"SONAR-EXIST"`, `"$present"`, `"SIEVE-SKIP"`, `"$present"`,
	`"SIEVE-IDX-SKIP"`, `"$present"`)

// state converts a part of an object: JSON in a string, which Trommel reads too. It returns nil if there is none.
func (c *converter) state(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return n
	}
	switch s := strings.TrimSpace(n.Value); {
	case s == "null":
		return nil
	case !strings.HasPrefix(s, "{"):
		c.problemf(n, "the state is not a JSON object")
		return nil
	}
	if !strings.Contains(n.Value, `"SIEVE-`) && !strings.Contains(n.Value, `"SONAR-`) {
		return n
	}
	return c.text(n, words.Replace(n.Value))
}

// node makes a node with the position of at.
func (c *converter) node(kind yaml.Kind, at *yaml.Node, tag, value string) *yaml.Node {
	if len(c.nodes) == 0 {
		c.nodes = make([]yaml.Node, 16)
	}
	n := &c.nodes[0]
	c.nodes = c.nodes[1:]
	n.Kind, n.Tag, n.Value, n.Line, n.Column = kind, tag, value, at.Line, at.Column
	return n
}

func (c *converter) newMapping(at *yaml.Node) *yaml.Node {
	n := c.node(yaml.MappingNode, at, "!!map", "")
	size := max(8, len(at.Content))
	if len(c.links) < size {
		c.links = make([]*yaml.Node, max(64, size))
	}
	n.Content, c.links = c.links[:0:size], c.links[size:]
	return n
}

func (c *converter) text(at *yaml.Node, value string) *yaml.Node {
	return c.node(yaml.ScalarNode, at, "!!str", value)
}

// add adds a field whose name has the position of at. If the file has another name there, and the node is not used
// again, the node is renamed.
func (c *converter) add(m, at *yaml.Node, key string, value *yaml.Node) {
	switch {
	case at.Value == key && at.Kind == yaml.ScalarNode:
	case c.aliased || at.Kind != yaml.ScalarNode:
		at = c.text(at, key)
	default:
		at.Value, at.Tag = key, "!!str"
	}
	m.Content = append(m.Content, at, value)
}

// anchored reports whether there is an anchor anywhere.
func anchored(n *yaml.Node) bool {
	return n.Anchor != "" || slices.ContainsFunc(n.Content, anchored)
}

func (c *converter) addUnless(m, at *yaml.Node, key string, value *yaml.Node) {
	if value != nil {
		c.add(m, at, key, value)
	}
}

func deref(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func mapping(n *yaml.Node) *yaml.Node {
	if n = deref(n); n != nil && n.Kind == yaml.MappingNode {
		return n
	}
	return nil
}

func items(n *yaml.Node) []*yaml.Node {
	if n = deref(n); n != nil && n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return nil
}

func get(m *yaml.Node, key string) *yaml.Node {
	for i := 0; m != nil && i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return deref(m.Content[i+1])
		}
	}
	return nil
}

func value(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	return n.Value
}

func sorted(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// emptyState reports whether a state names nothing.
func emptyState(n *yaml.Node) bool {
	return n == nil || n.Tag == "!!null" || n.Kind == yaml.ScalarNode && strings.TrimSpace(n.Value) == "{}"
}
