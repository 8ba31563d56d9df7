package plan

import (
	"bytes"
	"fmt"
	"reflect"
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
	q := *p
	q.APIVersion, q.Kind = APIVersion, "TestPlan"
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	root, err := encode(reflect.ValueOf(q))
	if err == nil {
		err = enc.Encode(root)
	}
	if err != nil {
		return nil, fmt.Errorf("write plan %q: %w", p.TestName, err)
	}
	return b.Bytes(), enc.Close()
}

// encode writes what source.decode reads.
func encode(v reflect.Value) (*yaml.Node, error) {
	switch value := v.Interface().(type) {
	case time.Duration:
		return plainNode("!!str", FormatDuration(value)), nil
	case ResourceKey:
		return textNode(value.String()), nil
	}
	switch v.Kind() {
	case reflect.Struct:
		m := &yaml.Node{Kind: yaml.MappingNode}
		for _, part := range parts(v) {
			for _, f := range shapeOf(part.Type()).fields {
				field := part.FieldByIndex(f.index)
				if !isWritten(part, &f, field) {
					continue
				}
				node, err := encode(field)
				if err != nil {
					return nil, err
				}
				m.Content = append(m.Content, textNode(f.name), node)
			}
		}
		return m, nil
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Interface {
			list := &yaml.Node{Kind: yaml.SequenceNode}
			if v.Len() == 0 {
				list.Style = yaml.FlowStyle
			}
			for i := range v.Len() {
				item, err := encode(v.Index(i))
				if err != nil {
					return nil, err
				}
				list.Content = append(list.Content, item)
			}
			return list, nil
		}
	case reflect.String:
		return textNode(v.String()), nil
	}
	return valueNode(v.Interface())
}

// isWritten reports whether a field is neither empty nor has its default, or has to be there all the same.
func isWritten(owner reflect.Value, f *shapeField, v reflect.Value) bool {
	switch owner := owner.Interface().(type) {
	case Plan:
		if f.name == "apiVersion" || f.name == "kind" || f.name == "actions" {
			return true
		}
	case Definition:
		if f.name == "condition" {
			return true
		}
	case Condition:
		if f.name == "timeout" {
			return owner.Type == OnTimeout // also 0s, which is at once: without a timeout it is a mistake
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, f := range shapeOf(v.Type()).fields {
			if isWritten(v, &f, v.FieldByIndex(f.index)) {
				return true
			}
		}
		return v.Type() == keyType && !v.IsZero()
	case reflect.Slice:
		return v.Len() > 0
	}
	return !v.IsZero() && (f.fallback == "" || fmt.Sprint(v) != f.fallback)
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

// valueNode writes what source.value reads.
func valueNode(v any) (*yaml.Node, error) {
	switch v := v.(type) {
	case nil:
		return plainNode("!!null", "null"), nil
	case string:
		return textNode(v), nil
	case bool:
		return plainNode("!!bool", strconv.FormatBool(v)), nil
	case int, int32, int64:
		return plainNode("!!int", fmt.Sprint(v)), nil
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			return plainNode("!!int", s), nil
		}
		return plainNode("!!float", s), nil
	case map[string]any:
		m := &yaml.Node{Kind: yaml.MappingNode}
		if len(v) == 0 {
			m.Style = yaml.FlowStyle
		}
		for _, k := range sortedKeys(v) {
			value, err := valueNode(v[k])
			if err != nil {
				return nil, err
			}
			m.Content = append(m.Content, textNode(k), value)
		}
		return m, nil
	case []any:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		if len(v) == 0 {
			list.Style = yaml.FlowStyle
		}
		for _, item := range v {
			node, err := valueNode(item)
			if err != nil {
				return nil, err
			}
			list.Content = append(list.Content, node)
		}
		return list, nil
	}
	return nil, fmt.Errorf("a value of Go type %T has no YAML", v)
}
