package plan

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Marshal writes a plan in its canonical form: this package's own format, fields in a fixed order, no defaults. Parsing
// it gives an equal plan. Plans with the same meaning but for names and texts have the same form.
func Marshal(p *Plan) ([]byte, error) {
	q := *p
	q.APIVersion, q.Kind = APIVersion, "TestPlan"
	text, err := marshal(reflect.ValueOf(q))
	if err != nil {
		return nil, fmt.Errorf("write plan %q: %w", p.TestName, err)
	}
	return text, nil
}

// MarshalSuite writes a suite without its defaults. Parsing it gives an equal suite, complete and checked: this is how
// a suite that was built in Go becomes one that plans can run with.
func MarshalSuite(s *Suite) ([]byte, error) {
	q := *s
	q.APIVersion, q.Kind = APIVersion, "Suite"
	text, err := marshal(reflect.ValueOf(q))
	if err != nil {
		return nil, fmt.Errorf("write suite: %w", err)
	}
	return text, nil
}

func marshal(v reflect.Value) ([]byte, error) {
	root, err := encode(v)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}

// encode writes what source.decode and source.value read.
func encode(v reflect.Value) (*yaml.Node, error) {
	switch v.Type() {
	case durationType:
		return plainNode("!!str", FormatDuration(time.Duration(v.Int()))), nil
	case keyType:
		return textNode(v.Interface().(ResourceKey).String()), nil
	}
	n := &yaml.Node{}
	add := func(v reflect.Value) error {
		item, err := encode(v)
		n.Content = append(n.Content, item)
		return err
	}
	var err error
	switch v.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			return plainNode("!!null", "null"), nil
		}
		return encode(v.Elem())
	case reflect.Pointer:
		return encode(v.Elem()) // nil is not written
	case reflect.Struct:
		n.Kind = yaml.MappingNode
		for _, part := range parts(v) {
			sh := shapeOf(part.Type())
			for i := range sh.fields {
				f := &sh.fields[i]
				field := part.FieldByIndex(f.index)
				switch {
				case err != nil || !isWritten(part, f, field):
				case f.as == "sources":
					err = addSources(n, f.name, field)
				default:
					n.Content = append(n.Content, textNode(f.name))
					err = add(field)
				}
			}
		}
		return n, err
	case reflect.Map:
		if v.Type().Key().Kind() != reflect.String {
			return nil, fmt.Errorf("a value of Go type %s has no YAML form", v.Type())
		}
		n.Kind = yaml.MappingNode
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for i := 0; i < len(keys) && err == nil; i++ {
			n.Content = append(n.Content, textNode(keys[i].String()))
			err = add(v.MapIndex(keys[i]))
		}
	case reflect.Slice:
		n.Kind = yaml.SequenceNode
		for i := 0; i < v.Len() && err == nil; i++ {
			err = add(v.Index(i))
		}
	case reflect.String:
		return textNode(v.String()), nil
	case reflect.Bool:
		return plainNode("!!bool", strconv.FormatBool(v.Bool())), nil
	case reflect.Int, reflect.Int32, reflect.Int64:
		return plainNode("!!int", strconv.FormatInt(v.Int(), 10)), nil
	case reflect.Float64:
		s := strconv.FormatFloat(v.Float(), 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			return plainNode("!!int", s), nil
		}
		return plainNode("!!float", s), nil
	default:
		return nil, fmt.Errorf("a value of Go type %s has no YAML form", v.Type())
	}
	if len(n.Content) == 0 {
		n.Style = yaml.FlowStyle
	}
	return n, err
}

// addSources adds the variables of env that have a source to a struct's mapping, to those that are text.
func addSources(n *yaml.Node, name string, sources reflect.Value) error {
	variables, err := encode(sources)
	if err != nil {
		return err
	}
	for i := 1; i < len(variables.Content); i += 2 {
		variables.Content[i] = &yaml.Node{
			Kind: yaml.MappingNode, Content: []*yaml.Node{textNode("valueFrom"), variables.Content[i]},
		}
	}
	if _, text := entry(n, name); text != nil {
		text.Content = append(text.Content, variables.Content...)
		return nil
	}
	n.Content = append(n.Content, textNode(name), variables)
	return nil
}

// isWritten reports whether a field is written: it is neither empty nor its default, or it is required.
func isWritten(owner reflect.Value, f *shapeField, v reflect.Value) bool {
	switch owner := owner.Interface().(type) {
	case Plan:
		if f.name == "apiVersion" || f.name == "kind" || f.name == "actions" {
			return true
		}
	case Suite:
		if f.name == "apiVersion" || f.name == "kind" {
			return true
		}
	case Definition:
		if f.name == "condition" {
			return true
		}
	case Condition:
		if f.name == "timeout" {
			return owner.Type == OnTimeout // 0s is valid and means at once, but the field is required
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		sh := shapeOf(v.Type())
		return v.Type() == keyType && !v.IsZero() || slices.ContainsFunc(sh.fields, func(f shapeField) bool {
			return isWritten(v, &f, v.FieldByIndex(f.index))
		})
	case reflect.Slice, reflect.Map:
		return v.Len() > 0
	}
	if v.Type() == durationType && f.fallback != "" {
		fallback, err := time.ParseDuration(f.fallback)
		return v.Int() != 0 && (err != nil || v.Int() != int64(fallback))
	}
	return !v.IsZero() && (f.fallback == "" || fmt.Sprint(reflect.Indirect(v)) != f.fallback)
}

func plainNode(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// yaml11 lists words that are text here but booleans to YAML 1.1 parsers.
var yaml11 = map[string]bool{"y": true, "n": true, "yes": true, "no": true, "on": true, "off": true}

// textNode returns a string in a style that round-trips.
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
