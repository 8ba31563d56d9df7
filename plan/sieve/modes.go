package sieve

import (
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// The waits of Sieve's coordinator in the modes. They are fixed in its code; plans of its later format have the same
// numbers.
const (
	staleWait   = "10s" // between the side effect and the reconnection
	staleResume = "20s" // between the reconnection and the end of the pause
)

// modeFields lists the fields of the mode format. Those that are false are ignored: they say how Sieve runs or encodes,
// or the kind of the previous event.
var modeFields = map[string]bool{
	"project": true, "stage": true, "mode": true, "straggler": true, "front-runner": true, "operator-pod-label": true,
	"timing":      true,
	"description": true, "operator-pod": true, "deployment-name": false, "command": false,
	"ce-name": true, "ce-namespace": true, "ce-rtype": true, "ce-etype-current": true, "ce-diff-previous": true,
	"ce-diff-current": true,
	"ce-counter":      true, "ce-etype-previous": false, "ce-is-cr": false,
	"se-name": true, "se-namespace": true, "se-rtype": true, "se-etype": true, "se-etype-current": true,
	"se-diff-previous": true,
	"se-diff-current":  true, "se-counter": true, "se-reconciler-type": true, "se-etype-previous": false,
}

// etypes lists the words for events of an object, as the API server, the informer and the client name them.
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
			c.problemf(key, "duplicate field %q; first at line %d", key.Value, line)
		} else if value.Kind != yaml.ScalarNode {
			c.problemf(value, "%s must be text", key.Value)
		}
		seen[key.Value] = key.Line
	})
	if len(c.problems) > 0 {
		return nil
	}
	if stage := get(root, "stage"); stage != nil && stage.Value != "test" {
		c.problemf(stage, "stage %q: only plans of the stage test can be converted", stage.Value)
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
	out := c.newMapping(root)
	if d := get(root, "description"); d != nil {
		c.put(out, "description", d)
	}
	c.put(out, "actions", c.newSequence(mode, actions...))
	return out
}

// stale: while one API server lags behind at the cause event, the controller is moved to it.
func (c *converter) stale(root *yaml.Node) []*yaml.Node {
	straggler := c.apiServer(c.need(root, "straggler"))
	frontRunner := c.text(root, "apiserver-1")
	if n := get(root, "front-runner"); n != nil {
		frontRunner = c.apiServer(n)
	}
	timing := get(root, "timing")
	if timing == nil {
		timing = c.text(root, "after")
	}
	if timing.Value != "before" && timing.Value != "after" {
		c.problemf(timing, "unknown timing %q (known: before, after)", timing.Value)
	}
	key := c.objectKey(root, "ce-")
	cause := c.event(root, "ce-", "ce-etype-current", key)
	effectKey := c.objectKey(root, "se-")
	effect := c.newMapping(effectKey)
	c.put(effect, "triggerType", c.etype(c.need(root, "se-etype")))
	c.put(effect, "resourceKey", effectKey)
	timeout := c.newMapping(root)
	c.put(timeout, "triggerType", c.text(root, "onTimeout"))
	c.put(timeout, "timeout", c.text(root, staleResume))
	return []*yaml.Node{
		c.newFields(root, "actionType", c.text(root, "pauseAPIServer"), "actionTarget", straggler, "pauseScope", key,
			"trigger", c.newTrigger("trigger1",
				c.newDefinition("trigger1", cause, c.newObservationPoint(timing.Value+"APIServerRecv", straggler)))),
		c.newFields(root, "actionType", c.text(root, "reconnectController"), "actionTarget", c.label(root),
			"reconnectAPIServer", straggler,
			"async", c.newBoolean(root, true), "waitBefore", c.text(root, staleWait),
			"trigger", c.newTrigger("trigger2",
				c.newDefinition("trigger2", effect, c.newObservationPoint("afterAPIServerRecv", frontRunner)))),
		c.newFields(root, "actionType", c.text(root, "resumeAPIServer"), "actionTarget", straggler, "pauseScope", key,
			"trigger", c.newTrigger("trigger3", c.newDefinition("trigger3", timeout, nil))),
	}
}

// unobserved: from the cause event until the next event of the object, the controller does not read it.
func (c *converter) unobserved(root *yaml.Node) []*yaml.Node {
	key := c.objectKey(root, "ce-")
	cause := c.event(root, "ce-", "ce-etype-current", key)
	event := func(typ string) *yaml.Node {
		return c.newFields(key, "triggerType", c.text(key, typ), "resourceKey", key)
	}
	var next [2]*yaml.Node
	switch etypes[value(get(root, "ce-etype-current"))] {
	case "onObjectCreation":
		next = [2]*yaml.Node{event("onObjectUpdate"), event("onObjectDeletion")}
	case "onObjectDeletion":
		next = [2]*yaml.Node{event("onObjectCreation"), event("onObjectUpdate")}
	default:
		modified := event("onAnyFieldModified")
		if s := get(cause, "curState"); s != nil {
			c.put(modified, "prevState", s)
		} else {
			modified = event("onObjectUpdate")
		}
		next = [2]*yaml.Node{modified, event("onObjectDeletion")}
	}
	// Neither format of Sieve's plans names the controller in this mode; it is the suite's only one.
	before, after := c.newObservationPoint("beforeControllerRecv", nil),
		c.newObservationPoint("afterControllerRecv", nil)
	return []*yaml.Node{
		c.newFields(root, "actionType", c.text(root, "pauseController"), "pauseAt",
			c.text(root, "beforeControllerRead"), "pauseScope", key,
			"avoidOngoingRead", c.newBoolean(root, true),
			"trigger", c.newTrigger("trigger1", c.newDefinition("trigger1", cause, before))),
		c.newFields(root, "actionType", c.text(root, "resumeController"), "pauseAt",
			c.text(root, "beforeControllerRead"), "pauseScope", key,
			"trigger", c.newTrigger("trigger2|trigger3", c.newDefinition("trigger2", next[0], after),
				c.newDefinition("trigger3", next[1], after))),
	}
}

