// Package originals converts objects of projects that Trommel follows into its own: CycleNodeRequests and NodeGroups of
// Cyclops, and Disruptions, DisruptionCrons and DisruptionRollouts of chaos-controller.
//
// What has no equal here is a mistake with its position, which says what to write instead. What is left out without
// changing what the object does is a note.
package originals

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"gopkg.in/yaml.v3"
)

// API versions of the originals.
const (
	cyclops         = "atlassian.com/v1"
	chaosController = "chaos.datadoghq.com/v1beta1"
)

// converters are the kinds that are converted.
var converters = map[string]map[string]func(*converter, *yaml.Node) *yaml.Node{
	cyclops: {
		"CycleNodeRequest": (*converter).cycleNodeRequest,
		"NodeGroup":        (*converter).nodeGroup,
	},
	chaosController: {
		"Disruption":        (*converter).disruption,
		"DisruptionCron":    (*converter).disruptionCron,
		"DisruptionRollout": (*converter).disruptionRollout,
	},
}

// Detect reports whether a file has an object that Convert converts.
func Detect(data []byte) bool {
	docs, _ := documents(data)
	return slices.ContainsFunc(docs, func(d *yaml.Node) bool {
		return converters[value(d, "apiVersion")][value(d, "kind")] != nil
	})
}

// Convert converts the objects of a file. Other objects in it stay as they are. The errors and notes begin with the
// file's name and a position in it.
func Convert(file string, data []byte) (text []byte, notes []string, err error) {
	docs, err := documents(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	c := &converter{file: file}
	var out bytes.Buffer
	for i, d := range docs {
		if convert := converters[value(d, "apiVersion")][value(d, "kind")]; convert != nil {
			d = convert(c, d)
		} else if v := value(d, "apiVersion"); converters[v] != nil {
			c.errorf(d, "%s %s is not converted", v, value(d, "kind"))
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		e := yaml.NewEncoder(&out)
		e.SetIndent(2)
		if err := e.Encode(d); err != nil {
			c.errorf(d, "%v", err)
		}
	}
	return out.Bytes(), c.notes, errors.Join(c.errs...)
}

// documents reads the YAML documents of a file that are mappings.
func documents(data []byte) (docs []*yaml.Node, err error) {
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var n yaml.Node
		switch err := d.Decode(&n); {
		case errors.Is(err, io.EOF):
			return docs, nil
		case err != nil:
			return docs, err
		}
		if len(n.Content) == 1 && n.Content[0].Kind == yaml.MappingNode {
			docs = append(docs, n.Content[0])
		}
	}
}

// value is the text of a field; empty if there is none.
func value(n *yaml.Node, field string) string {
	if f := entry(n, field); f != nil && f.Kind == yaml.ScalarNode {
		return f.Value
	}
	return ""
}

// entry is the value of a field; nil if there is none.
func entry(n *yaml.Node, field string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == field {
			return deref(n.Content[i+1])
		}
	}
	return nil
}

func deref(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// converter collects what is wrong with the objects of a file, and what is left out of them.
type converter struct {
	file  string
	errs  []error
	notes []string
}

func (c *converter) at(n *yaml.Node, format string, args []any) string {
	return fmt.Sprintf("%s:%d:%d: ", c.file, n.Line, n.Column) + fmt.Sprintf(format, args...)
}

func (c *converter) errorf(n *yaml.Node, format string, args ...any) {
	c.errs = append(c.errs, errors.New(c.at(n, format, args)))
}

func (c *converter) notef(n *yaml.Node, format string, args ...any) {
	c.notes = append(c.notes, c.at(n, format, args))
}
