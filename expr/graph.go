package expr

// Graph is an expression compiled for walking. It is immutable and safe for concurrent use; a [Progress] is the walk.
// Its nodes are the occurrences of names in the text, numbered from 0 in text order.
type Graph struct {
	expr  *Expr
	names []string // by node
	terms []graphTerm
	nodes []int32 // node → its term
}

// graphTerm is a term of the expression in a flat, pre-ordered table; the root is at 0.
type graphTerm struct {
	op    operator
	node  int32 // of a leaf; otherwise -1
	up    int32 // parent; -1 at the root
	first int32 // first kid, -1 at a leaf
	next  int32 // next sibling, -1 at the last
	kids  int32 // number of kids
}

// Graph compiles the expression.
func (e *Expr) Graph() *Graph {
	g := &Graph{expr: e, names: make([]string, 0, e.names), nodes: make([]int32, 0, e.names)}
	g.terms = make([]graphTerm, 0, e.terms)
	type pending struct {
		t  *term
		up int32
	}
	// A stack of kids that are still to be placed, the next one on top. last gives each its previous sibling.
	stack := make([]pending, 1, 16)
	stack[0] = pending{e.root, -1}
	last := make([]int32, 0, e.terms) // by term: the kid placed last
	for len(stack) > 0 {
		p := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		at := int32(len(g.terms))
		g.terms = append(g.terms, graphTerm{op: p.t.op, node: -1, up: p.up, first: -1, next: -1,
			kids: int32(len(p.t.kids))})
		last = append(last, -1)
		if p.up >= 0 {
			if elder := last[p.up]; elder >= 0 {
				g.terms[elder].next = at
			} else {
				g.terms[p.up].first = at
			}
			last[p.up] = at
		}
		if p.t.op == leaf {
			g.terms[at].node = int32(len(g.names))
			g.names = append(g.names, p.t.name)
			g.nodes = append(g.nodes, at)
			continue
		}
		for i := len(p.t.kids) - 1; i >= 0; i-- {
			stack = append(stack, pending{p.t.kids[i], at})
		}
	}
	return g
}

// Len returns the number of nodes.
func (g *Graph) Len() int { return len(g.names) }

// Name returns the node's name. It panics if there is no such node.
func (g *Graph) Name(node int) string { return g.names[node] }

// Expression returns the canonical text of the expression, see [Expr.String].
func (g *Graph) Expression() string { return g.expr.String() }
