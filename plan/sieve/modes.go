package sieve

import (
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// What Sieve's coordinator does in the modes, in seconds: fixed in its code, and the same numbers as in the plans of its
// later format.
const (
	staleWait   = "10s" // between the side effect and the reconnection
	staleResume = "20s" // between the reconnection and the end of the pause
)

// modeFields are the fields of the mode format. What is false is not needed: it says how Sieve runs or encodes, or what
// the kind of the event before was.
var modeFields = map[string]bool{
	"project": true, "stage": true, "mode": true, "straggler": true, "front-runner": true, "operator-pod-label": true, "timing": true,
	"description": true, "operator-pod": true, "deployment-name": false, "command": false,
	"ce-name": true, "ce-namespace": true, "ce-rtype": true, "ce-etype-current": true, "ce-diff-previous": true, "ce-diff-current": true,
	"ce-counter": true, "ce-etype-previous": false, "ce-is-cr": false,
	"se-name": true, "se-namespace": true, "se-rtype": true, "se-etype": true, "se-etype-current": true, "se-diff-previous": true,
	"se-diff-current": true, "se-counter": true, "se-reconciler-type": true, "se-etype-previous": false,
}

// etypes are the words for what happens to an object: the API server's, the informer's and the client's.
var etypes = map[string]string{
	"ADDED": "onObjectCreation", "MODIFIED": "onObjectUpdate", "DELETED": "onObjectDeletion",
	"Added": "onObjectCreation", "Updated": "onObjectUpdate", "Deleted": "onObjectDeletion",
	"Create": "onObjectCreation", "Update": "onObjectUpdate", "Delete": "onObjectDeletion",
	"Patch": "onObjectUpdate", "StatusUpdate": "onObjectUpdate", "StatusPatch": "onObjectUpdate",
}

// mode converts the mode format. The modes had other names at first.
func (c *converter) mode(root *yaml.Node) *yaml.Node {
	seen := map[string]int{}
	c.fields(root, func(key, value *yaml.Node) {
		if _, ok := modeFields[key.Value]; !ok {
			c.problemf(key, "unknown field %q in a plan of Sieve's mode format", key.Value)
		} else if line, ok := seen[key.Value]; ok {
			c.problemf(key, "field %q stands twice; first at line %d", key.Value, line)
		} else if value.Kind != yaml.ScalarNode {
			c.problemf(value, "%s is text", key.Value)
		}
		seen[key.Value] = key.Line
	})
	if len(c.problems) > 0 {
		return nil
	}
	if stage := get(root, "stage"); stage != nil && stage.Value != "test" {
		c.problemf(stage, "stage %q: only plans of the stage test say what to do", stage.Value)
	}
	mode := get(root, "mode")
	var actions []*yaml.Node
	switch mode.Value {
	case "stale-state", "time-travel":
		actions = c.stale(root)
	case "unobserved-state", "obs-gap":
		actions = c.unobserved(root)
	case "intermediate-state", "atom-vio":
		actions = c.intermediate(root)
	default:
		c.problemf(mode, "unknown mode %q (known: stale-state, unobserved-state, intermediate-state)", mode.Value)
		return nil
	}
	if len(c.problems) > 0 {
		return nil
	}
	out := newMapping(root)
	if d := get(root, "description"); d != nil {
		add(out, d, "description", d)
	}
	add(out, mode, "actions", sequence(mode, actions...))
	return out
}

// stale: while one API server lags behind at the cause event, the controller is moved to it.
func (c *converter) stale(root *yaml.Node) []*yaml.Node {
	straggler := c.apiServer(c.need(root, "straggler"))
	frontRunner := text(root, "apiserver-1")
	if n := get(root, "front-runner"); n != nil {
		frontRunner = c.apiServer(n)
	}
	timing := get(root, "timing")
	if timing == nil {
		timing = text(root, "after")
	}
	if timing.Value != "before" && timing.Value != "after" {
		c.problemf(timing, "unknown timing %q (known: before, after)", timing.Value)
	}
	key := c.objectKey(root, "ce-")
	cause := c.event(root, "ce-", "ce-etype-current", key)
	effectKey := c.objectKey(root, "se-")
	effect := newMapping(effectKey)
	add(effect, effectKey, "triggerType", c.etype(c.need(root, "se-etype")))
	add(effect, effectKey, "resourceKey", effectKey)
	timeout := newMapping(root)
	add(timeout, root, "triggerType", text(root, "onTimeout"))
	add(timeout, root, "timeout", text(root, staleResume))
	return []*yaml.Node{
		fields(root, "actionType", text(root, "pauseAPIServer"), "actionTarget", straggler, "pauseScope", key,
			"trigger", trigger("trigger1", definition("trigger1", cause, observed(timing.Value+"APIServerRecv", straggler)))),
		fields(root, "actionType", text(root, "reconnectController"), "actionTarget", c.label(root), "reconnectAPIServer", straggler,
			"async", boolean(root, true), "waitBefore", text(root, staleWait),
			"trigger", trigger("trigger2", definition("trigger2", effect, observed("afterAPIServerRecv", frontRunner)))),
		fields(root, "actionType", text(root, "resumeAPIServer"), "actionTarget", straggler, "pauseScope", key,
			"trigger", trigger("trigger3", definition("trigger3", timeout, nil))),
	}
}

// unobserved: from the cause event until the next one about the object, the controller does not read it.
func (c *converter) unobserved(root *yaml.Node) []*yaml.Node {
	key := c.objectKey(root, "ce-")
	cause := c.event(root, "ce-", "ce-etype-current", key)
	event := func(typ string) *yaml.Node { return fields(key, "triggerType", text(key, typ), "resourceKey", key) }
	var next [2]*yaml.Node
	switch etypes[value(get(root, "ce-etype-current"))] {
	case "onObjectCreation":
		next = [2]*yaml.Node{event("onObjectUpdate"), event("onObjectDeletion")}
	case "onObjectDeletion":
		next = [2]*yaml.Node{event("onObjectCreation"), event("onObjectUpdate")}
	default:
		modified := event("onAnyFieldModified")
		if s := get(cause, "curState"); s != nil {
			add(modified, s, "prevState", s)
		} else {
			modified = event("onObjectUpdate")
		}
		next = [2]*yaml.Node{modified, event("onObjectDeletion")}
	}
	// Sieve's plans of this mode say nothing of the controller, in neither format; it is the suite's only one.
	before, after := observed("beforeControllerRecv", nil), observed("afterControllerRecv", nil)
	return []*yaml.Node{
		fields(root, "actionType", text(root, "pauseController"), "pauseAt", text(root, "beforeControllerRead"), "pauseScope", key,
			"avoidOngoingRead", boolean(root, true),
			"trigger", trigger("trigger1", definition("trigger1", cause, before))),
		fields(root, "actionType", text(root, "resumeController"), "pauseAt", text(root, "beforeControllerRead"), "pauseScope", key,
			"trigger", trigger("trigger2|trigger3", definition("trigger2", next[0], after), definition("trigger3", next[1], after))),
	}
}

// intermediate: the controller is killed right after a write.
func (c *converter) intermediate(root *yaml.Node) []*yaml.Node {
	key := c.objectKey(root, "se-")
	write := c.event(root, "se-", "se-etype-current", key)
	label := c.label(root)
	point := observed("afterControllerWrite", label)
	if r := get(root, "se-reconciler-type"); r != nil {
		add(point, r, "reconciler", text(r, strings.TrimSuffix(r.Value, ".Reconcile")))
	}
	return []*yaml.Node{
		fields(root, "actionType", text(root, "restartController"), "actionTarget", label,
			"trigger", trigger("trigger1", definition("trigger1", write, point))),
	}
}

// need returns a field that the mode cannot do without.
func (c *converter) need(root *yaml.Node, name string) *yaml.Node {
	if n := get(root, name); n != nil && n.Value != "" {
		return n
	}
	c.problemf(root, "a plan of mode %s has %s", value(get(root, "mode")), name)
	return text(root, "")
}

// label is the controller's name.
func (c *converter) label(root *yaml.Node) *yaml.Node {
	for _, name := range []string{"operator-pod-label", "operator-pod"} {
		if n := get(root, name); n != nil {
			return n
		}
	}
	return c.need(root, "project")
}

func (c *converter) objectKey(root *yaml.Node, prefix string) *yaml.Node {
	typ, name := c.need(root, prefix+"rtype"), c.need(root, prefix+"name")
	return c.key(text(typ, typ.Value+"/"+value(get(root, prefix+"namespace"))+"/"+name.Value))
}

func (c *converter) etype(n *yaml.Node) *yaml.Node {
	t, ok := etypes[n.Value]
	if !ok && n.Value != "" {
		c.problemf(n, "unknown event type %q (known: %s)", n.Value, strings.Join(sorted(etypes), ", "))
	}
	return text(n, t)
}

// event makes the condition on a cause event or a side effect. Of a creation and a deletion Sieve does not compare states,
// whatever the plan has of them.
func (c *converter) event(root *yaml.Node, prefix, etypeField string, key *yaml.Node) *yaml.Node {
	typ := c.etype(c.need(root, etypeField))
	out := fields(key, "triggerType", typ, "resourceKey", key)
	for _, s := range []struct{ field, name string }{
		{prefix + "diff-previous", "prevState"}, {prefix + "diff-current", "curState"},
	} {
		n := get(root, s.field)
		if n == nil || emptyState(n) {
			continue
		}
		if state := c.state(n); state != nil && typ.Value == "onObjectUpdate" {
			add(out, n, s.name, state)
		}
	}
	if n := get(root, prefix+"counter"); n != nil {
		if count, err := strconv.Atoi(n.Value); err != nil || count < 1 {
			c.problemf(n, "%scounter is a number from 1, not %q", prefix, n.Value)
		} else {
			repeat := text(n, strconv.Itoa(count))
			repeat.Tag = "!!int"
			add(out, n, "repeat", repeat)
		}
	}
	return out
}

func fields(at *yaml.Node, pairs ...any) *yaml.Node {
	m := newMapping(at)
	for i := 0; i+1 < len(pairs); i += 2 {
		value := pairs[i+1].(*yaml.Node)
		add(m, value, pairs[i].(string), value)
	}
	return m
}

func sequence(at *yaml.Node, items ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: at.Line, Column: at.Column, Content: items}
}

func boolean(at *yaml.Node, v bool) *yaml.Node {
	n := text(at, strconv.FormatBool(v))
	n.Tag = "!!bool"
	return n
}

func observed(timing string, by *yaml.Node) *yaml.Node {
	at := by
	if at == nil {
		at = &yaml.Node{Line: 1, Column: 1}
	}
	m := fields(at, "timing", text(at, timing))
	if by != nil {
		add(m, by, "observeBy", by)
	}
	return m
}

func definition(name string, condition, point *yaml.Node) *yaml.Node {
	m := fields(condition, "triggerName", text(condition, name), "condition", condition)
	if point != nil {
		add(m, point, "observationPoint", point)
	}
	return m
}

func trigger(expression string, definitions ...*yaml.Node) *yaml.Node {
	at := definitions[0]
	return fields(at, "definitions", sequence(at, definitions...), "expression", text(at, expression))
}
