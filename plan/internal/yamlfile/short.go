package yamlfile

import (
	"slices"

	"gopkg.in/yaml.v3"
)

// LongForm returns a function that returns a mapping with the node as its only field if the node has one of the kinds,
// otherwise nil.
func LongForm(field string, kinds ...yaml.Kind) func(*File, *yaml.Node) *yaml.Node {
	return func(_ *File, n *yaml.Node) *yaml.Node {
		if !slices.Contains(kinds, Deref(n).Kind) {
			return nil
		}
		key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: field, Line: n.Line, Column: n.Column}
		content := []*yaml.Node{key, n}
		return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line, Column: n.Column, Content: content}
	}
}

// FindText returns the first scalar below n that has the value, or n.
func FindText(n *yaml.Node, value string) *yaml.Node {
	r := Deref(n)
	for i, c := range r.Content {
		if r.Kind == yaml.MappingNode && i%2 == 0 {
			continue
		}
		if c.Kind == yaml.ScalarNode && c.Value == value {
			return c
		}
		if found := FindText(c, value); found != c {
			return found
		}
	}
	return n
}
