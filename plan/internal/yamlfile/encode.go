package yamlfile

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

// Marshal writes a struct as a mapping: fields in a fixed order, no defaults.
func (format *Format) Marshal(v reflect.Value) ([]byte, error) {
	root, err := format.encode(v)
	if err != nil {
		return nil, err
	}
	return Text(root)
}

// Text writes a node, with its comments and in its style.
func Text(n *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(n); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}

// Encode writes a value as a node.
func (format *Format) Encode(v any) (*yaml.Node, error) { return format.encode(reflect.ValueOf(v)) }

// encode writes what File.decode and File.Value read.
func (format *Format) encode(v reflect.Value) (*yaml.Node, error) {
	if write := format.Types[v.Type()].Write; write != nil {
		return write(v)
	} else if v.Type() == durationType {
		return plainNode("!!str", FormatDuration(time.Duration(v.Int()))), nil
	}
	n := &yaml.Node{}
	add := func(v reflect.Value) error {
		item, err := format.encode(v)
		n.Content = append(n.Content, item)
		return err
	}
	var err error
	switch v.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			return plainNode("!!null", "null"), nil
		}
		return format.encode(v.Elem())
	case reflect.Pointer:
		return format.encode(v.Elem()) // nil is not written
	case reflect.Struct:
		n.Kind = yaml.MappingNode
		for _, part := range format.parts(v) {
			sh := format.ShapeOf(part.Type())
			for i := range sh.Fields {
				f := &sh.Fields[i]
				field := part.FieldByIndex(f.Index)
				if !format.isWritten(part, f, field) {
					continue
				}
				item, err := format.encodeField(f, field)
				if err != nil {
					return nil, err
				}
				if _, same := Entry(n, f.Name); same != nil {
					// Two Go fields have the entries of one mapping.
					same.Content = append(same.Content, item.Content...)
				} else {
					n.Content = append(n.Content, TextNode(f.Name), item)
				}
			}
		}
		return n, nil
	case reflect.Map:
		if v.Type().Key().Kind() != reflect.String {
			return nil, fmt.Errorf("a value of Go type %s has no YAML form", v.Type())
		}
		n.Kind = yaml.MappingNode
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for i := 0; i < len(keys) && err == nil; i++ {
			n.Content = append(n.Content, TextNode(keys[i].String()))
			err = add(v.MapIndex(keys[i]))
		}
	case reflect.Slice:
		n.Kind = yaml.SequenceNode
		for i := 0; i < v.Len() && err == nil; i++ {
			err = add(v.Index(i))
		}
	case reflect.String:
		return TextNode(v.String()), nil
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

func (format *Format) encodeField(f *Field, v reflect.Value) (*yaml.Node, error) {
	if write := format.As[f.As].Write; write != nil {
		return write(v)
	}
	return format.encode(v)
}

// isWritten reports whether a field is written: it is neither empty nor its default, or Writes says so.
func (format *Format) isWritten(owner reflect.Value, f *Field, v reflect.Value) bool {
	if format.Writes != nil {
		if written, decided := format.Writes(owner.Interface(), f.Name); decided {
			return written
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		sh := format.ShapeOf(v.Type())
		_, special := format.Types[v.Type()]
		return special && !v.IsZero() || slices.ContainsFunc(sh.Fields, func(f Field) bool {
			return format.isWritten(v, &f, v.FieldByIndex(f.Index))
		})
	case reflect.Slice, reflect.Map:
		return v.Len() > 0
	}
	if v.Type() == durationType && f.Default != "" {
		fallback, err := time.ParseDuration(f.Default)
		return v.Int() != 0 && (err != nil || v.Int() != int64(fallback))
	}
	return !v.IsZero() && (f.Default == "" || fmt.Sprint(reflect.Indirect(v)) != f.Default)
}

func plainNode(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// yaml11 lists words that are text here but booleans to YAML 1.1 parsers.
var yaml11 = map[string]bool{"y": true, "n": true, "yes": true, "no": true, "on": true, "off": true}

// TextNode returns a string in a style that round-trips.
func TextNode(s string) *yaml.Node {
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
