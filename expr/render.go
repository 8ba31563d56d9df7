package expr

import (
	"fmt"
	"html"
	"strings"
)

// A diagram is a graph as it is drawn: in addition to the names it has a start, an end, and junctions where arms meet.
type diagram struct {
	nodes         []shape
	edges         [][2]int
	width, height float64
}

type shape struct {
	kind       shapeKind
	label      string
	x, y, w, h float64 // of its box
}

type shapeKind int

const (
	box shapeKind = iota
	junction
	start
	finish
)

// Measures of the SVG, in pixels.
const (
	boxHeight    = 34
	letterWidth  = 8.4 // of the monospaced font at 14 px
	boxPadding   = 12
	junctionSize = 30
	dotSize      = 18
	gapX         = 44
	gapY         = 14
	margin       = 12
)

func newDiagram(g *Graph) *diagram {
	d := &diagram{}
	from := d.add(shape{kind: start, w: dotSize, h: dotSize})
	entries, exits, size := d.term(g, 0, true)
	to := d.add(shape{kind: finish, w: dotSize, h: dotSize})
	for _, e := range entries {
		d.edges = append(d.edges, [2]int{from, e})
	}
	for _, e := range exits {
		d.edges = append(d.edges, [2]int{e, to})
	}
	size.h = max(size.h, dotSize)
	d.width = 2*margin + 2*dotSize + 2*gapX + size.w
	d.height = 2*margin + size.h
	d.move(from+1, to, margin+dotSize+gapX, margin+(size.h-size.contentH)/2)
	d.place(from, margin, d.height/2)
	d.place(to, d.width-margin-dotSize, d.height/2)
	return d
}

// area is the size of a part of a diagram. The positions of its nodes are relative to its top left corner.
type area struct{ w, h, contentH float64 }

func (d *diagram) add(s shape) int {
	d.nodes = append(d.nodes, s)
	return len(d.nodes) - 1
}

// place puts a node with its left side at x and its middle at y.
func (d *diagram) place(node int, x, y float64) {
	n := &d.nodes[node]
	n.x, n.y = x, y-n.h/2
}

// move shifts the nodes from first up to, but not including, last.
func (d *diagram) move(first, last int, dx, dy float64) {
	for i := first; i < last; i++ {
		d.nodes[i].x += dx
		d.nodes[i].y += dy
	}
}

// term adds a term and returns the nodes that arrows lead to and from, and the space that it takes.
func (d *diagram) term(g *Graph, at int32, tail bool) (entries, exits []int, size area) {
	t := g.terms[at]
	switch t.op {
	case leaf:
		name := g.names[t.node]
		w := letterWidth*float64(len([]rune(name))) + 2*boxPadding
		n := d.add(shape{kind: box, label: name, w: w, h: boxHeight})
		return []int{n}, []int{n}, area{w, boxHeight, boxHeight}
	case sequence:
		type part struct {
			first, last int
			size        area
		}
		var parts []part
		for kid := t.first; kid >= 0; kid = g.terms[kid].next {
			first := len(d.nodes)
			in, out, s := d.term(g, kid, tail && g.terms[kid].next < 0)
			for _, from := range exits {
				for _, to := range in {
					d.edges = append(d.edges, [2]int{from, to})
				}
			}
			if entries == nil {
				entries = in
			}
			exits = out
			parts = append(parts, part{first, len(d.nodes), s})
			size.h = max(size.h, s.h)
		}
		for i, p := range parts {
			if i > 0 {
				size.w += gapX
			}
			d.move(p.first, p.last, size.w, (size.h-p.size.h)/2)
			size.w += p.size.w
		}
		size.contentH = size.h
		return entries, exits, size
	}
	for kid := t.first; kid >= 0; kid = g.terms[kid].next {
		if kid != t.first {
			size.h += gapY
		}
		first := len(d.nodes)
		in, out, s := d.term(g, kid, tail && t.op == either)
		d.move(first, len(d.nodes), 0, size.h)
		size.h += s.h
		size.w = max(size.w, s.w)
		entries, exits = append(entries, in...), append(exits, out...)
	}
	if !tail || t.op == both {
		j := d.add(shape{kind: junction, label: t.op.String(), w: junctionSize, h: junctionSize})
		for _, from := range exits {
			d.edges = append(d.edges, [2]int{from, j})
		}
		d.place(j, size.w+gapX, size.h/2)
		size.w += gapX + junctionSize
		exits = []int{j}
	}
	size.contentH = size.h
	return entries, exits, size
}

