package originals

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/internal/wording"
)

// field converts the value of a field, and adds the result to out.
type field func(c *converter, at string, in *yaml.Node, out *mapping)

// fields are the fields of an object.
type fields map[string]field

// mapping is an object that is being written.
type mapping struct{ node *yaml.Node }

func newMapping() *mapping { return &mapping{&yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}} }

// set adds a field, or replaces it.
func (m *mapping) set(name string, value *yaml.Node) {
	for i := 0; i < len(m.node.Content); i += 2 {
		if m.node.Content[i].Value == name {
			m.node.Content[i+1] = value
			return
		}
	}
	m.node.Content = append(m.node.Content, text(name), value)
}

func (m *mapping) empty() bool { return len(m.node.Content) == 0 }

func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

func number(i int64) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(i, 10)}
}

// convert converts the fields of an object in their order. Fields that are null are left out.
func (f fields) convert(c *converter, at string, in *yaml.Node, out *mapping) {
	if in = deref(in); in.Kind != yaml.MappingNode {
		c.errorf(in, "%s is not an object", at)
		return
	}
	for i := 0; i+1 < len(in.Content); i += 2 {
		key, v := in.Content[i], deref(in.Content[i+1])
		convert, known := f[key.Value]
		switch name := strings.TrimPrefix(at+"."+key.Value, "."); {
		case !known:
			c.errorf(key, "unknown field %s%s", name, wording.Suggest(key.Value, slices.Sorted(maps.Keys(f))))
		case v.Tag != "!!null":
			convert(c, name, v, out)
		}
	}
}

// as has the same field under another name.
func as(name string) field {
	return func(_ *converter, _ string, in *yaml.Node, out *mapping) { out.set(name, plain(in)) }
}

// plain is a value without comments and anchors.
func plain(in *yaml.Node) *yaml.Node {
	in = deref(in)
	n := &yaml.Node{Kind: in.Kind, Tag: in.Tag, Value: in.Value, Style: in.Style}
	for _, child := range in.Content {
		n.Content = append(n.Content, plain(child))
	}
	return n
}

// given is a field with this name whose zero value means that it is not given.
func given(name string) field {
	return func(c *converter, at string, in *yaml.Node, out *mapping) {
		if !slices.Contains([]string{"", "0", "false"}, in.Value) || in.Kind != yaml.ScalarNode {
			as(name)(c, at, in, out)
		}
	}
}

// object is an object with these fields.
func object(name string, f fields) field {
	return func(c *converter, at string, in *yaml.Node, out *mapping) {
		inner := newMapping()
		f.convert(c, at, in, inner)
		out.set(name, inner.node)
	}
}

// list is a list of objects with these fields.
func list(name string, f fields) field {
	return func(c *converter, at string, in *yaml.Node, out *mapping) {
		if in.Kind != yaml.SequenceNode {
			c.errorf(in, "%s is not a list", at)
			return
		}
		l := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for i, item := range in.Content {
			inner := newMapping()
			f.convert(c, fmt.Sprintf("%s[%d]", at, i), item, inner)
			l.Content = append(l.Content, inner.node)
		}
		out.set(name, l)
	}
}

// within has the fields of an object in the object around it.
func within(f fields) field {
	return func(c *converter, at string, in *yaml.Node, out *mapping) { f.convert(c, at, in, out) }
}

// refused has no equal here.
func refused(instead string) field {
	return func(c *converter, at string, in *yaml.Node, _ *mapping) {
		c.errorf(in, "%s has no equal: %s", at, instead)
	}
}

// refusedUnless has no equal here, but for some values, which mean what is done anyway.
func refusedUnless(instead string, values ...string) field {
	return func(c *converter, at string, in *yaml.Node, out *mapping) {
		if in.Kind != yaml.ScalarNode || !slices.Contains(values, strings.ToLower(in.Value)) {
			refused(instead)(c, at, in, out)
		}
	}
}

// noted is left out.
func noted(why string) field {
	return func(c *converter, at string, in *yaml.Node, _ *mapping) { c.notef(in, "%s is left out: %s", at, why) }
}

// lower has its value in lower case; an empty one is left out.
func lower(name string) field {
	return func(_ *converter, _ string, in *yaml.Node, out *mapping) {
		if in.Value != "" {
			out.set(name, text(strings.ToLower(in.Value)))
		}
	}
}

// durations are those that the definitions allow.
var durations = regexp.MustCompile(`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`)

// duration is a time span: text, or a number of nanoseconds.
func duration(name string) field {
	return func(c *converter, at string, in *yaml.Node, out *mapping) {
		if d, ok := c.duration(at, in); ok {
			out.set(name, text(d))
		}
	}
}

func (c *converter) duration(at string, in *yaml.Node) (string, bool) {
	if in.Tag == "!!int" {
		if n, err := strconv.ParseInt(in.Value, 10, 64); err == nil && n >= 0 {
			return time.Duration(n).String(), true
		}
	}
	if durations.MatchString(in.Value) {
		return in.Value, true
	}
	c.errorf(in, "%s is not a duration such as 90s, 15m or 1h30m", at)
	return "", false
}

// integer reads a number.
func (c *converter) integer(at string, in *yaml.Node) (int64, bool) {
	n, err := strconv.ParseInt(in.Value, 10, 64)
	if err != nil || in.Kind != yaml.ScalarNode {
		c.errorf(in, "%s is not a number", at)
	}
	return n, err == nil && in.Kind == yaml.ScalarNode
}

// percent is a text such as 50%, as a number.
func percent(name, instead string) field {
	return func(c *converter, at string, in *yaml.Node, out *mapping) {
		digits, is := strings.CutSuffix(in.Value, "%")
		n, err := strconv.ParseInt(digits, 10, 64)
		if !is || err != nil || n < 0 || n > 100 {
			c.errorf(in, "%s is not a percentage such as 50%%%s", at, instead)
			return
		}
		out.set(name, number(n))
	}
}

// converted is an object of ours with the metadata of the original.
func (c *converter) converted(in *yaml.Node, apiVersion string, spec field) *yaml.Node {
	out := newMapping()
	out.set("apiVersion", text(apiVersion))
	fields{
		"apiVersion": func(*converter, string, *yaml.Node, *mapping) {},
		"kind":       as("kind"),
		"metadata":   as("metadata"),
		"spec":       spec,
		"status":     func(*converter, string, *yaml.Node, *mapping) {},
	}.convert(c, "", in, out)
	return out.node
}
