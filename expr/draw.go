package expr

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxDrawn is the number of nodes up to which [Graph.String] draws a graph: larger pictures are unreadable, and their
// size is quadratic in the number of nodes. [Graph.Mermaid] has no such limit.
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
	d := draw(g.expr.root, true)
	d.arrows(d.ends, d.width(d.ends)+4, "*")
	var b strings.Builder
	for _, row := range d.rows {
		b.WriteString(row[lead:] + "\n")
	}
	return b.String()
}

// drawing is the picture of a term. Each row begins with the space for the arrow that leads to the term, which begins
// below the last character of the term before.
type drawing struct {
	rows []string
	ends []int // the rows at whose end the picture can be continued
}

const lead = len("|--> ")

// draw draws a term. In tail position, which nothing follows, the arms of an either do not meet, so that the picture
// may have several ends; any other picture has one, in its first row.
func draw(t *term, tail bool) (d drawing) {
	switch t.op {
	case leaf:
		return drawing{[]string{pad("", lead) + t.name}, []int{0}}
	case sequence:
		for i, kid := range t.kids {
			d.follow(draw(kid, tail && i == len(t.kids)-1))
		}
		return d
	}
	last := 0
	for _, kid := range t.kids {
		arm := draw(kid, tail && t.op == either)
		last = len(d.rows)
		for _, end := range arm.ends {
			d.ends = append(d.ends, last+end)
		}
		d.rows = append(d.rows, arm.rows...)
		d.rows[last] = "|--> " + d.rows[last][lead:]
	}
	for i, row := range d.rows[:last] {
		d.rows[i] = "|" + row[1:]
	}
	if tail && t.op == either {
		return d
	}
	// The other arms lead to the end of the first from below.
	join := max(d.width(d.ends[:1])+4, d.width(d.ends[1:])+3)
	d.arrows(d.ends[:1], join, "("+t.op.String()+")")
	for i := 1; i <= d.ends[len(d.ends)-1]; i++ {
		if slices.Contains(d.ends, i) {
			d.rows[i] += " " + strings.Repeat("-", join-width(d.rows[i])-1) + "^"
		} else {
			d.rows[i] = pad(d.rows[i], join) + "|"
		}
	}
	d.ends = d.ends[:1]
	return d
}

// follow draws the next term of a sequence.
func (d *drawing) follow(next drawing) {
	if d.rows == nil {
		*d = next
		return
	}
	below := width(d.rows[0]) - 1
	d.rows[0] += " -> " + next.rows[0][lead:]
	for i := 1; i < len(next.rows); i++ {
		if i == len(d.rows) {
			d.rows = append(d.rows, "")
		}
		d.rows[i] = pad(d.rows[i], below) + next.rows[i]
	}
	d.ends = next.ends
}

// arrows draws arrows from the ends of rows to a column.
func (d *drawing) arrows(rows []int, to int, target string) {
	for _, i := range rows {
		d.rows[i] += " " + strings.Repeat("-", to-width(d.rows[i])-3) + "> " + target
	}
}

// width is the length of the longest of the rows.
func (d *drawing) width(rows []int) int {
	longest := 0
	for _, i := range rows {
		longest = max(longest, width(d.rows[i]))
	}
	return longest
}

func width(row string) int { return utf8.RuneCountInString(row) }

func pad(row string, to int) string { return row + strings.Repeat(" ", to-width(row)) }
