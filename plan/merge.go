package plan

import "gopkg.in/yaml.v3"

const mergeTag = "!!merge"

// merge puts the fields that << stands for in its place, in root and below. A mapping's own fields come before merged
// ones, and of several merged mappings the first. Merged fields are the very nodes of the other mapping, so what is
// wrong with one is reported where it is written. Aliases must have been found to be finite.
func (d *decoder) merge(root *yaml.Node) {
	done := map[*yaml.Node]bool{}
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if n = deref(n); done[n] {
			return
		}
		done[n] = true
		for _, c := range n.Content {
			walk(c)
		}
		if n.Kind == yaml.MappingNode {
			d.mergeInto(n)
		}
	}
	walk(root)
}

func (d *decoder) mergeInto(n *yaml.Node) {
	at := -1
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag == mergeTag {
			at = i
			break
		}
	}
	if at < 0 {
		return
	}
	content := make([]*yaml.Node, 0, len(n.Content))
	has := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch key := n.Content[i]; {
		case key.Tag != mergeTag:
			content = append(content, key, n.Content[i+1])
			has[deref(key).Value] = true
		case i != at:
			d.errorf(key, "<< stands twice; first at line %d; to merge several mappings give it a list of them", n.Content[at].Line)
		}
	}
	add := func(from *yaml.Node) {
		r := deref(from)
		if r.Kind != yaml.MappingNode {
			d.errorf(from, "<< merges a mapping or a list of mappings, not %s", kindOf(r))
			return
		}
		for i := 0; i+1 < len(r.Content); i += 2 {
			if key := deref(r.Content[i]); !has[key.Value] {
				has[key.Value] = true
				content = append(content, r.Content[i], r.Content[i+1])
			}
		}
	}
	if from := n.Content[at+1]; deref(from).Kind == yaml.SequenceNode {
		for _, item := range deref(from).Content {
			add(item)
		}
	} else {
		add(from)
	}
	n.Content = content
}
