package expr

import (
	"fmt"
	"strings"
)

// Mermaid returns the graph in Mermaid's language. In addition to the names it has a start, an end, and junctions where
// arms meet.
func (g *Graph) Mermaid() string {
	c := &chart{}
	start := c.node("(( ))")
	entries, exits := c.term(g.expr.root, true)
	end := c.node(`(((" ")))`)
	c.connect([]int{start}, entries)
	c.connect(exits, []int{end})
	return "flowchart LR\n" + c.nodes.String() + c.edges.String()
}

// chart is a diagram in Mermaid's language.
type chart struct {
	nodes, edges strings.Builder
	size         int // number of nodes
}

func (c *chart) node(shape string) int {
	fmt.Fprintf(&c.nodes, "  n%d%s\n", c.size, shape)
	c.size++
	return c.size - 1
}

func (c *chart) connect(from, to []int) {
	for _, f := range from {
		for _, t := range to {
			fmt.Fprintf(&c.edges, "  n%d --> n%d\n", f, t)
		}
	}
}

// term adds a term and returns the nodes that arrows lead to and from. In tail position, which nothing follows, the
// arms of an either do not meet.
func (c *chart) term(t *term, tail bool) (entries, exits []int) {
	switch t.op {
	case leaf:
		n := c.node(fmt.Sprintf(`(["%s"])`, t.name))
		return []int{n}, []int{n}
	case sequence:
		for i, kid := range t.kids {
			in, out := c.term(kid, tail && i == len(t.kids)-1)
			c.connect(exits, in)
			if i == 0 {
				entries = in
			}
			exits = out
		}
		return entries, exits
	}
	for _, kid := range t.kids {
		in, out := c.term(kid, tail && t.op == either)
		entries, exits = append(entries, in...), append(exits, out...)
	}
	if !tail || t.op == both {
		junction := c.node(fmt.Sprintf(`{{"%s"}}`, t.op))
		c.connect(exits, []int{junction})
		exits = []int{junction}
	}
	return entries, exits
}
