package expr

import "strings"

// MaxDrawn is the number of nodes up to which [Graph.String] and [SVG] draw a graph: larger pictures are unreadable,
// and their size is quadratic in the number of nodes. [Graph.DOT] and [Graph.Mermaid] have no such limit.
const MaxDrawn = 500

// String draws the graph as text. The graph of cond1;cond2;(cond3|cond4&(cond5;cond6)):
//
//	cond1 -> cond2 -> cond3 ----------------> *
//	             |--> cond4 ---------> (&) -> *
//	             |--> cond5 -> cond6 --^
//
// The star is the moment at which the whole expression is satisfied. If an either is not at the end of the expression,
// its arms meet at "(|)". For a graph that is too large to draw, String returns its expression instead.
func (g *Graph) String() string {
	if g.Len() > MaxDrawn {
		return g.Expression() + "\n"
	}
	c := &canvas{g: g}
	ends, _ := c.draw(0, 0, 0, false, true)
	star := 0
	for _, e := range ends {
		star = max(star, e.col+5)
	}
	for _, e := range ends {
		c.arrow(e.row, e.col, star)
		c.put(e.row, star, "*")
	}
	var b strings.Builder
	for _, row := range c.rows {
		b.WriteString(strings.TrimRight(string(row), " "))
		b.WriteByte('\n')
	}
	return b.String()
}

// canvas is a growing grid of characters.
type canvas struct {
	g    *Graph
	rows [][]rune
}

// end is where a drawn term can be continued: after its last character.
type end struct{ row, col int }

// draw puts the term at the given place and returns where it ends and how many rows it took. A term in tail position,
// which nothing follows, may have several ends; any other term has one, in its first row. preceded says that an arrow
// leads to col, so that arms below the first row are connected to its start.
func (c *canvas) draw(at int32, row, col int, preceded, tail bool) (ends []end, height int) {
	t := c.g.terms[at]
	switch t.op {
	case leaf:
		name := c.g.names[t.node]
		c.put(row, col, name)
		return []end{{row, col + len([]rune(name)) - 1}}, 1
	case sequence:
		for kid := t.first; kid >= 0; kid = c.g.terms[kid].next {
			if kid != t.first {
				next := ends[0].col + 5
				c.arrow(row, ends[0].col, next)
				col, preceded = next, true
			}
			var h int
			ends, h = c.draw(kid, row, col, preceded, tail && c.g.terms[kid].next < 0)
			height = max(height, h)
		}
		return ends, height
	}
	open := tail && t.op == either
	for kid := t.first; kid >= 0; kid = c.g.terms[kid].next {
		if kid != t.first && preceded {
			c.put(row+height, col-5, "|-->")
		}
		kidEnds, h := c.draw(kid, row+height, col, preceded, open)
		ends = append(ends, kidEnds...)
		height += h
	}
	if preceded {
		c.fill(row+1, row+height, col-5)
	}
	if open {
		return ends, height
	}
	join := 0
	for _, e := range ends {
		if e.row == row {
			join = max(join, e.col+5)
		} else {
			join = max(join, e.col+4)
		}
	}
	for _, e := range ends {
		if e.row == row {
			c.arrow(row, e.col, join)
			continue
		}
		c.put(e.row, e.col+2, strings.Repeat("-", join-e.col-2)+"^")
	}
	c.put(row, join, "("+t.op.String()+")")
	c.fill(row+1, ends[len(ends)-1].row, join)
	return []end{{row, join + 2}}, height
}

// arrow draws an arrow from after col to before target.
func (c *canvas) arrow(row, col, target int) {
	c.put(row, col+2, strings.Repeat("-", target-col-4)+">")
}

// fill closes the gaps in a vertical line: it fills the blanks of the column between a row and the last row that is not
// blank there.
func (c *canvas) fill(from, to, col int) {
	last := from - 1
	for row := from; row < to; row++ {
		if c.get(row, col) != ' ' {
			last = row
		}
	}
	if to < len(c.rows) && c.get(to, col) != ' ' {
		last = to
	}
	for row := from; row < last; row++ {
		if c.get(row, col) == ' ' {
			c.put(row, col, "|")
		}
	}
}

func (c *canvas) get(row, col int) rune {
	if row >= len(c.rows) || col >= len(c.rows[row]) {
		return ' '
	}
	return c.rows[row][col]
}

func (c *canvas) put(row, col int, text string) {
	for row >= len(c.rows) {
		c.rows = append(c.rows, nil)
	}
	for len(c.rows[row]) < col {
		c.rows[row] = append(c.rows[row], ' ')
	}
	for i, r := range []rune(text) {
		if at := col + i; at < len(c.rows[row]) {
			c.rows[row][at] = r
		} else {
			c.rows[row] = append(c.rows[row], r)
		}
	}
}
