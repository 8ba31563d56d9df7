package plan

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Marshal writes a plan in its canonical form: this package's own format, fields in a fixed order, nothing that is a
// default. Parsing it gives an equal plan. Plans with the same meaning but for names and texts have the same form.
func Marshal(p *Plan) ([]byte, error) {
	w := &writer{}
	root := newMap()
	root.text("apiVersion", APIVersion)
	root.text("kind", "TestPlan")
	root.text("testName", p.TestName)
	root.text("description", p.Description)
	root.text("suite", p.Suite)
	root.text("workload", p.Workload)
	root.text("variant", p.Variant)
	actions := &yaml.Node{Kind: yaml.SequenceNode}
	if len(p.Actions) == 0 {
		actions.Style = yaml.FlowStyle
	}
	for i := range p.Actions {
		actions.Content = append(actions.Content, w.action(&p.Actions[i]))
	}
	root.add("actions", actions)
	if w.err != nil {
		return nil, fmt.Errorf("write plan %q: %w", p.TestName, w.err)
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(root.Node); err != nil {
		return nil, fmt.Errorf("write plan %q: %w", p.TestName, err)
	}
	return b.Bytes(), enc.Close()
}

type writer struct{ err error }

type mapNode struct{ *yaml.Node }

func newMap() mapNode { return mapNode{&yaml.Node{Kind: yaml.MappingNode}} }

func (m mapNode) add(key string, value *yaml.Node) {
	m.Content = append(m.Content, textNode(key), value)
}

func (m mapNode) text(key, value string) {
	if value != "" {
		m.add(key, textNode(value))
	}
}

func (m mapNode) duration(key string, d time.Duration) {
	if d != 0 {
		m.add(key, plainNode("!!str", FormatDuration(d)))
	}
}

func (m mapNode) boolean(key string, v bool) {
	if v {
		m.add(key, plainNode("!!bool", "true"))
	}
}

func (m mapNode) key(key string, k ResourceKey) {
	if !k.IsZero() {
		m.add(key, textNode(k.String()))
	}
}

func plainNode(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// yaml11 are words that are text here but true or false to readers of YAML 1.1.
var yaml11 = map[string]bool{"y": true, "n": true, "yes": true, "no": true, "on": true, "off": true}

// textNode is a string in the style that survives being written and read.
func textNode(s string) *yaml.Node {
	n := plainNode("!!str", s)
	block := strings.Contains(s, "\n") && s[0] != ' ' && s[0] != '\n'
	for i, r := range s {
		switch {
		case r == '\n':
			if i > 0 && (s[i-1] == ' ' || s[i-1] == '\n') {
				block = false
			}
		case r == utf8.RuneError, r == '\ufeff', !unicode.IsPrint(r):
			n.Style = yaml.DoubleQuotedStyle
			return n
		}
	}
	switch {
	case s == "<<", yaml11[strings.ToLower(s)]:
		n.Style = yaml.DoubleQuotedStyle
	case block:
		n.Style = yaml.LiteralStyle
	case strings.Contains(s, "\n"):
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// FormatDuration writes a duration as plans do: 1m rather than 1m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func (w *writer) action(a *Action) *yaml.Node {
	m := newMap()
	m.text("actionType", string(a.Type))
	m.text("actionTarget", a.Target)
	m.text("pauseAt", string(a.PauseAt))
	m.text("pauseScope", a.PauseScope)
	m.boolean("avoidOngoingRead", a.AvoidOngoingRead)
	m.text("reconnectAPIServer", a.ReconnectAPIServer)
	if a.ReconnectBy != ReconnectRestart {
		m.text("reconnectBy", string(a.ReconnectBy))
	}
	m.key("resourceKey", a.ResourceKey)
	if a.Manifest != nil {
		m.add("manifest", w.value(a.Manifest))
	}
	m.text("manifestFile", a.ManifestFile)
	if a.PatchType != "merge" {
		m.text("patchType", a.PatchType)
	}
	m.text("subresource", a.Subresource)
	if a.Patch != nil {
		m.add("patch", w.value(a.Patch))
	}
	m.duration("waitBefore", a.WaitBefore)
	m.duration("waitAfter", a.WaitAfter)
	m.boolean("async", a.Async)
	if len(a.Trigger.Definitions) == 0 && a.Trigger.Expression == "" {
		return m.Node
	}
	trigger := newMap()
	definitions := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range a.Trigger.Definitions {
		definitions.Content = append(definitions.Content, w.definition(&a.Trigger.Definitions[i]))
	}
	trigger.add("definitions", definitions)
	expression := a.Trigger.Expression
	if a.Trigger.Graph != nil {
		expression = a.Trigger.Graph.Expression()
	}
	trigger.text("expression", expression)
	m.add("trigger", trigger.Node)
	return m.Node
}

func (w *writer) definition(d *Definition) *yaml.Node {
	m := newMap()
	m.text("triggerName", d.Name)
	c := newMap()
	c.text("triggerType", string(d.Condition.Type))
	c.key("resourceKey", d.Condition.ResourceKey)
	if d.Condition.PrevState != nil {
		c.add("prevState", w.value(d.Condition.PrevState))
	}
	if d.Condition.CurState != nil {
		c.add("curState", w.value(d.Condition.CurState))
	}
	c.text("where", d.Condition.Where)
	if d.Condition.Repeat > 1 {
		c.add("repeat", plainNode("!!int", strconv.Itoa(d.Condition.Repeat)))
	}
	if d.Condition.Type == OnTimeout {
		// Also 0s, which is at once: an onTimeout without a timeout is a mistake.
		c.add("timeout", plainNode("!!str", FormatDuration(d.Condition.Timeout)))
	}
	c.text("call", d.Condition.Call)
	m.add("condition", c.Node)
	if d.Observe != (ObservationPoint{}) {
		o := newMap()
		o.text("timing", string(d.Observe.Timing))
		o.text("observeBy", d.Observe.ObserveBy)
		o.text("reconciler", d.Observe.Reconciler)
		m.add("observationPoint", o.Node)
	}
	return m.Node
}

// value writes what decoder.value reads.
func (w *writer) value(v any) *yaml.Node {
	switch v := v.(type) {
	case nil:
		return plainNode("!!null", "null")
	case string:
		return textNode(v)
	case bool:
		return plainNode("!!bool", strconv.FormatBool(v))
	case int:
		return plainNode("!!int", strconv.Itoa(v))
	case int32:
		return plainNode("!!int", strconv.Itoa(int(v)))
	case int64:
		return plainNode("!!int", strconv.FormatInt(v, 10))
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			return plainNode("!!int", s)
		}
		return plainNode("!!float", s)
	case map[string]any:
		m := newMap()
		if len(v) == 0 {
			m.Style = yaml.FlowStyle
		}
		for _, k := range sortedKeys(v) {
			m.add(k, w.value(v[k]))
		}
		return m.Node
	case []any:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		if len(v) == 0 {
			list.Style = yaml.FlowStyle
		}
		for _, item := range v {
			list.Content = append(list.Content, w.value(item))
		}
		return list
	}
	w.err = fmt.Errorf("a value of Go type %T has no YAML", v)
	return plainNode("!!null", "null")
}
