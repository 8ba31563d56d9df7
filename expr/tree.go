package expr

// Tree is a term of a graph, for programs that draw it in their own way.
type Tree struct {
	Op   string // how the kids are joined: ";", "|" or "&"; empty: this is a node
	Node int    // its number
	Kids []Tree
}

// Tree returns the whole graph. It recurses over the expression: for graphs of up to [MaxDrawn] nodes.
func (g *Graph) Tree() Tree { return g.tree(0) }

func (g *Graph) tree(at int32) Tree {
	t := g.terms[at]
	if t.op == leaf {
		return Tree{Node: int(t.node)}
	}
	tree := Tree{Op: t.op.String(), Node: -1}
	for kid := t.first; kid >= 0; kid = g.terms[kid].next {
		tree.Kids = append(tree.Kids, g.tree(kid))
	}
	return tree
}
