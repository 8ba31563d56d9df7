package yamlfile

import (
	"slices"

	"gopkg.in/yaml.v3"
)

// Like writes a value as its author wrote a similar one: with his order, flow style, short forms and comments. The
// value and the similar one are given as Encode writes them; written is the similar one as it is in its file, and names
// says which names in the file are other ones of fields. What the two have in common is taken over as it is written.
// What is new is written as Encode does. The nodes of written are copied.
func Like(value, similar, written *yaml.Node, names map[string]string) *yaml.Node {
	all := &yaml.Node{Content: []*yaml.Node{(&style{names}).like(value, similar, written)}}
	resolve(all, map[*yaml.Node]*yaml.Node{})
	return all.Content[0]
}

type style struct{ names map[string]string }

func (s *style) like(value, similar, written *yaml.Node) *yaml.Node {
	w := Deref(written)
	switch {
	case similar == nil || w == nil:
		return value
	case equal(value, similar):
		return written // copied by resolve
	case value.Kind != similar.Kind:
		return value
	case value.Kind == yaml.MappingNode && w.Kind == yaml.MappingNode && !hasMerge(w):
		return s.mapping(value, similar, w)
	case value.Kind == yaml.SequenceNode && w.Kind == yaml.SequenceNode:
		return s.sequence(value, similar, w)
	case value.Kind == yaml.MappingNode && w.Kind == yaml.SequenceNode && len(value.Content) == 2 &&
		len(similar.Content) == 2 && value.Content[1].Kind == yaml.SequenceNode &&
		similar.Content[1].Kind == yaml.SequenceNode: // the short form of a mapping with only this list
		return s.sequence(value.Content[1], similar.Content[1], w)
	}
	return value
}

func hasMerge(n *yaml.Node) bool {
	return slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return c.Tag == mergeTag })
}

// bare copies what a mapping or a list has besides its content. Its anchor is left out: the content is another one.
func bare(w *yaml.Node) *yaml.Node {
	n := *w
	n.Content, n.Anchor = nil, ""
	return &n
}

// mapping takes the fields that both have in the order of the file. A field that the file leaves out, and that is the
// same in both, has its default.
func (s *style) mapping(value, similar, written *yaml.Node) *yaml.Node {
	n := bare(written)
	taken := map[string]bool{}
	for i := 0; i+1 < len(written.Content); i += 2 {
		key := Deref(written.Content[i])
		name := key.Value
		if other, ok := s.names[name]; ok {
			name = other
		}
		taken[name] = true
		if v := entry(value, name); v != nil {
			n.Content = append(n.Content, written.Content[i], s.like(v, entry(similar, name), written.Content[i+1]))
		}
	}
	for i := 0; i+1 < len(value.Content); i += 2 {
		name := value.Content[i].Value
		if same := entry(similar, name); !taken[name] && (same == nil || !equal(value.Content[i+1], same)) {
			n.Content = append(n.Content, value.Content[i], value.Content[i+1])
		}
	}
	return n
}

// sequence takes each item as the item of the file that it is most like, in order.
func (s *style) sequence(value, similar, written *yaml.Node) *yaml.Node {
	n := bare(written)
	if len(similar.Content) != len(written.Content) {
		n.Content = value.Content
		return n
	}
	places := aligned(value.Content, similar.Content)
	next := 0 // of the file's items
	for i, item := range value.Content {
		j := places[i]
		switch {
		case j >= 0:
			item = s.like(item, similar.Content[j], written.Content[j])
			next = j + 1
		case next < len(written.Content) && !slices.Contains(places, next): // another one is in its place
			item = s.like(item, similar.Content[next], withoutComments(written.Content[next]))
			next++
		}
		n.Content = append(n.Content, item)
	}
	return n
}

// withoutComments copies a value without its comments and anchors.
func withoutComments(n *yaml.Node) *yaml.Node {
	r := *Deref(n)
	r.HeadComment, r.LineComment, r.FootComment, r.Anchor = "", "", "", ""
	r.Content = nil
	for _, c := range Deref(n).Content {
		r.Content = append(r.Content, withoutComments(c))
	}
	return &r
}

// entry returns the value of a mapping's field, also if it is null; nil: it has none.
func entry(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// equal reports whether two values that Encode has written are the same.
func equal(a, b *yaml.Node) bool {
	return a.Kind == b.Kind && a.ShortTag() == b.ShortTag() && a.Value == b.Value &&
		slices.EqualFunc(a.Content, b.Content, equal)
}

// aligned says for each item of a list which one of the others it is, in order, so that they have the most in common;
// -1: none.
func aligned(items, others []*yaml.Node) []int {
	common := make([][]int, len(items)+1) // of the items from i and the others from j on
	for i := range common {
		common[i] = make([]int, len(others)+1)
	}
	for i := len(items) - 1; i >= 0; i-- {
		for j := len(others) - 1; j >= 0; j-- {
			common[i][j] = max(common[i+1][j], common[i][j+1], inCommon(items[i], others[j])+common[i+1][j+1])
		}
	}
	all := make([]int, len(items))
	j := 0
	for i := range items {
		all[i] = -1
		for ; j < len(others); j++ {
			if k := inCommon(items[i], others[j]); k > 0 && common[i][j] == k+common[i+1][j+1] {
				all[i] = j
				j++
				break
			}
			if common[i][j] != common[i][j+1] {
				break
			}
		}
	}
	return all
}

// inCommon counts the texts that two values have in common at the same place, and one more if they are the same.
func inCommon(a, b *yaml.Node) int {
	if a.Kind != b.Kind {
		return 0
	}
	n := 0
	switch a.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(a.Content); i += 2 {
			if v := entry(b, a.Content[i].Value); v != nil {
				n += inCommon(a.Content[i+1], v)
			}
		}
	case yaml.SequenceNode:
		for i, j := range aligned(a.Content, b.Content) {
			if j >= 0 {
				n += inCommon(a.Content[i], b.Content[j])
			}
		}
	}
	if equal(a, b) {
		n++
	}
	return n
}

// resolve copies what is below a node, so that it can be written by itself: an alias whose anchor does not stand before
// it becomes what it stands for. Anchors are those that were written so far.
func resolve(n *yaml.Node, anchors map[*yaml.Node]*yaml.Node) {
	for i, c := range n.Content {
		if c.Kind == yaml.AliasNode {
			if there := anchors[c.Alias]; there != nil {
				alias := *c
				alias.Alias = there
				n.Content[i] = &alias
				continue
			}
			c = Deref(c)
		}
		copied := *c
		copied.Content = slices.Clone(c.Content)
		n.Content[i] = &copied
		if c.Anchor != "" {
			anchors[c] = &copied
		}
		resolve(&copied, anchors)
	}
}