// intermediate: the controller is killed right after a write.
func (c *converter) intermediate(root *yaml.Node) []*yaml.Node {
	key := c.objectKey(root, "se-")
	write := c.event(root, "se-", "se-etype-current", key)
	label := c.label(root)
	point := c.newObservationPoint("afterControllerWrite", label)
	if r := get(root, "se-reconciler-type"); r != nil {
		c.put(point, "reconciler", c.text(r, strings.TrimSuffix(r.Value, ".Reconcile")))
	}
	return []*yaml.Node{
		c.newFields(root, "actionType", c.text(root, "restartController"), "actionTarget", label,
			"trigger", c.newTrigger("trigger1", c.newDefinition("trigger1", write, point))),
	}
}

// need returns a field that the mode requires.
func (c *converter) need(root *yaml.Node, name string) *yaml.Node {
	if n := get(root, name); n != nil && n.Value != "" {
		return n
	}
	c.problemf(root, "a plan of mode %s has %s", value(get(root, "mode")), name)
	return c.text(root, "")
}

// label returns the controller's name.
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
	return c.key(c.text(typ, typ.Value+"/"+value(get(root, prefix+"namespace"))+"/"+name.Value))
}

func (c *converter) etype(n *yaml.Node) *yaml.Node {
	t, ok := etypes[n.Value]
	if !ok && n.Value != "" {
		c.problemf(n, "unknown event type %q (known: %s)", n.Value, strings.Join(sorted(etypes), ", "))
	}
	return c.text(n, t)
}

// event makes the condition on a cause event or a side effect. For creations and deletions Sieve ignores the states in
// the plan.
func (c *converter) event(root *yaml.Node, prefix, etypeField string, key *yaml.Node) *yaml.Node {
	typ := c.etype(c.need(root, etypeField))
	out := c.newFields(key, "triggerType", typ, "resourceKey", key)
	for _, s := range []struct{ field, name string }{
		{prefix + "diff-previous", "prevState"}, {prefix + "diff-current", "curState"},
	} {
		n := get(root, s.field)
		if n == nil || emptyState(n) {
			continue
		}
		if state := c.state(n); state != nil && typ.Value == "onObjectUpdate" {
			c.put(out, s.name, state)
		}
	}
	if n := get(root, prefix+"counter"); n != nil {
		if count, err := strconv.Atoi(n.Value); err != nil || count < 1 {
			c.problemf(n, "%scounter must be a number from 1, not %q", prefix, n.Value)
		} else {
			repeat := c.text(n, strconv.Itoa(count))
			repeat.Tag = "!!int"
			c.put(out, "repeat", repeat)
		}
	}
	return out
}

func (c *converter) newFields(at *yaml.Node, pairs ...any) *yaml.Node {
	m := c.newMapping(at)
	for i := 0; i+1 < len(pairs); i += 2 {
		c.put(m, pairs[i].(string), pairs[i+1].(*yaml.Node))
	}
	return m
}

// keys holds the nodes of field names that converted mappings get. They need no position: no message is about them.
var keys = func() map[string]*yaml.Node {
	m := map[string]*yaml.Node{}
	for _, name := range []string{
		"description", "actions", "actionType", "actionTarget", "pauseAt", "pauseScope", "avoidOngoingRead",
		"reconnectAPIServer", "async",
		"waitBefore", "trigger", "definitions", "expression", "triggerName", "condition", "observationPoint",
		"triggerType", "resourceKey",
		"prevState", "curState", "repeat", "timeout", "timing", "observeBy", "reconciler",
	} {
		m[name] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}
	}
	return m
}()

// put adds a field that the file does not have in this form.
func (c *converter) put(m *yaml.Node, key string, value *yaml.Node) {
	m.Content = append(m.Content, keys[key], value)
}

func (c *converter) newSequence(at *yaml.Node, items ...*yaml.Node) *yaml.Node {
	n := c.node(yaml.SequenceNode, at, "!!seq", "")
	n.Content = items
	return n
}

func (c *converter) newBoolean(at *yaml.Node, v bool) *yaml.Node {
	n := c.text(at, strconv.FormatBool(v))
	n.Tag = "!!bool"
	return n
}

func (c *converter) newObservationPoint(timing string, by *yaml.Node) *yaml.Node {
	at := by
	if at == nil {
		at = &yaml.Node{Line: 1, Column: 1}
	}
	m := c.newFields(at, "timing", c.text(at, timing))
	if by != nil {
		c.put(m, "observeBy", by)
	}
	return m
}

func (c *converter) newDefinition(name string, condition, point *yaml.Node) *yaml.Node {
	m := c.newFields(condition, "triggerName", c.text(condition, name), "condition", condition)
	if point != nil {
		c.put(m, "observationPoint", point)
	}
	return m
}

func (c *converter) newTrigger(expression string, definitions ...*yaml.Node) *yaml.Node {
	at := definitions[0]
	return c.newFields(at, "definitions", c.newSequence(at, definitions...), "expression", c.text(at, expression))
}
