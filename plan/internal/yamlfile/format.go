package yamlfile

import (
	"reflect"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"
)

// Format says what the tags of Go types do not say about their YAML.
type Format struct {
	// Words lists the words of types that have a fixed set. SetWords changes it.
	Words map[reflect.Type][]string
	// Hints says, by the name of a mapping in messages, what to write instead of a field that it does not have.
	Hints map[string]map[string]string
	// Types says how values of a Go type are read and written, As the same for fields with the tag as.
	Types map[reflect.Type]Value
	As    map[string]Value
	// Short says which Go types also have a form that is shorter than a mapping. The function returns the mapping that
	// the node is short for, or nil if the node is read as it is.
	Short map[reflect.Type]func(f *File, n *yaml.Node) *yaml.Node
	// Prepare is called before a mapping is read into a struct of that Go type: it may allocate the struct of the field
	// with the tag part.
	Prepare map[reflect.Type]func(v any, n *yaml.Node)
	// Has reports whether a struct has a field; one that it does not have gets no default.
	Has func(owner any, field string) bool
	// Writes says whether a field is written; decided is false if only its value and its default decide that.
	Writes func(owner any, field string) (written, decided bool)

	shapes sync.Map // reflect.Type → *Shape
}

// Value says how a value is read and written.
type Value struct {
	Read  func(f *File, n *yaml.Node, v reflect.Value, called string)
	Write func(v reflect.Value) (*yaml.Node, error) // nil: as the Go type is written
}

// SetWords replaces the words of a type.
func (format *Format) SetWords(t reflect.Type, words []string) {
	format.Words[t] = words
	format.shapes.Clear() // they hold the words
}

// Shape describes the mapping that a struct is read from.
type Shape struct {
	Fields []Field
	Names  []string // without duplicates

	part []int // the field with the tag part; nil: there is none
}

// Field is a field of a mapping. The tags of the Go field describe it:
//
//	yaml     its name; a Go field without this tag is not in the file. Two Go fields with the same name read the
//	         same value
//	part     (without yaml) the field is an interface with a pointer to a struct, or nil. The struct's fields belong
//	         to the mapping
//	also     another accepted name
//	called   what messages call the value; default: its name
//	item     what messages call an item of the list or mapping
//	default  the value if the field is left out
//	words    the allowed values; for a type in Format.Words, all of its words
//	range    the least and the greatest number
//	as       how it is read and written, see Format.As
//
// An embedded struct without a tag stands for its fields.
type Field struct {
	Name, Default, As string
	Index             []int
	Words             []string
	Range             []string // least and greatest

	also, called, item string
}

// ShapeOf returns the shape of a struct type.
func (format *Format) ShapeOf(t reflect.Type) *Shape {
	if known, ok := format.shapes.Load(t); ok {
		return known.(*Shape)
	}
	sh := &Shape{}
	for _, f := range reflect.VisibleFields(t) {
		if _, ok := f.Tag.Lookup("part"); ok {
			sh.part = f.Index
		}
		name, ok := f.Tag.Lookup("yaml")
		if !ok {
			continue
		}
		words := format.Words[f.Type]
		if w := f.Tag.Get("words"); w != "" {
			words = strings.Fields(w)
		}
		called := f.Tag.Get("called")
		if called == "" {
			called = name
		}
		if sh.Field(name) == nil {
			sh.Names = append(sh.Names, name)
		}
		sh.Fields = append(sh.Fields, Field{
			Name: name, also: f.Tag.Get("also"), called: called, item: f.Tag.Get("item"), As: f.Tag.Get("as"),
			Index: f.Index, Words: words, Range: strings.Fields(f.Tag.Get("range")), Default: f.Tag.Get("default"),
		})
	}
	format.shapes.Store(t, sh)
	return sh
}

// Field returns the first field with that name, or nil.
func (sh *Shape) Field(name string) *Field {
	for i := range sh.Fields {
		if f := &sh.Fields[i]; f.Name == name || f.also == name && name != "" {
			return f
		}
	}
	return nil
}

// parts returns the structs that a mapping is read into: the struct itself, and that of its field with the tag part.
func (format *Format) parts(v reflect.Value) []reflect.Value {
	if index := format.ShapeOf(v.Type()).part; index != nil {
		if part := v.FieldByIndex(index); !part.IsNil() {
			return []reflect.Value{v, part.Elem().Elem()}
		}
	}
	return []reflect.Value{v}
}

// names returns the names of the fields of all parts.
func (format *Format) names(parts []reflect.Value) []string {
	var all []string
	for _, part := range parts {
		all = append(all, format.ShapeOf(part.Type()).Names...)
	}
	return all
}

// find returns the field with that name, and the part that it belongs to.
func (format *Format) find(name string, parts []reflect.Value) (sh *Shape, f *Field, part reflect.Value) {
	for _, part = range parts {
		sh = format.ShapeOf(part.Type())
		if f = sh.Field(name); f != nil {
			break
		}
	}
	return sh, f, part
}
