package yamlfile

import "gopkg.in/yaml.v3"

const mergeTag = "!!merge"

// merge replaces << by the fields that it merges, in root and below. A mapping's own fields override merged ones, and
// earlier merged mappings override later ones. Merged fields are the same nodes as in the other mapping, so a mistake
// is reported where it is written. The document must have been checked to be finite.
func (f *File) merge(root *yaml.Node) {
	done := map[*yaml.Node]bool{}
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if n = Deref(n); done[n] {
			return
		}
		done[n] = true
		for _, c := range n.Content {
			walk(c)
		}
		if n.Kind == yaml.MappingNode {
			f.mergeInto(n)
		}
	}
	walk(root)
}

func (f *File) mergeInto(n *yaml.Node) {
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
			has[Deref(key).Value] = true
		case i != at:
			f.Errorf(key, "duplicate <<; first at line %d; to merge several mappings give it a list of them",
				n.Content[at].Line)
		}
	}
	add := func(from *yaml.Node) {
		r := Deref(from)
		if r.Kind != yaml.MappingNode {
			f.Errorf(from, "<< merges a mapping or a list of mappings, not %s", KindOf(r))
			return
		}
		for i := 0; i+1 < len(r.Content); i += 2 {
			if key := Deref(r.Content[i]); !has[key.Value] {
				has[key.Value] = true
				content = append(content, r.Content[i], r.Content[i+1])
			}
		}
	}
	if from := n.Content[at+1]; Deref(from).Kind == yaml.SequenceNode {
		for _, item := range Deref(from).Content {
			add(item)
		}
	} else {
		add(from)
	}
	n.Content = content
}
