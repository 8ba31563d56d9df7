package expr

// Graph is an expression compiled for walking. It is immutable and safe for concurrent use; a [Progress] is the walk.
// Its nodes are the occurrences of names in the text, numbered from 0 in text order.
type Graph struct{ expr *Expr }

// Graph compiles the expression.
func (e *Expr) Graph() *Graph { return &Graph{e} }

// Len returns the number of nodes.
func (g *Graph) Len() int { return len(g.expr.names) }

// Name returns the node's name. It panics if there is no such node.
func (g *Graph) Name(node int) string { return g.expr.names[node].name }

// Expression returns the canonical text of the expression, see [Expr.String].
func (g *Graph) Expression() string { return g.expr.String() }

// Tree is a term of a graph, for programs that draw it in their own way.
type Tree struct {
	Op   string // how the kids are joined: ";", "|" or "&"; empty: this is a node
	Node int    // its number
	Kids []Tree
}

// Tree returns the whole graph.
func (g *Graph) Tree() Tree { return g.expr.root.tree() }

func (t *term) tree() Tree {
	if t.op == leaf {
		return Tree{Node: t.node}
	}
	tree := Tree{Op: t.op.String(), Node: -1}
	for _, kid := range t.kids {
		tree.Kids = append(tree.Kids, kid.tree())
	}
	return tree
}
