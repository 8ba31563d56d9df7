package yamlfile

import (
	"fmt"
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/internal/wording"
)

// Place is the position of a value: in its file or, if it was built in Go, its path.
type Place struct {
	file *File
	up   *Place // nil: the whole
	step string // from up to this place
	key  *yaml.Node
	node *yaml.Node // nil: the file has no value here
}

// Whole returns the place of the whole document.
func (f *File) Whole() *Place { return &Place{file: f, node: f.Root} }

// Field returns the place of a field, or of the entry with that name in a mapping of names.
func (p *Place) Field(name string) *Place {
	key, value := Entry(p.node, name)
	return &Place{file: p.file, up: p, step: name, key: key, node: value}
}

// Item returns the place of a list's item.
func (p *Place) Item(i int) *Place {
	it := &Place{file: p.file, up: p, step: fmt.Sprintf("[%d]", i)}
	if n := Deref(p.node); n != nil && n.Kind == yaml.SequenceNode && i < len(n.Content) {
		it.node = n.Content[i]
	}
	return it
}

// Name returns the place of a field's name.
func (p *Place) Name() *Place { return &Place{file: p.file, up: p.up, step: p.step, node: p.key} }

// Names returns the names in the mapping here, in the order in which they are written.
func (p *Place) Names() []string {
	var names []string
	if n := Deref(p.node); n != nil && n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := Deref(n.Content[i]); key.Kind == yaml.ScalarNode {
				names = append(names, key.Value)
			}
		}
	}
	return names
}

// Given reports whether the file has a value here.
func (p *Place) Given() bool { return p.node != nil }

// Failed reports whether the file has a value here that could not be read.
func (p *Place) Failed() bool { return p.node != nil && p.file.failed[Deref(p.node)] }

// nearest returns the node here, or else the innermost one around it.
func (p *Place) nearest() *yaml.Node {
	for p.node == nil && p.up != nil {
		p = p.up
	}
	return p.node
}

// Line is the number of the line of this place, or of the innermost value around it that the file has; 0: there is no
// file.
func (p *Place) Line() int {
	if n := p.nearest(); n != nil {
		return n.Line
	}
	return 0
}

// path returns the path of this place, as it is written in Go.
func (p *Place) path() string {
	if p.up == nil {
		return ""
	}
	return strings.TrimPrefix(p.up.path()+map[bool]string{true: "", false: "."}[p.step[0] == '[']+p.step, ".")
}

// Errorf reports a mistake here, or at the innermost value around it that the file has.
func (p *Place) Errorf(format string, args ...any) {
	if p.file.Root != nil {
		p.file.Report(p.nearest(), format, args...)
		return
	}
	p.file.Mistakes = append(p.file.Mistakes, Mistake{Path: p.path(), Message: fmt.Sprintf(format, args...)})
}

// Missing reports a required field that is missing, unless it has an unreadable value.
func (p *Place) Missing(format string, args ...any) {
	if !p.Given() {
		p.Errorf(format, args...)
	}
}

// TextError reports a mistake at a byte offset of a text.
func (p *Place) TextError(text string, offset int, message string) {
	n := p.nearest()
	if n == nil {
		p.Errorf("at %d of %q: %s", offset, wording.Shorten(text), message)
		return
	}
	e := Mistake{Line: n.Line, Col: n.Column, Message: message}
	if r := Deref(n); r.Kind == yaml.ScalarNode && r.Value == text {
		e.Line, e.Col = scalarPosition(p.file.Text, r, offset)
	}
	p.file.Mistakes = append(p.file.Mistakes, e)
}

// OneOf returns the fields among them that are given.
func (p *Place) OneOf(names ...string) []*Place {
	var given []*Place
	for _, name := range names {
		if f := p.Field(name); f.Given() {
			given = append(given, f)
		}
	}
	return given
}

// Each visits the fields of a struct and of all structs within it, with the places of the structs.
func (format *Format) Each(
	v reflect.Value, at *Place, visit func(owner reflect.Value, at *Place, f *Field, v reflect.Value),
) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			format.Each(v.Elem(), at, visit)
		}
	case reflect.Struct:
		for _, part := range format.parts(v) {
			sh := format.ShapeOf(part.Type())
			for i := range sh.Fields {
				f := &sh.Fields[i]
				field := part.FieldByIndex(f.Index)
				visit(part, at, f, field)
				switch field.Kind() {
				case reflect.Pointer, reflect.Struct, reflect.Slice, reflect.Map, reflect.Interface:
					if field.Kind() == reflect.Struct || !field.IsNil() {
						format.Each(field, at.Field(f.Name), visit)
					}
				}
			}
		}
	case reflect.Slice:
		if format.hasFields(v.Type().Elem()) {
			for i := range v.Len() {
				format.Each(v.Index(i), at.Item(i), visit)
			}
		}
	case reflect.Map:
		if format.hasFields(v.Type().Elem()) {
			for _, name := range v.MapKeys() {
				value := reflect.New(v.Type().Elem()).Elem()
				value.Set(v.MapIndex(name))
				format.Each(value, at.Field(name.String()), visit)
				v.SetMapIndex(name, value)
			}
		}
	}
}

func (format *Format) hasFields(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && len(format.ShapeOf(t).Fields) > 0
}

// Complete sets the defaults of fields that are left out or could not be read, in v and in all structs within it. v
// must be settable.
func (format *Format) Complete(v reflect.Value, at *Place) {
	format.Each(v, at, func(owner reflect.Value, at *Place, f *Field, v reflect.Value) {
		if f.Default == "" || !v.IsZero() || format.Has != nil && !format.Has(owner.Addr().Interface(), f.Name) {
			return
		}
		if p := at.Field(f.Name); p.Given() && !p.Failed() && !p.Empty() {
			return
		}
		n := &yaml.Node{Kind: yaml.ScalarNode, Value: f.Default}
		n.Tag = n.ShortTag()
		(&File{Format: format}).decode(&n, v, f)
	})
}

// File is the file of the place; one without a root for a value that was built in Go.
func (p *Place) File() *File { return p.file }

// Step is the name of the field here, or the index of the item in brackets.
func (p *Place) Step() string { return p.step }

// Empty reports whether the file has an empty text here.
func (p *Place) Empty() bool { return IsEmpty(p.node) }