// DOT returns the graph in Graphviz's language.
func (g *Graph) DOT(title string) string {
	d := newDiagram(g)
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %q {\n  rankdir=LR;\n  node [shape=box, style=rounded];\n", title)
	for i, n := range d.nodes {
		switch n.kind {
		case box:
			fmt.Fprintf(&b, "  n%d [label=%q];\n", i, n.label)
		case junction:
			fmt.Fprintf(&b, "  n%d [label=%q, shape=circle];\n", i, n.label)
		case start:
			fmt.Fprintf(&b, "  n%d [label=\"\", shape=point];\n", i)
		case finish:
			fmt.Fprintf(&b, "  n%d [label=\"\", shape=doublecircle, width=0.15];\n", i)
		}
	}
	for _, e := range d.edges {
		fmt.Fprintf(&b, "  n%d -> n%d;\n", e[0], e[1])
	}
	b.WriteString("}\n")
	return b.String()
}

// Mermaid returns the graph in Mermaid's language.
func (g *Graph) Mermaid() string {
	d := newDiagram(g)
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	for i, n := range d.nodes {
		switch n.kind {
		case box:
			fmt.Fprintf(&b, "  n%d([\"%s\"])\n", i, n.label)
		case junction:
			fmt.Fprintf(&b, "  n%d{{\"%s\"}}\n", i, n.label)
		case start:
			fmt.Fprintf(&b, "  n%d(( ))\n", i)
		case finish:
			fmt.Fprintf(&b, "  n%d(((\" \")))\n", i)
		}
	}
	for _, e := range d.edges {
		fmt.Fprintf(&b, "  n%d --> n%d\n", e[0], e[1])
	}
	return b.String()
}

// Picture is a graph with a caption in an SVG.
type Picture struct {
	Caption string
	Graph   *Graph
}

// SVG draws graphs below each other, each under its caption. A graph that is too large to draw is replaced by a line
// with its size.
func SVG(pictures ...Picture) string {
	const captionHeight = 26
	var body strings.Builder
	var width, y float64
	for _, p := range pictures {
		width = max(width, 2*margin+7.4*float64(len([]rune(p.Caption))))
		fmt.Fprintf(&body, "<text class=\"caption\" x=\"%d\" y=\"%.0f\">%s</text>\n", margin, y+captionHeight-6,
			html.EscapeString(p.Caption))
		y += captionHeight
		if p.Graph.Len() > MaxDrawn {
			fmt.Fprintf(&body, "<text x=\"%d\" y=\"%.0f\">%d triggers: too many to draw</text>\n", margin, y+20,
				p.Graph.Len())
			y += 40
			continue
		}
		d := newDiagram(p.Graph)
		fmt.Fprintf(&body, "<g transform=\"translate(0 %.1f)\">\n%s</g>\n", y, d.svg())
		width = max(width, d.width)
		y += d.height
	}
	y += margin
	var b strings.Builder
	fmt.Fprintf(&b,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\">\n", width,
		y, width, y)
	b.WriteString(`<style>
  text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1b1f24; }
  .caption { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #57606a; }
  .box { fill: #eef4ff; stroke: #3b6fd4; stroke-width: 1.4; }
  .join { fill: #fff4e0; stroke: #c77d0a; stroke-width: 1.4; }
  .edge { fill: none; stroke: #57606a; stroke-width: 1.4; marker-end: url(#arrow); }
  .dot { fill: #57606a; }
  .ring { fill: none; stroke: #57606a; stroke-width: 1.4; }
</style>
<defs><marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0.5 L8 4 L0 7.5 z" fill="#57606a"/></marker></defs>
<rect width="100%" height="100%" fill="#ffffff"/>
`)
	b.WriteString(body.String())
	b.WriteString("</svg>\n")
	return b.String()
}

func (d *diagram) svg() string {
	var b strings.Builder
	for _, e := range d.edges {
		from, to := d.nodes[e[0]], d.nodes[e[1]]
		x1, y1, x2, y2 := from.x+from.w, from.y+from.h/2, to.x, to.y+to.h/2
		if y1 == y2 {
			fmt.Fprintf(&b, "<path class=\"edge\" d=\"M%.1f %.1f H%.1f\"/>\n", x1, y1, x2)
			continue
		}
		// An edge is horizontal until its target's column begins, so that it crosses no box in its own row.
		bend := max(x1, x2-gapX)
		fmt.Fprintf(&b, "<path class=\"edge\" d=\"M%.1f %.1f H%.1f C%.1f %.1f %.1f %.1f %.1f %.1f\"/>\n",
			x1, y1, bend, bend+gapX/2, y1, x2-gapX/2, y2, x2, y2)
	}
	for _, n := range d.nodes {
		cx, cy := n.x+n.w/2, n.y+n.h/2
		switch n.kind {
		case box:
			fmt.Fprintf(&b, "<rect class=\"box\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"9\"/>", n.x,
				n.y, n.w,
				n.h)
			fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", cx, cy+5,
				html.EscapeString(n.label))
		case junction:
			fmt.Fprintf(&b, "<circle class=\"join\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>", cx, cy, n.w/2)
			fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", cx, cy+5,
				html.EscapeString(n.label))
		case start:
			fmt.Fprintf(&b, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\"/>\n", n.x+n.w-5, cy)
		case finish:
			fmt.Fprintf(&b,
				"<circle class=\"ring\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/><circle class=\"dot\" cx=\"%.1f\" "+
					"cy=\"%.1f\" r=\"4.5\"/>\n", cx, cy, n.w/2, cx, cy)
		}
	}
	return b.String()
}
