package plan

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/expr"
	"github.com/trommel-dev/trommel/internal/cel"
)

// place is the position of a value of a plan or suite: in its file or, if it was built in Go, its path.
type place struct {
	in   *source
	up   *place // nil: the whole
	step string // from up to this place
	key  *yaml.Node
	node *yaml.Node // nil: the file has no value here
}

// whole returns the place of the whole document.
func (s *source) whole() *place { return &place{in: s, node: s.root} }

// field returns the place of a field, or of the entry with that name in a mapping of names.
func (p *place) field(name string) *place {
	key, value := entry(p.node, name)
	return &place{in: p.in, up: p, step: name, key: key, node: value}
}

// item returns the place of a list's item.
func (p *place) item(i int) *place {
	it := &place{in: p.in, up: p, step: fmt.Sprintf("[%d]", i)}
	if n := deref(p.node); n != nil && n.Kind == yaml.SequenceNode && i < len(n.Content) {
		it.node = n.Content[i]
	}
	return it
}

// name returns the place of a field's name.
func (p *place) name() *place { return &place{in: p.in, up: p.up, step: p.step, node: p.key} }

// given reports whether the file has a value here.
func (p *place) given() bool { return p.node != nil }

// failed reports whether the file has a value here that could not be read.
func (p *place) failed() bool { return p.node != nil && p.in.failed[deref(p.node)] }

// nearest returns the node here, or else the innermost one around it.
func (p *place) nearest() *yaml.Node {
	for p.node == nil && p.up != nil {
		p = p.up
	}
	return p.node
}

// path returns the path of this place, as it is written in Go.
func (p *place) path() string {
	if p.up == nil {
		return ""
	}
	return strings.TrimPrefix(p.up.path()+map[bool]string{true: "", false: "."}[p.step[0] == '[']+p.step, ".")
}

func (p *place) errorf(format string, args ...any) {
	if p.in.root != nil {
		p.in.report(p.nearest(), format, args...)
		return
	}
	p.in.errs = append(p.in.errs, &Error{File: p.in.file, Path: p.path(), Message: fmt.Sprintf(format, args...)})
}

// missing reports a required field that is missing, unless it has an unreadable value.
func (p *place) missing(format string, args ...any) {
	if !p.given() {
		p.errorf(format, args...)
	}
}

// textError reports a mistake at a byte offset of a text.
func (p *place) textError(text string, offset int, message string) {
	n := p.nearest()
	if n == nil {
		p.errorf("at %d of %q: %s", offset, shorten(text), message)
		return
	}
	e := &Error{File: p.in.file, Line: n.Line, Col: n.Column, Message: message}
	if r := deref(n); r.Kind == yaml.ScalarNode && r.Value == text {
		e.Line, e.Col = scalarPosition(p.in.text, r, offset)
	}
	p.in.errs = append(p.in.errs, e)
}

// cel reports the mistakes in a CEL expression; the empty text has none.
func (p *place) cel(text string, scope cel.Scope) {
	var bad *cel.SyntaxError
	if text != "" && errors.As(scope.Check(text), &bad) {
		p.textError(text, bad.Offset, p.step+": CEL: "+bad.Message)
	}
}

// expression parses a trigger expression and reports its mistakes.
func (p *place) expression(text string) *expr.Expr {
	e, err := expr.Parse(text)
	var bad *expr.Error
	if errors.As(err, &bad) {
		p.textError(text, bad.Offset, "expression: "+bad.Message)
		return nil
	}
	return e
}

// oneOf returns the fields among them that are given.
func (p *place) oneOf(names ...string) []*place {
	var given []*place
	for _, name := range names {
		if f := p.field(name); f.given() {
			given = append(given, f)
		}
	}
	return given
}

// each visits the fields of a struct and of all structs within it, with the places of the structs.
func each(v reflect.Value, at *place, visit func(owner reflect.Value, at *place, f *shapeField, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			each(v.Elem(), at, visit)
		}
	case reflect.Struct:
		for _, part := range parts(v) {
			sh := shapeOf(part.Type())
			for i := range sh.fields {
				f := &sh.fields[i]
				field := part.FieldByIndex(f.index)
				visit(part, at, f, field)
				switch field.Kind() {
				case reflect.Pointer, reflect.Struct, reflect.Slice, reflect.Map, reflect.Interface:
					if field.Kind() == reflect.Struct || !field.IsNil() {
						each(field, at.field(f.name), visit)
					}
				}
			}
		}
	case reflect.Slice:
		if hasFields(v.Type().Elem()) {
			for i := range v.Len() {
				each(v.Index(i), at.item(i), visit)
			}
		}
	case reflect.Map:
		if hasFields(v.Type().Elem()) {
			for _, name := range v.MapKeys() {
				value := reflect.New(v.Type().Elem()).Elem()
				value.Set(v.MapIndex(name))
				each(value, at.field(name.String()), visit)
				v.SetMapIndex(name, value)
			}
		}
	}
}

func hasFields(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && len(shapeOf(t).fields) > 0
}
